"""Optimizers do what the paper's numbers say, worked by hand, and their state survives a checkpoint bit for bit."""

import json
import math
import re

import pytest
import torch
from torch import nn

from quasirnn.ops import backends
from quasirnn.training.checkpoint import OptimizerValues, from_tensors, to_tensors
from quasirnn.training.update import adam, adamw, add_l2, fused_norm, fused_step, has_fused_step, rmsprop, sgd


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


OPTIMIZERS = {
    "sgd": lambda model: sgd(model, 0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "rmsprop": rmsprop,
    "centered": lambda model: torch.optim.RMSprop(model.parameters(), centered=True, momentum=0.5),
    "adam": adam,
    "amsgrad": lambda model: torch.optim.Adam(model.parameters(), amsgrad=True),
    "adamw": adamw,
}


def stored(optimizer):
    """The state as it comes back from a file."""
    tensors, values = to_tensors(optimizer)
    values = OptimizerValues(**json.loads(json.dumps(values.model_dump())))
    return {key: tensor.clone() for key, tensor in tensors.items()}, values


def steps(model, optimizer, seeds):
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_optimizer_continues_with_the_same_bits(name):
    model = nn.Linear(3, 2)
    optimizer = OPTIMIZERS[name](model)
    steps(model, optimizer, [1, 2])
    copy = nn.Linear(3, 2)
    copy.load_state_dict(model.state_dict())
    other = OPTIMIZERS[name](copy)
    other.load_state_dict(from_tensors(other, *stored(optimizer)))
    assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]

    for each, its in ((model, optimizer), (copy, other)):
        steps(each, its, [3, 4])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copy.parameters(), strict=True))
    mine, others = to_tensors(optimizer)[0], to_tensors(other)[0]
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[key], others[key]) and mine[key].dtype == others[key].dtype for key in mine)


def test_before_the_first_step_there_are_no_tensors():
    assert to_tensors(adam(nn.Linear(3, 2)))[0] == {}


@pytest.mark.parametrize(("saved", "mine"), [("sgd", "adam"), ("adam", "adamw")])
def test_the_state_of_another_optimizer_is_refused(saved, mine):
    with pytest.raises(ValueError, match="its optimizer has another type or other parameters"):
        from_tensors(OPTIMIZERS[mine](nn.Linear(3, 2)), *stored(OPTIMIZERS[saved](nn.Linear(3, 2))))


def test_an_optimizer_whose_state_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match=r"must be one of torch's Adam, AdamW, RMSprop, SGD, got Adagrad"):
        to_tensors(torch.optim.Adagrad(nn.Linear(3, 2).parameters()))


def with_group(**changes):
    return lambda tensors, groups: groups[0].update(changes)


def with_tensor(name, tensor):
    return lambda tensors, groups: tensors.update({name: tensor})


CRAFTED = {
    "parameter 0: exp_avg has the shape [1] in the checkpoint and [2, 3] here": with_tensor("0.exp_avg", torch.ones(1)),
    "0: exp_avg_sq has the type torch.float64 in the": with_tensor("0.exp_avg_sq", torch.ones(2, 3).double()),
    "parameter 1: step has the shape [1] in": with_tensor("1.step", torch.ones(1)),
    "parameter 1: step is nan": with_tensor("1.step", torch.tensor(math.nan)),
    "parameter 1: step is -1.0": with_tensor("1.step", torch.tensor(-1.0)),
    "parameter 0: exp_avg missing": lambda tensors, groups: tensors.pop("0.exp_avg"),
    "unexpected tensors '0.max_exp_avg_sq'": with_tensor("0.max_exp_avg_sq", torch.ones(2, 3)),
    "unexpected tensors '2.step'": with_tensor("2.step", torch.tensor(1.0)),
    "lr must be a number, got True": with_group(lr=True),
    "lr must be a number, got a huge number": with_group(lr=10**400),
    "lr must be at least 0, got -1": with_group(lr=-1),
    "betas is [0.9, 1.0] in the checkpoint and [0.9, 0.999] here": with_group(betas=[0.9, 1.0]),
    "fused is None in the checkpoint and True here": with_group(fused=None),
    "amsgrad is True in the checkpoint and False here": with_group(amsgrad=True),
    "amsgrad is 0 in the checkpoint and False here": with_group(amsgrad=0),
    "another type or other parameters": with_group(params=[1, 0]),
    "another type or other parameters ": with_group(further=1),
}


@pytest.mark.parametrize("reason", CRAFTED)
def test_guarantee_model_files_optimizer_state_is_checked(reason):
    """A fused step reads and writes wherever the state says: each of these would crash or raise."""
    model = nn.Linear(3, 2)
    optimizer = adam(model)
    steps(model, optimizer, [1])
    tensors, values = stored(optimizer)
    CRAFTED[reason](tensors, values.param_groups)
    with pytest.raises(ValueError, match=re.escape(reason.strip())):
        from_tensors(optimizer, tensors, values)


def test_values_where_tensors_are_expected_are_refused():
    optimizer = adam(nn.Linear(3, 2))
    tensors, values = stored(optimizer)
    with pytest.raises(ValueError, match="optimizer: unexpected values '0'"):
        from_tensors(optimizer, tensors, values.model_copy(update={"state": {"0": {"step": 1}}}))


@pytest.mark.skipif(backends.kernels is None, reason="kernels only")
@pytest.mark.parametrize("make", [lambda m: sgd(m, 0.1), rmsprop, adam])
@pytest.mark.parametrize(("l2", "clip"), [(0.0, 1.0), (0.01, 0.25)])
def test_a_fused_step_is_torchs_own(make, l2, clip):
    """Three steps, with a parameter that has no gradient and one of another size in each; and the same state."""

    def trained(fused):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, 3), nn.Linear(300, 70), nn.Linear(2, 2))
        optimizer = make(model)
        assert has_fused_step(optimizer)
        for _ in range(3):
            for p in [*model[0].parameters(), *model[1].parameters()]:
                p.grad = torch.randn_like(p)
            version = model[0].weight._version
            if fused:
                norm = fused_norm(optimizer, l2)
                fused_step(optimizer, l2, clip)
                assert model[0].weight._version > version, "what was computed from it is known to be old"
            else:
                add_l2(model.parameters(), l2)
                norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]).item()
                for p in [*model[0].parameters(), *model[1].parameters()]:
                    p.grad *= clip
                optimizer.step()
        return norm, [p.detach() for p in model.parameters()], to_tensors(optimizer)

    (norm, weights, (state, values)), (norm_2, weights_2, (state_2, values_2)) = trained(True), trained(False)
    assert norm == pytest.approx(norm_2, rel=1e-6)
    torch.testing.assert_close(weights, weights_2)
    torch.testing.assert_close(state, state_2)
    assert values == values_2


def test_what_a_fused_step_does_not_know_is_left_to_torch():
    model = nn.Linear(2, 2)
    assert not has_fused_step(adamw(model))
    assert not has_fused_step(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    assert not has_fused_step(sgd(nn.Linear(2, 2).double(), 0.1))
