"""A virtual machine that shows AMX without its tiles: products in bfloat16 must not kill the process."""

import os
import subprocess
import sys

import pytest

from quasirnn.ops import torch_internals

CPUINFO = "processor\t: 0\ncpuid level\t: {level}\nflags\t\t: fpu avx512f{flags}\n\nprocessor\t: 1\ncpuid level\t: 13\n"


@pytest.mark.parametrize(
    ("level", "flags", "hidden"),
    [
        (28, " amx_bf16 amx_tile amx_int8", True),
        (29, " amx_bf16 amx_tile amx_int8", False),
        (32, " amx_tile", False),
        (28, "", False),
        ("", " amx_tile", False),
    ],
)
def test_found_in_cpuinfo(level, flags, hidden):
    assert torch_internals.hides_tiles(CPUINFO.format(level=level, flags=flags)) is hidden


@pytest.mark.parametrize("cpuinfo", ["", "\n\n", "flags", "processor : 0\nmodel : ARM"])
def test_other_files_are_not_taken_for_it(cpuinfo):
    assert not torch_internals.hides_tiles(cpuinfo)


@pytest.mark.parametrize("wish", [None, "AVX2"])
def test_what_the_user_set_stays(monkeypatch, wish):
    monkeypatch.delenv(torch_internals.ONEDNN_ISA, raising=False)
    if wish:
        monkeypatch.setenv(torch_internals.ONEDNN_ISA, wish)
    monkeypatch.setattr(torch_internals, "hides_tiles", lambda _: True)
    torch_internals.avoid_hidden_tiles()
    assert os.environ[torch_internals.ONEDNN_ISA] == (wish or torch_internals.BELOW_AMX)


def test_products_run_on_this_machine():
    program = "import quasirnn.ops, torch; a = torch.ones(64, 64).bfloat16(); print(float((a @ a)[0, 0]))"
    environment = {name: value for name, value in os.environ.items() if name != torch_internals.ONEDNN_ISA}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
