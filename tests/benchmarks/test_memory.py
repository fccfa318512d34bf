"""Peak memory: what is made is seen, in this process and in those that measure."""

import json

import pytest
import torch

from quasirnn.benchmarks import memory
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


def test_a_program_that_fails_gives_its_last_line():
    with pytest.raises(MeasurementFailed, match=r"measuring the sea failed: .*No module named nowhere"):
        in_child("nowhere", [], "the sea")


@pytest.mark.slow
def test_memory_of_the_softmax_grows_with_its_chunks():
    """Sizes at which everything else is small: 32 MB of logits, in all or an eighth of them at once."""
    asked = {"rows": 800, "vocabulary": 10_000, "hidden": 8, "precision": "float32"}
    asked |= {"threads": 1, "device": "cpu", "seed": 1}

    def extra(numbers):
        return in_child("quasirnn.benchmarks.softmax_memory", [json.dumps(asked | {"numbers": numbers})], "it")

    few, plain = extra(1_000_000), extra(None)
    assert few["extra_bytes"] < 20 * MB
    assert plain["extra_bytes"] > 55 * MB  # logits and their log-softmax
    assert few["gradient_bytes"] == plain["gradient_bytes"] == 4 * (800 * 8 + 10_000 * 8 + 10_000)


@pytest.mark.slow
def test_memory_of_training_holds_weights_gradients_and_optimizer():
    asked = {
        "task": "language-model",
        "data": [],
        "preset": "demo",
        "cell": "lstm",
        "overrides": ["hidden_size=512", "embedding_size=512", "batch_size=2", "length=4", "zoneout=0.1"],
        "options": {},
        "steps": 2,
        "device": "cpu",
        "threads": 1,
    }
    found = in_child("quasirnn.benchmarks.task_memory", [json.dumps(asked)], "it")
    assert found["weight_bytes"] > 16 * MB
    # AdamW: weights, gradients and two averages.
    assert 3.9 * found["weight_bytes"] < found["training_bytes"] < 8 * found["weight_bytes"]
    assert found["process_bytes"] > found["training_bytes"] + 100 * MB
