"""Model files: what is written is read back; whatever else is in them ends in one line that names the file."""

import json
import os
import pickle
import random
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from quasirnn.errors import ModelFileError, WriteError
from quasirnn.files import read_json, tensor_bytes, unique_tensors, write_bytes, write_json
from quasirnn.models.pretrained import Pretrained, save_weights
from quasirnn.nn import QRNN

FILES = ("config.json", "model.safetensors")


class Small(Pretrained):
    """A model with all that can be difficult: tied weights, a buffer, one number or one per layer."""

    def __init__(
        self,
        size: int,
        *,
        num_layers: int = 1,
        kernel_size: int | Sequence[int] = 2,
        cell: Literal["qrnn", "lstm"] = "qrnn",
        dropout: float = 0.0,
        tied: bool = True,
    ) -> None:
        super().__init__(locals())
        self.embedding = nn.Embedding(5, size)
        if cell == "qrnn":
            self.rnn = QRNN(size, size, num_layers, kernel_size=kernel_size, dropout=dropout if num_layers > 1 else 0.0)
        else:
            self.rnn = nn.LSTM(size, size, num_layers)
        self.softmax = nn.Linear(size, 5)
        if tied:
            self.softmax.weight = self.embedding.weight
        self.register_buffer("seen", torch.tensor(3))


class Other(Pretrained):
    def __init__(self, size: int) -> None:
        super().__init__(locals())
        self.linear = nn.Linear(size, size)


@pytest.fixture
def folder(tmp_path):
    Small(4).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def write_tensors(folder: Path, header: dict[str, Any], data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def refusal(folder: Path, cls: type[Pretrained] = Small) -> str:
    """What reading says; it must say it in one line that begins with the name of a file or of the folder."""
    with pytest.raises(ModelFileError) as caught:
        cls.from_pretrained(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    assert len(message) < 600
    return message.removeprefix(f"{folder}/")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": False},
        {"num_layers": 2, "kernel_size": (3, 1), "dropout": 0.5},
        {"cell": "lstm", "num_layers": 2},
    ],
    ids=str,
)
def test_a_model_is_read_as_it_was_written(tmp_path, options):
    model = Small(4, **options)
    nn.init.normal_(model.softmax.bias)
    model.seen.fill_(7)
    model.save_pretrained(tmp_path / "new" / "folder")
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == sorted(FILES)
    again = Small.from_pretrained(str(tmp_path / "new" / "folder"))
    assert again.config == model.config
    assert not again.training
    assert (again.softmax.weight is again.embedding.weight) == options.get("tied", True)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, rtol=0, atol=0)
    assert all(p.requires_grad for p in again.parameters())


def test_tied_weights_are_stored_once(folder):
    tied = (folder / "model.safetensors").stat().st_size
    Small(4, tied=False).save_pretrained(folder)
    assert (folder / "model.safetensors").stat().st_size >= tied + 5 * 4 * 4


def test_reading_draws_no_random_numbers(folder):
    before = torch.get_rng_state()
    Small.from_pretrained(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_guarantee_model_files_every_flipped_bit_is_noticed(folder):
    """Of either file: refused in one line, or, where the bit has no meaning (a space of JSON), the same model."""
    expected = Small.from_pretrained(folder).state_dict()
    generator = random.Random(1)
    refused = 0
    for name in FILES:
        whole = (folder / name).read_bytes()
        for place in generator.sample(range(8 * len(whole)), 150):
            damaged = bytearray(whole)
            damaged[place // 8] ^= 1 << place % 8
            (folder / name).write_bytes(damaged)
            try:
                again = Small.from_pretrained(folder).state_dict()
            except ModelFileError:
                refusal(folder)
                refused += 1
            else:
                assert all(torch.equal(again[key], tensor) for key, tensor in expected.items()), place
        (folder / name).write_bytes(whole)
    assert refused >= 290
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert refusal(folder).startswith("model.safetensors: damaged or changed since it was written: sha256 differs.")


def test_the_hashes_name_files_of_the_same_folder_only(folder):
    """A crafted header: another folder's files are not opened."""
    tensors = Small.from_pretrained(folder).state_dict()
    for hashes, message in (
        ('{"../../etc/passwd": "0"}', "passwd: no such file."),
        ('{"": "0"}', "model.safetensors: damaged or changed"),
        ('{"tensors": 0}', "model.safetensors: damaged or changed"),
        ("[", "model.safetensors: its hashes are invalid JSON"),
    ):
        (folder / "model.safetensors").write_bytes(tensor_bytes(tensors, {"quasirnn": hashes}))
        assert refusal(folder).startswith(message)


def test_weights_without_hashes_are_loaded_with_a_note(folder, caplog):
    """As versions before these hashes wrote them."""
    (folder / "model.safetensors").write_bytes(tensor_bytes(Small.from_pretrained(folder).state_dict()))
    assert not caplog.messages
    Small.from_pretrained(folder)
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "has no sha256, because an older version wrote it: damage would not be detected."
    ]


def test_the_same_weights_are_the_same_bytes(folder):
    whole = (folder / "model.safetensors").read_bytes()
    for _ in range(5):
        Small.from_pretrained(folder).save_pretrained(folder)
        assert (folder / "model.safetensors").read_bytes() == whole


def test_a_constructor_that_leaves_out_an_argument():
    class Forgetful(Pretrained):
        def __init__(self, size: int) -> None:
            super().__init__({})

    with pytest.raises(KeyError, match="size"):
        Forgetful(3)


def test_arguments_added_later_are_saved_only_where_they_differ_from_their_default(tmp_path):
    class Extended(Pretrained):
        added = frozenset({"extra"})

        def __init__(self, size: int, sizes: tuple[int, ...] = (1, 2), extra: float = 0.0) -> None:
            super().__init__(locals())
            self.linear = nn.Linear(size, size)

    plain, extended = Extended(3), Extended(3, extra=0.5)
    assert plain.config == {"format": 1, "model": "Extended", "size": 3, "sizes": [1, 2]}
    assert extended.config == plain.config | {"extra": 0.5}
    for model in (plain, extended):
        model.save_pretrained(tmp_path)
        assert Extended.from_pretrained(tmp_path).config == model.config


def without(key):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        del config[key]
        (folder / "config.json").write_text(json.dumps(config))

    return change


def changed(**changes):
    return lambda folder: change_config(folder, **changes)


def config_text(text):
    return lambda folder: (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())


def weights(content):
    return lambda folder: (folder / "model.safetensors").write_bytes(content)


def tensors(**changes):
    """The right tensors but for some: None leaves one out."""

    def change(folder):
        right = {name: t.detach() for name, t in unique_tensors(Small(4).state_dict(keep_vars=True)).items()}
        both = right | {name.replace("_dot_", "."): t for name, t in changes.items()}
        (folder / "model.safetensors").write_bytes(save({name: t for name, t in both.items() if t is not None}))

    return change


def replace_by_folder(name):
    def change(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def replace_by_pipe(name):
    def change(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def replace_by_link(name, target):
    def change(folder):
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


MALFORMED = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json: no such file. Copy the folder again"),
    "folder for config": (replace_by_folder("config.json"), "config.json: not a file."),
    "pipe for config": (replace_by_pipe("config.json"), "config.json: not a file."),
    "link to a device for config": (replace_by_link("config.json", "/dev/zero"), "config.json: not a file."),
    "truncated config": (config_text('{"format": 1, "mod'), "config.json: invalid JSON: Unterminated string"),
    "empty config": (config_text(""), "config.json: invalid JSON: Expecting value"),
    "not UTF-8": (config_text(b'{"format": "\xff"}'), "config.json: not UTF-8: byte 12 is 0xff."),
    "list": (config_text("[1, 2]"), "config.json: must be one JSON object, got [1, 2]."),
    "deep": (config_text("[" * 100_000), "config.json: invalid JSON: maximum recursion depth exceeded"),
    "rather deep": (
        changed(size=json.loads("[" * 300 + "]" * 300)),
        "config.json: invalid JSON: nested too deep. Copy the folder again",
    ),
    "huge number": (config_text('{"format": ' + "9" * 9999 + "}"), "config.json: invalid JSON: Exceeds the limit"),
    "NaN": (config_text('{"format": NaN}'), "config.json: invalid JSON: NaN is no number."),
    "twice": (config_text('{"format": 1, "format": 1}'), "config.json: invalid JSON: 'format' is there twice."),
    "twice among many": (
        config_text(json.dumps({str(n): 0 for n in range(80_000)})[:-1] + ', "79999": 0}'),
        "config.json: invalid JSON: '79999' is there twice.",
    ),
    "large": (config_text(" " * 2**20 + "{}"), "config.json: has 1,048,578 bytes, more than 1,048,576."),
    "no format": (without("format"), 'config.json: "format" must be 1, got None.'),
    "new format": (changed(format=2), 'config.json: "format" must be 1, got 2. Was it written by a newer version?'),
    "true format": (changed(format=True), 'config.json: "format" must be 1, got True.'),
    "no model": (changed(model=["Small"]), "config.json: \"model\" must name a class, got ['Small']."),
    "other model": (
        changed(model="Other"),
        "config.json: contains a 'Other', not a 'Small'. Load it with its own class.",
    ),
    "unknown key": (changed(sizes=3), "config.json: Small has no 'sizes'."),
    "missing key": (without("size"), "config.json: size missing."),
    "text": (changed(size="4"), "config.json: size must be an integer, got '4'."),
    "float": (changed(size=4.0), "config.json: size must be an integer, got 4.0."),
    "bool": (changed(size=True), "config.json: size must be an integer, got True."),
    "choice": (changed(cell="gru"), "config.json: cell must be one of qrnn, lstm, got 'gru'."),
    "list of text": (
        changed(kernel_size=["2"]),
        "config.json: kernel_size must be an integer or a list of integers, got ['2'].",
    ),
    "infinite": (
        config_text('{"format": 1, "model": "Small", "size": 4, "dropout": 1e999}'),
        "dropout must be a number",
    ),
    "refused": (changed(size=0), "config.json: does not describe a model: QRNN: input_size must be at least 1, got 0"),
    "negative": (changed(size=-4), "config.json: does not describe a model: "),
    "terabytes": (
        changed(size=2**40),
        "config.json: size = 1099511627776 is impossible: model.safetensors has 134 numbers.",
    ),
    "beyond": (changed(size=2**70), "config.json: size must be an integer, got a huge number."),
    "gigabytes": (
        changed(size=100_000),
        "model.safetensors: embedding.weight has shape (5, 4), the model needs (5, 100000).",
    ),
    "layers": (
        changed(num_layers=10**7),
        "config.json: does not describe a model: more layers than there are weights for",
    ),
    "LSTM layers": (changed(num_layers=10**7, cell="lstm"), "more layers than there are weights for"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: no such file."),
    "folder for weights": (replace_by_folder("model.safetensors"), "model.safetensors: not a file."),
    "pipe for weights": (replace_by_pipe("model.safetensors"), "model.safetensors: not a file."),
    "empty weights": (
        weights(b""),
        "model.safetensors: not a complete safetensors file: 0 bytes, but its header needs 8.",
    ),
    "zeros": (weights(bytes(100)), "model.safetensors: not a complete safetensors file: "),
    "missing tensor": (
        tensors(softmax_dot_bias=None),
        "model.safetensors: has no 'softmax.bias', which the model needs.",
    ),
    "extra tensor": (tensors(more=torch.zeros(3)), "model.safetensors: has 'more', which the model does not have."),
    "tied twice": (
        tensors(softmax_dot_weight=torch.zeros(5, 4)),
        "model.safetensors: has 'softmax.weight', which the model does not have.",
    ),
    "wrong shape": (
        tensors(softmax_dot_bias=torch.zeros(6)),
        "model.safetensors: softmax.bias has shape (6,), the model needs (5,).",
    ),
    "right count, wrong shape": (
        tensors(embedding_dot_weight=torch.zeros(4, 5)),
        "model.safetensors: embedding.weight has shape (4, 5), the model needs (5, 4).",
    ),
    "wrong type": (
        tensors(softmax_dot_bias=torch.zeros(5).half()),
        "model.safetensors: softmax.bias is float16, the model needs float32.",
    ),
    "strange type": (
        tensors(softmax_dot_bias=torch.zeros(5, dtype=torch.uint8)),
        "model.safetensors: softmax.bias is U8, the model needs float32.",
    ),
}


@pytest.mark.parametrize(("change", "message"), MALFORMED.values(), ids=MALFORMED)
def test_guarantee_model_files_run_no_code_malformed(folder, change, message):
    change(folder)
    assert message in refusal(folder)


def test_guarantee_model_files_run_no_code_missing_folder(tmp_path):
    assert refusal(tmp_path / "none") == f"{tmp_path}/none: no such folder."
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file") == f"{tmp_path}/file: not a folder."


def test_guarantee_model_files_run_no_code_model_of_another_class(folder):
    assert "contains a 'Small', not a 'Other'" in refusal(folder, Other)


@pytest.mark.parametrize("name", FILES)
def test_guarantee_model_files_run_no_code_truncated(folder, name):
    whole = (folder / name).read_bytes()
    for length in range(len(whole) - 1):
        (folder / name).write_bytes(whole[:length])
        assert refusal(folder).startswith((f"{name}: not ", f"{name}: invalid JSON"))


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 10**9, 200])
def test_guarantee_model_files_run_no_code_huge_header(folder, length):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + bytes(100))
    message = refusal(folder)
    assert f"not a complete safetensors file: 108 bytes, but its header needs {8 + length:,}." in message


def test_guarantee_model_files_run_no_code_header_of_many_megabytes(folder):
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 10**9))
        # A file with a hole: it takes no room on the disk, and reading it whole would take a GB.
        file.truncate(8 + 10**9)
    assert "model.safetensors: its header has 1,000,000,000 bytes, more than 8,388,608." in refusal(folder)


SHAPES = {
    "overflow": [2**62, 2**62],
    "empty but vast": [0, 2**63],
    "negative": [-1],
    "no list": 3,
    "text": ["3"],
    "many": [1] * 1000,
    "nested": [[1]],
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["F32", "F4", "F8_E8M0", "PICKLE", None])
@pytest.mark.parametrize("offsets", [[0, 0], [0, 4], [4, 0], [0, 2**64], None])
def test_guarantee_model_files_run_no_code_lying_header(folder, shape, dtype, offsets):
    write_tensors(folder, {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}})
    assert refusal(folder).startswith("model.safetensors: ")


def test_guarantee_model_files_run_no_code_names_that_break_lines(folder):
    write_tensors(folder, {"a\nb\u2028\x1b[2J" * 100: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    assert "which the model needs" in refusal(folder)
    change_config(folder, **{"line\nbreak": 1})
    assert "Small has no 'line\\nbreak'" in refusal(folder)


class Payload:
    """Pickled, it makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", FILES)
def test_guarantee_model_files_run_no_code_pickle(folder, name):
    (folder / name).write_bytes(pickle.dumps(Payload(folder / "ran")))
    refusal(folder)
    assert not (folder / "ran").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    Small(4).save_pretrained(folder)
    return folder, {name: (folder / name).read_bytes() for name in FILES}


def read_or_refuse(folder: Path) -> None:
    """Changed weights go unnoticed; whatever else is wrong is a refusal, and never another exception."""
    try:
        Small.from_pretrained(folder)
    except ModelFileError:
        refusal(folder)


@pytest.mark.parametrize("name", FILES)
@given(garbage=st.binary(max_size=300))
def test_guarantee_model_files_run_no_code_garbage(saved, name, garbage):
    folder, whole = saved
    try:
        (folder / name).write_bytes(garbage)
        read_or_refuse(folder)
    finally:
        (folder / name).write_bytes(whole[name])


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_guarantee_model_files_run_no_code_changed_bytes(saved, name, data):
    folder, whole = saved
    content = bytearray(whole[name])
    # Mostly the header: the numbers behind it are many and all alike.
    place = data.draw(st.integers(0, min(len(content), 800) - 1))
    length = data.draw(st.integers(0, 8))
    content[place : place + length] = data.draw(st.binary(max_size=8))
    try:
        (folder / name).write_bytes(content)
        read_or_refuse(folder)
    finally:
        (folder / name).write_bytes(whole[name])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(key=st.sampled_from(["size", "num_layers", "kernel_size", "cell", "dropout", "tied", "format"]), value=VALUES)
def test_guarantee_model_files_run_no_code_wrong_values(saved, key, value):
    folder, whole = saved
    try:
        change_config(folder, **{key: value})
        read_or_refuse(folder)
    finally:
        (folder / "config.json").write_bytes(whole["config.json"])


def test_a_failed_write_leaves_the_old_file(folder, monkeypatch):
    file = folder / "model.safetensors"
    before = file.read_bytes()
    for step in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, step, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(WriteError, match=r"model\.safetensors: No space left on device"):
                save_weights(Small(4), file)
        assert file.read_bytes() == before
        assert sorted(os.listdir(folder)) == sorted(FILES)


def test_files_can_be_read_by_whom_the_user_lets_read(folder):
    umask = os.umask(0)
    os.umask(umask)
    for name in FILES:
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o666 & ~umask


def test_what_could_not_be_read_is_not_written(tmp_path):
    with pytest.raises(ModelFileError, match="would have 1,015 bytes, more than the limit of 1,000"):
        write_json(tmp_path / "a.json", {"key": "x" * 1000}, limit=1000)
    assert not os.listdir(tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"key": float("nan")})


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    write_bytes(tmp_path / "a.json", b"{}")
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(ModelFileError, match=r"a\.json: cannot be read: Permission denied\."):
        read_json(tmp_path / "a.json")
