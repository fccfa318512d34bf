"""The schedules of the paper's experiments, worked by hand."""

from itertools import pairwise

import pytest

from quasirnn.training.update import StepInfo, constant, hold_then_decay, warm_up_cosine


def info(step=0, epoch=0, total_steps=100):
    return StepInfo(step, epoch, steps_per_epoch=10, total_steps=total_steps)


def test_constant():
    assert {constant()(info(step, step // 10)) for step in range(100)} == {1.0}


def test_hold_then_decay_is_that_of_section_3_2():
    """One for six epochs, then times 0.95 for each that follows, 72 in all."""
    rates = [hold_then_decay(6, 0.95)(info(epoch=epoch)) for epoch in range(72)]
    assert rates[:8] == [1.0] * 6 + [0.95, 0.95**2]
    assert rates[-1] == pytest.approx(0.95**66)


def test_warm_up_cosine_rises_in_a_line_and_falls_to_its_share():
    rates = [warm_up_cosine(10, 0.1)(info(step)) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(0.1)
    # A run whose end has moved nearer stays at the share.
    assert warm_up_cosine(10, 0.1)(info(step=50, total_steps=20)) == pytest.approx(0.1)
    assert warm_up_cosine(0)(info(step=0, total_steps=1)) == 1.0
