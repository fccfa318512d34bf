"""torch's random state: saved in checkpoints, checked on the way back, and preserved around code that may draw."""

import contextlib
import struct
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

CPU, CUDA = "random.cpu", "random.cuda"
# Words in the state of a Mersenne Twister (mt19937), torch's generator on the CPU.
WORDS = 624


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a model on `device` draws from."""
    states = {CPU: torch.get_rng_state()}
    if device.type == "cuda":
        states[CUDA] = torch.cuda.get_rng_state(device)
    return states


def set_random_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[CPU])
    # A run may move from CPU to GPU; it then continues with the GPU's own state.
    if device.type == "cuda" and CUDA in states:
        torch.cuda.set_rng_state(states[CUDA], device)


def check_random_state(states: Mapping[str, Tensor]) -> None:
    """ValueError unless these are states that torch's generators can safely continue from."""
    if not {CPU} <= states.keys() <= {CPU, CUDA}:
        raise ValueError(f"the random state must be {CPU} and, from a GPU, {CUDA}")
    for name, size in ((CPU, torch.get_rng_state().numel()), (CUDA, 16)):
        state = states.get(name)
        if state is not None and (state.dtype != torch.uint8 or state.shape != (size,)):
            raise ValueError(f"{name} must be {size} bytes, got shape {list(state.shape)} of {state.dtype}")
    # The state begins with seed (8 bytes), left, seeded (4 each), next (8). torch reads `left - 1` words from number
    # `next` on before it makes new ones, and does not check that there are so many.
    left, seeded, following = struct.unpack_from("=iiQ", bytes(states[CPU].tolist()), 8)
    if not (seeded == 1 and 1 <= left <= WORDS and following + left <= WORDS + 1):
        raise ValueError(f"{CPU} is not the state of a random generator")
    try:
        torch.Generator().set_state(states[CPU])
    except RuntimeError as error:
        raise ValueError(f"{CPU} is not the state of a random generator") from error
    # The offset into a GPU's stream of random numbers, which come in fours.
    if CUDA in states and struct.unpack_from("=q", bytes(states[CUDA].tolist()), 8)[0] % 4:
        raise ValueError(f"{CUDA} is not the state of a random generator")


@contextlib.contextmanager
def preserve_rng_state(device: torch.device) -> Iterator[None]:
    """Whatever is drawn inside, the random state afterwards is the one from before."""
    states = random_state(device)
    try:
        yield
    finally:
        set_random_state(states, device)


def seed_process(seed: int, rank: int) -> None:
    """Seed the generators: a different stream for every process, and not the one that drew the initial weights."""
    torch.manual_seed((seed * 1_000_003 + rank + 1) % 2**63)
