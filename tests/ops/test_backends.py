"""Which back end runs is visible, chosen by the environment, and never fails the import."""

import json
import os

import pytest

from processes import run_with_torch
from quasirnn.ops import backends

# Imports, uses the package three times, and prints what was warned of and what the report says.
PROGRAM = """
import json, warnings
with warnings.catch_warnings(record=True) as at_import:
    warnings.simplefilter("always")
    import torch, quasirnn
    from quasirnn.ops import backends
with warnings.catch_warnings(record=True) as at_use:
    warnings.simplefilter("always")
    z = torch.ones(2, 1, 1, requires_grad=True)
    for _ in range(2):
        h, last = quasirnn.f_pool(z, 0.5 * torch.ones(2, 1, 1))
        h.sum().backward()
    quasirnn.fused_pool(torch.zeros(2, 1, 3))
print(json.dumps({
    "at_import": [str(w.message) for w in at_import if "quasirnn" in str(w.message)],
    "at_use": [[w.category.__name__, str(w.message), w.filename] for w in at_use],
    "report": backends.report(),
    "h": h.flatten().tolist(),
}))
"""


def run(**environment: str) -> dict:
    base = {name: value for name, value in os.environ.items() if not name.startswith("QUASIRNN_")}
    result = run_with_torch(PROGRAM, env=base | environment)
    result.check_returncode()
    found = json.loads(result.stdout)
    assert found["at_import"] == []
    assert found["h"] == [0.5, 0.75]
    return found


def test_plain_on_request_says_so_and_does_not_warn():
    found = run(QUASIRNN_BACKEND="plain")
    assert found["at_use"] == []
    assert found["report"]["cpu"] == {
        "backend": "plain",
        "reason": "QUASIRNN_BACKEND=plain is set",
        "instruction_set": None,
    }


@pytest.mark.parametrize("broken", [pytest.param(False, marks=pytest.mark.full), True], ids=["missing", "broken"])
def test_without_kernels_the_import_works_and_one_warning_comes_with_the_first_use(broken, tmp_path):
    path = tmp_path / "kernels.so"
    if broken:
        path.write_bytes(b"not an ELF file")
    found = run(QUASIRNN_KERNELS=str(path))
    assert found["report"]["cpu"]["backend"] == "plain"
    assert "cannot be loaded" in found["report"]["cpu"]["reason"]
    assert str(path) in found["report"]["cpu"]["reason"]
    ((category, message, filename),) = found["at_use"]
    assert category == "RuntimeWarning"
    assert message.startswith("quasirnn runs on plain PyTorch on cpu, many times slower than its kernels: ")
    assert found["report"]["cpu"]["reason"] in message
    assert "quasirnn doctor" in message
    # It points at the caller, not at our own files.
    assert filename == "<string>"


def test_report_says_what_runs_here():
    report = backends.report()
    assert set(report) == {"cpu", "cuda"}
    cpu = report["cpu"]
    if backends.kernels is None:
        assert cpu["backend"] == "plain"
        assert cpu["reason"]
    else:
        assert (cpu["backend"], cpu["reason"]) == ("kernels", None)
        assert cpu["instruction_set"]
    assert report["cuda"]["backend"] in ("triton", "plain", "absent")
    assert (report["cuda"]["reason"] is None) == (report["cuda"]["backend"] == "triton")
