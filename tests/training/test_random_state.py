"""The random state: preserved, restored, and never taken from a file as it comes."""

import struct

import pytest
import torch

from quasirnn.training.checkpoint import check_random_state, preserve_rng_state, random_state, set_random_state

CPU = torch.device("cpu")


def test_what_is_drawn_inside_does_not_matter():
    before = torch.get_rng_state()
    with preserve_rng_state(CPU):
        torch.rand(1000)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("drawn", [0, 1, 2, 311, 312, 313, 623, 624, 625, 5000])
def test_every_state_that_torch_makes_is_accepted(drawn):
    torch.manual_seed(3)
    torch.rand(drawn)
    torch.randn(3)
    states = random_state(CPU)
    check_random_state(states)
    expected = torch.rand(700)
    set_random_state(states, CPU)
    assert torch.equal(torch.rand(700), expected)


def with_bytes(offset, form, value):
    state = bytearray(torch.get_rng_state().tolist())
    struct.pack_into(form, state, offset, value)
    return {"random.cpu": torch.tensor(list(state), dtype=torch.uint8)}


def reading_past_the_end():
    """624 words left, from the last one on: torch itself accepts it."""
    state = bytearray(torch.get_rng_state().tolist())
    struct.pack_into("=iiQ", state, 8, 624, 1, 624)
    state = torch.tensor(list(state), dtype=torch.uint8)
    torch.Generator().set_state(state)
    return {"random.cpu": state}


GOOD = torch.get_rng_state()
CRAFTED = {
    "nothing": ({}, "must be random.cpu and"),
    "another name": ({"random.cpu": GOOD, "random.tpu": GOOD}, "must be random.cpu and"),
    "too short": ({"random.cpu": GOOD[:-1]}, "random.cpu must be 5056 bytes, got shape"),
    "another type": ({"random.cpu": GOOD.float()}, r"random.cpu must be .* of torch.float32"),
    "another shape": ({"random.cpu": GOOD[None]}, r"random.cpu must be 5056 bytes, got shape \[1, 5056\]"),
    "left 0": (with_bytes(8, "=i", 0), "random.cpu is not the state of a random generator"),
    "left 700": (with_bytes(8, "=i", 700), "random.cpu is not the state of a random generator"),
    "not seeded": (with_bytes(12, "=i", 0), "random.cpu is not the state of a random generator"),
    "past the end": (reading_past_the_end(), "random.cpu is not the state of a random generator"),
    "next huge": (with_bytes(16, "=Q", 2**63), "random.cpu is not the state of a random generator"),
    "a GPU's, too long": ({"random.cpu": GOOD, "random.cuda": GOOD}, "random.cuda must be 16 bytes"),
    "a GPU's, odd": (
        {"random.cpu": GOOD, "random.cuda": torch.tensor([0] * 8 + [1] + [0] * 7, dtype=torch.uint8)},
        "random.cuda is not the state",
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_guarantee_model_files_random_state_is_checked(name):
    states, reason = CRAFTED[name]
    with pytest.raises(ValueError, match=reason):
        check_random_state(states)


def test_a_state_of_a_gpu_is_accepted():
    check_random_state({"random.cpu": GOOD, "random.cuda": torch.zeros(16, dtype=torch.uint8)})
