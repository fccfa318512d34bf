"""torch's random state: kept in checkpoints, and shielded from whatever must not move it."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a model on `device` draws from."""
    states = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["random.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_state(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["random.cpu"])
    # A run may move to another kind of device; it then goes on with that one's own state.
    if device.type == "cuda" and "random.cuda" in states:
        torch.cuda.set_rng_state(states["random.cuda"], device)


@contextlib.contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Whatever is drawn inside, the random state afterwards is the one from before."""
    states = random_state(device)
    try:
        yield
    finally:
        restore_random_state(states, device)


def seed_process(seed: int, rank: int) -> None:
    """Start the generators: another stream for every process, and not the one that drew the initial weights."""
    torch.manual_seed((seed * 1_000_003 + rank + 1) % 2**63)
