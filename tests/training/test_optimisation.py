"""Optimizers and schedules do what the paper's numbers say, worked by hand."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from quasirnn.training.optimisation import (
    Moment,
    adam,
    adamw,
    add_l2,
    constant,
    hold_then_decay,
    rmsprop,
    sgd,
    warm_up_cosine,
)


def moment(step=0, epoch=0, total_steps=100):
    return Moment(step, epoch, steps_per_epoch=10, total_steps=total_steps)


class Weights(nn.Module):
    """One matrix and one vector, all weights 2, all gradients 0.5."""

    def __init__(self):
        super().__init__()
        self.matrix, self.vector = nn.Parameter(torch.full((2, 2), 2.0)), nn.Parameter(torch.full((2,), 2.0))
        for p in self.parameters():
            p.grad = torch.full_like(p, 0.5)


def after_a_step(optimizer, model):
    optimizer.step()
    return model.matrix[0, 0].item(), model.vector[0].item()


def test_sgd():
    model = Weights()
    assert after_a_step(sgd(model, 0.1), model) == pytest.approx((1.95, 1.95))
    # No momentum: the second step is as long as the first.
    assert after_a_step(sgd(model, 0.1), model) == pytest.approx((1.90, 1.90))


def test_rmsprop_has_the_values_of_section_3_1():
    model = Weights()
    step = 1e-3 * 0.5 / (math.sqrt(0.1 * 0.25) + 1e-8)
    assert after_a_step(rmsprop(model), model) == pytest.approx((2 - step, 2 - step))


def test_adam_has_the_values_of_section_3_3():
    model = Weights()
    optimizer = adam(model)
    assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.9, 0.999), 1e-8)
    assert after_a_step(optimizer, model) == pytest.approx((1.999, 1.999))


@pytest.mark.parametrize(("matrices_only", "vector"), [(True, 1.9), (False, 1.88)])
def test_adamw_decays_matrices(matrices_only, vector):
    model = Weights()
    optimizer = adamw(model, learning_rate=0.1, weight_decay=0.1, matrices_only=matrices_only)
    assert after_a_step(optimizer, model) == pytest.approx((2 - 0.1 * 0.1 * 2 - 0.1, vector))


def test_l2_is_coupled_and_on_every_parameter():
    model = Weights()
    model.frozen = nn.Parameter(torch.ones(1))
    add_l2(model.parameters(), 0.25)
    assert model.matrix.grad.unique().tolist() == model.vector.grad.unique().tolist() == [0.5 + 0.25 * 2]
    assert model.frozen.grad is None


def test_constant():
    assert {constant()(moment(step, step // 10)) for step in range(100)} == {1.0}


def test_hold_then_decay_is_that_of_section_3_2():
    """One for six epochs, then times 0.95 for each that follows, 72 in all."""
    rates = [hold_then_decay(6, 0.95)(moment(epoch=epoch)) for epoch in range(72)]
    assert rates[:8] == [1.0] * 6 + [0.95, 0.95**2]
    assert rates[-1] == pytest.approx(0.95**66)


def test_warm_up_cosine_rises_in_a_line_and_falls_to_its_share():
    rates = [warm_up_cosine(10, 0.1)(moment(step)) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(0.1)
    # A run whose end has moved nearer stays at the share.
    assert warm_up_cosine(10, 0.1)(moment(step=50, total_steps=20)) == pytest.approx(0.1)
    assert warm_up_cosine(0)(moment(step=0, total_steps=1)) == 1.0
