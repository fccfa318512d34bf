"""precision=auto: bfloat16 where the device has it in hardware, resolved once; another precision on resume."""

import json

import pytest
import torch

from cli.command import here
from quasirnn.ops import torch_internals
from quasirnn.tasks.language_model import FAST
from quasirnn.tasks.training_run import resolve_precision
from quasirnn.training.run_log import read_metrics
from tasks.tiny_language_model import keys, write_texts


@pytest.fixture
def forget():
    """Accelerate allows one precision per process, unless it is made to forget."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    yield lambda: AcceleratorState._reset_state(reset_partial_state=True)
    AcceleratorState._reset_state(reset_partial_state=True)


def recorded(run):
    return json.loads((run / "training.json").read_text())["settings"]["precision"]


@pytest.mark.parametrize(("has", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_auto_asks_the_cpu_and_the_answer_is_recorded(monkeypatch, tmp_path, forget, has, precision):
    monkeypatch.setattr(torch_internals, "cpu_has_bfloat16", lambda: has)
    data, run = write_texts(tmp_path / "texts"), tmp_path / "run"
    words = ("train", "language-model", "--data", data, *keys("precision=auto", "max_steps=6"))
    shown = here(*words, "--show").stdout
    (line,) = [line for line in shown.splitlines() if "precision=" in line]
    assert (
        line.split()
        == f"precision={precision} # auto: this CPU {'has' if has else 'does not have'} bfloat16 in hardware".split()
    )
    assert here(*words, "--out", run).code == 0
    assert recorded(run) == precision
    assert read_metrics(run / "metrics.jsonl")[0]["precision"] == precision


def test_a_gpu_is_asked_instead(monkeypatch):
    monkeypatch.setattr(torch_internals, "cpu_has_bfloat16", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    for has, precision in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has: has)
        assert resolve_precision(FAST.qrnn)[0].precision == precision


@pytest.mark.parametrize(("first", "then"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("bfloat16", "auto")])
def test_a_run_goes_on_in_another_precision(monkeypatch, tmp_path, forget, first, then):
    """In the middle of an epoch, where a state of the former type is carried on."""
    monkeypatch.setattr(torch_internals, "cpu_has_bfloat16", lambda: False)
    data, run = write_texts(tmp_path / "texts"), tmp_path / "run"
    words = ("train", "language-model", "--out", run)
    assert here(*words, "--data", data, *keys(f"precision={first}", "max_steps=6")).code == 0
    forget()
    now = "float32" if then == "auto" else then
    result = here(*words, "--resume", f"precision={then}", "max_steps=9")
    assert result.code == 0, result.stderr
    assert f"Note: precision: {first} so far, {now} from now on" in result.stderr
    assert recorded(run) == now
    assert [record["precision"] for record in read_metrics(run / "metrics.jsonl") if "precision" in record] == [
        first,
        now,
    ]
    forget()
    again = here(*words, "--resume", "max_steps=12")
    assert again.code == 0
    assert "until now" not in again.stderr
