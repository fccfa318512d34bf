"""Building and installing where something is missing: one line says what, and what to type."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture
def build(tmp_path):
    """Run `setup.py build_ext` on a copy, in an environment without a working compiler."""
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "README.md").touch()
    shutil.copytree(ROOT / "src/quasirnn/ops/csrc", tmp_path / "src/quasirnn/ops/csrc")
    (tmp_path / "src/quasirnn/__init__.py").touch()

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=tmp_path,
            env=os.environ | {"CC": "no-such-compiler", "CXX": "no-such-compiler"} | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def test_without_a_compiler_one_line_says_what_to_type(build, tmp_path):
    stale = tmp_path / "src/quasirnn/_kernels.abi3.so"
    stale.touch()
    result = build()
    assert result.returncode != 0
    assert result.stderr.count("\n") == 1
    assert "quasirnn: the CPU kernels could not be built" in result.stderr
    assert "no-such-compiler" in result.stderr
    assert "QUASIRNN_NO_KERNELS=1" in result.stderr
    assert not stale.exists(), "an older binary would be loaded in place of the one that failed"


def test_torch_that_cannot_be_imported_is_found_on_the_disk(build, tmp_path):
    """As in an isolated build: the environment's packages cannot be imported, and are there."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "torch.py").write_text("raise ImportError('hidden')")
    result = build(PYTHONPATH=str(hidden))
    assert "no-such-compiler" in result.stderr


def test_without_torch_the_line_names_the_remedy(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", "import sys, setuptools; sys.path = [p for p in sys.path if 'site-packages' not in p]\n"
         "import sysconfig; sysconfig.get_path = lambda name: '/nowhere'; setuptools.setup = lambda **k: None\n"
         f"import runpy; runpy.run_path({str(ROOT / 'setup.py')!r})['torch_folder']()"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert "pip install torch" in result.stderr.splitlines()[-1]


def test_kernels_can_be_left_out(build):
    result = build(QUASIRNN_NO_KERNELS="1")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("interpreter", "message"),
    [
        (None, "no-such-python not found"),
        ("exit 1", "needs Python 3.11 or newer"),
        ('case "$2" in *ensurepip*) exit 1;; esac', "has no venv module"),
    ],
)
def test_make_says_in_one_line_what_python_lacks(tmp_path, interpreter, message):
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / "no-such-python"
    if interpreter is not None:
        python.write_text(f"#!/bin/sh\n{interpreter}\n")
        python.chmod(0o755)
    result = subprocess.run(
        ["make", "--no-print-directory", "demo", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode != 0
    told, of_make_itself = result.stderr.splitlines()
    assert message in told
    assert of_make_itself.startswith("make")
    assert not (tmp_path / ".venv").exists()
