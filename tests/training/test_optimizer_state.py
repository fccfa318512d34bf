"""An optimizer taken apart, written as JSON and tensors and put together again goes on with the same bits."""

import json

import pytest
import torch
from torch import nn

from quasirnn.training.optimisation import adam, adamw, rmsprop, sgd
from quasirnn.training.optimizer_state import put_together, take_apart

OPTIMIZERS = {
    "sgd": lambda model: sgd(model, 0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "rmsprop": rmsprop,
    "centered": lambda model: torch.optim.RMSprop(model.parameters(), centered=True, momentum=0.5),
    "adam": adam,
    "amsgrad": lambda model: torch.optim.Adam(model.parameters(), amsgrad=True),
    "adamw": adamw,
}


def steps(model, optimizer, seeds):
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_goes_on_with_the_same_bits(name):
    model = nn.Linear(3, 2)
    optimizer = OPTIMIZERS[name](model)
    steps(model, optimizer, [1, 2])
    copy = nn.Linear(3, 2)
    copy.load_state_dict(model.state_dict())
    tensors, rest = take_apart(optimizer)
    other = OPTIMIZERS[name](copy)
    put_together(other, {key: tensor.clone() for key, tensor in tensors.items()}, json.loads(json.dumps(rest)))
    assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]

    for each, its in ((model, optimizer), (copy, other)):
        steps(each, its, [3, 4])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copy.parameters(), strict=True))
    mine, others = take_apart(optimizer)[0], take_apart(other)[0]
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[key], others[key]) and mine[key].dtype == others[key].dtype for key in mine)


def test_before_the_first_step_there_are_no_tensors():
    assert take_apart(adam(nn.Linear(3, 2)))[0] == {}


@pytest.mark.parametrize(("stored", "mine"), [("sgd", "adam"), ("adam", "adamw")])
def test_the_state_of_another_optimizer_is_refused(stored, mine):
    tensors, rest = take_apart(OPTIMIZERS[stored](nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="its optimizer is another one, or has other parameters"):
        put_together(OPTIMIZERS[mine](nn.Linear(3, 2)), tensors, rest)
