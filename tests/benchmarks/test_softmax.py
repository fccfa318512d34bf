"""The loss over a vocabulary: what is timed, that it agrees, and the summary."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from benchmarks.tiny import PLANS
from quasirnn.benchmarks import softmax
from quasirnn.benchmarks.correctness import WrongNumbers
from quasirnn.benchmarks.result import Setting
from quasirnn.models import linear_cross_entropy as chunked

PLAN = replace(PLANS["softmax"][1], chunks=(40, 120))


def test_methods_go_from_a_row_to_all_rows(monkeypatch):
    plan = replace(softmax.FULL, rows=2100, vocabulary=10_000)
    assert list(softmax.methods(plan).values()) == [None, *(int(n * 1e6) for n in (0.5, 1, 2, 4, 6, 8, 16)), 21_000_000]
    # Less than a row would be a row, more than all rows all of them.
    assert list(softmax.methods(replace(plan, vocabulary=1_500_000, rows=5)).values()) == [
        None,
        2_000_000,
        4_000_000,
        6_000_000,
        7_500_000,
    ]
    monkeypatch.setattr(chunked, "CHUNK_NUMBERS", 3_000_000)
    assert 3_000_000 in softmax.methods(plan).values()
    assert softmax.default_method(plan) == "chunks of 3 million"
    assert softmax.default_method(PLAN) == softmax.WHOLE


def test_every_method_agrees_in_chunks_of_any_size():
    checks = softmax.check_methods(PLAN, Setting())
    assert len(checks) == 4
    assert all(check.ok for check in checks), checks


def test_a_wrong_method_is_not_timed(monkeypatch):
    correct = chunked.linear_cross_entropy
    # Correct for the loss, wrong for a gradient, and in chunks of one size only.
    monkeypatch.setattr(
        chunked,
        "linear_cross_entropy",
        lambda h, *others: correct(h * (1 + 1e-4) - h.detach() * 1e-4 if chunked.CHUNK_NUMBERS == 120 else h, *others),
    )
    with pytest.raises(WrongNumbers, match=r"gradient of h .chunks of 0.00012 million. has an error of"):
        softmax.run(PLAN, Setting())


def test_a_pass_leaves_the_default_alone_and_never_holds_more_logits_than_told(monkeypatch):
    seen = []
    real = chunked.softmax_loss_
    monkeypatch.setattr(
        chunked, "softmax_loss_", lambda logits, *more: seen.append(logits.shape) or real(logits, *more)
    )
    inputs = softmax.make_inputs(PLAN, Setting())
    monkeypatch.setattr(chunked, "CHUNK_NUMBERS", 5)
    loss, *gradients = softmax.loss_pass(120, inputs)()
    assert chunked.CHUNK_NUMBERS == 5
    assert seen == [(10, 11), (10, 11)]
    h, weight, bias, targets = inputs
    torch.testing.assert_close(loss, F.cross_entropy(h @ weight.T + bias, targets, reduction="sum"))
    assert [each.shape for each in gradients] == [h.shape, weight.shape, bias.shape]


def test_the_summary_names_the_default_and_the_fastest():
    cells = [
        {"method": "plain", "default": False, "ratio": 2.0, "extra_bytes": 9e6},
        {"method": "chunks of 1 million", "default": False, "ratio": 1.2, "extra_bytes": 1e6},
        {"method": "chunks of 4 million", "default": True, "ratio": 1.6, "extra_bytes": 3e6},
        {"method": "bare products", "default": False, "ratio": 1.0},
    ]
    assert {figure.what: round(figure.value, 6) for figure in softmax.summarise(cells)} == {
        "time, default (chunks of 4 million) / bare products": 1.6,
        "time, plain / bare products": 2.0,
        "time, fastest (chunks of 1 million) / bare products": 1.2,
        "time, plain / default": 1.25,
        "extra memory, default": 3.0,
        "extra memory, plain": 9.0,
    }
