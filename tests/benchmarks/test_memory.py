"""Peak memory, in this process and in a fresh one."""

from subprocess import CompletedProcess

import pytest
import torch

from quasirnn.benchmarks import memory, scale, softmax, task
from quasirnn.benchmarks.memory import MeasurementFailed, in_child, peak_during, process_peak

MB = 2**20


def test_what_work_needs_is_seen_though_it_is_freed():
    def work():
        torch.ones(48 * MB // 4)
        return "done"

    peak, result = peak_during("cpu", work)
    assert result == "done"
    assert peak.peak - peak.before >= 40 * MB or peak.method == "ru_maxrss"
    assert process_peak() >= peak.before


def test_without_proc_the_system_is_asked(monkeypatch):
    monkeypatch.setattr(memory, "reset_peak", lambda: False)
    peak, _ = peak_during("cpu", lambda: None)
    assert peak.method == "ru_maxrss"
    assert peak.peak >= peak.before > 0


def test_a_process_that_fails_is_reported_with_its_last_line(monkeypatch):
    ended = CompletedProcess([], 1, "", "Traceback (most recent call last):\nRuntimeError: no device nowhere\n")
    monkeypatch.setattr(memory.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(MeasurementFailed, match=r"^measuring the layer failed: RuntimeError: no device nowhere$"):
        in_child(scale.extra_memory, {"T": 5, "H": 4, "device": "cpu", "seed": 1}, "the layer")


@pytest.mark.full
def test_a_process_that_fails_is_reported():
    with pytest.raises(MeasurementFailed, match=r"measuring the layer failed: RuntimeError: .*nowhere"):
        in_child(scale.extra_memory, {"T": 5, "H": 4, "device": "nowhere", "seed": 1}, "the layer")


def test_memory_that_is_returned_does_not_count_as_extra():
    peak = memory.Peak(before=100, peak=150, method="none")
    assert peak.beyond("bytes", [torch.zeros(2), torch.zeros(3)])["extra_bytes"] == 30
    assert peak.beyond("bytes", [torch.zeros(99)]) == {"bytes": 396, "extra_bytes": 0, "memory_method": "none"}


@pytest.mark.slow
def test_memory_of_the_layer_does_not_hold_its_input():
    # Long enough that what a library keeps for itself (7 MB with oneDNN) is little beside it.
    sizes = in_child(scale.extra_memory, {"T": 100_000, "H": 64, "device": "cpu", "seed": 1}, "the layer")
    assert sizes["input_bytes"] == 4 * 100_000 * 64
    assert 0 <= sizes["extra_bytes"] < sizes["input_bytes"] / 2


@pytest.mark.slow
@pytest.mark.full
def test_memory_of_the_softmax_grows_with_its_chunks():
    """Sizes at which everything else is small: 32 MB of logits, in all or an eighth of them at once."""
    sizes = {"rows": 800, "vocabulary": 10_000, "hidden": 8, "device": "cpu", "seed": 1}

    def extra(logits):
        return in_child(softmax.extra_memory, {**sizes, "logits": logits}, "the softmax")

    few, plain = extra(1_000_000), extra(None)
    assert few["extra_bytes"] < 20 * MB
    assert plain["extra_bytes"] > 55 * MB  # logits and their log-softmax
    assert few["gradient_bytes"] == plain["gradient_bytes"] == 4 * (800 * 8 + 10_000 * 8 + 10_000)


@pytest.mark.slow
@pytest.mark.full
def test_memory_of_training_holds_weights_gradients_and_optimizer():
    overrides = ["hidden_size=512", "embedding_size=512", "batch_size=2", "length=4", "zoneout=0.1"]
    arguments = {
        "task_name": "language-model",
        "cell": "lstm",
        "request": {"preset": "demo", "overrides": overrides},
        "steps": 2,
        "device": "cpu",
    }
    sizes = in_child(task.training_memory, arguments, "training")
    assert sizes["weight_bytes"] > 16 * MB
    # AdamW: weights, gradients and two averages.
    assert 3.9 * sizes["weight_bytes"] < sizes["training_bytes"] < 8 * sizes["weight_bytes"]
    assert sizes["process_bytes"] > sizes["training_bytes"] + 100 * MB
