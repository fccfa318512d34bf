"""Saved programs run on the library of the operators alone: without this package, and without Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from processes import run_with_torch
from quasirnn import QRNN
from quasirnn.ops import backends

DEPLOY = Path(__file__).parents[2] / "examples/deploy"
pytestmark = [
    pytest.mark.skipif(backends.kernels is None, reason="there is no library without the kernels"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

WITHOUT_THE_PACKAGE = """
import sys, torch
library, folder = sys.argv[1:]
torch.ops.load_library(library)
x = torch.load(f"{folder}/x.pt")
traced = torch.jit.load(f"{folder}/traced.pt")
exported = torch.export.load(f"{folder}/exported.pt2").module()
assert not any(name.startswith("quasirnn") for name in sys.modules)
torch.save([traced(x)[0], exported(x)[0]], f"{folder}/outputs.pt")
"""


def test_saved_programs_run_on_the_library_alone(tmp_path):
    rnn, x = QRNN(3, 4, 2, bidirectional=True).eval(), torch.randn(5, 2, 3)
    with torch.no_grad():
        torch.jit.trace(rnn, x).save(tmp_path / "traced.pt")
        time = torch.export.Dim("T", min=2, max=64)
        exported = torch.export.export(rnn, (x,), dynamic_shapes=({0: time},))
        torch.export.save(exported, tmp_path / "exported.pt2")
        other = torch.randn(9, 2, 3)
        wanted = rnn(other)[0]
    torch.save(other, tmp_path / "x.pt")
    result = run_with_torch(WITHOUT_THE_PACKAGE, backends.library_path(), str(tmp_path))
    assert result.returncode == 0, result.stderr
    for output in torch.load(tmp_path / "outputs.pt"):
        torch.testing.assert_close(output, wanted)


def test_the_package_follows_a_library_that_is_loaded_already():
    program = "import sys, torch; torch.ops.load_library(sys.argv[1]); import quasirnn; print(quasirnn.QRNN(3, 4))"
    result = run_with_torch(program, backends.library_path())
    assert result.returncode == 0, result.stderr


def test_the_library_needs_no_python():
    binary = Path(backends.library_path()).read_bytes()
    assert b"quasirnn_instruction_set" in binary
    assert b"PyModule" not in binary
    assert b"PyObject" not in binary


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_program_in_cpp_prints_what_python_does(tmp_path):
    package, program = str(tmp_path / "rnn.pt2"), str(tmp_path / "main")
    run = {"capture_output": True, "text": True, "check": True}
    environment = os.environ | {"PYTHON": sys.executable}
    in_python = subprocess.run([sys.executable, "-W", "ignore", str(DEPLOY / "export.py"), package], **run)
    subprocess.run([str(DEPLOY / "build.sh"), program], env=environment, **run)
    in_cpp = subprocess.run([program, package, backends.library_path()], **run)
    assert len(in_cpp.stdout.splitlines()) == 7
    assert in_cpp.stdout == in_python.stdout
    linked = (
        subprocess.run(["ldd", program], **run).stdout + subprocess.run(["ldd", backends.library_path()], **run).stdout
    )
    assert "libpython" not in linked
