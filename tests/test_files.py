"""Files are replaced whole or not at all."""

import json
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from quasirnn.errors import WriteError
from quasirnn.files import tensor_bytes, unique_tensors, write_bytes, write_json
from training.disk import Disk, no_space, read_only


def test_content_is_replaced_and_no_temporary_file_stays(tmp_path):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [no_space, read_only])
@pytest.mark.parametrize("fail_at", [1, 2])
def test_guarantee_failing_loudly_names_the_path_and_keeps_the_file(tmp_path, monkeypatch, error, fail_at):
    """The sync of the file fails, or the renaming."""
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with monkeypatch.context() as patch:
        Disk(patch, fail_at, error, for_good=False)
        with pytest.raises(WriteError) as caught:
            write_bytes(path, b"new")
    text = str(caught.value)
    assert text.startswith(f"cannot write {path}: {error().strerror} (E")
    assert text.endswith("the previous file is unchanged")
    assert "\n" not in text
    assert caught.value.errno == error().errno
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_is_missing_or_a_file_is_told(tmp_path):
    with pytest.raises(WriteError, match=r"No such file or directory \(ENOENT\); no file was created"):
        write_bytes(tmp_path / "missing" / "file", b"")
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"Not a directory \(ENOTDIR\)"):
        write_bytes(tmp_path / "file" / "file", b"")


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_guarantee_failing_loudly_on_a_disk_that_is_really_full(small_disk):
    path = small_disk / "file"
    write_bytes(path, b"old")
    with pytest.raises(WriteError, match=r"No space left on device \(ENOSPC\); the previous file is unchanged"):
        write_bytes(path, bytes(100_000))
    assert path.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["file"]


def test_guarantee_failing_loudly_on_a_folder_that_is_really_read_only(small_disk):
    path = small_disk / "file"
    write_bytes(path, b"old")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(WriteError, match=r"Read-only file system \(EROFS\); the previous file is unchanged"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_json_is_strict(tmp_path):
    write_json(tmp_path / "file", {"ü": [1, 0.1, None]})
    assert json.loads((tmp_path / "file").read_text(encoding="utf-8")) == {"ü": [1, 0.1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "file", float("nan"))


def test_tied_and_strided_tensors_are_written_once_and_in_order(tmp_path):
    weight = torch.randn(3, 4)
    tensors = {"a": weight, "b": weight, "transposed": weight.T, "empty": torch.empty(0), "none": torch.empty(0)}
    assert list(unique_tensors(tensors)) == ["a", "transposed", "empty", "none"]
    write_bytes(tmp_path / "file", tensor_bytes(tensors))
    loaded = load_file(tmp_path / "file")
    assert set(loaded) == {"a", "transposed", "empty", "none"}
    assert torch.equal(loaded["transposed"], weight.T)
