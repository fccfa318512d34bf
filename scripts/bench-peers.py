"""Time other recurrent layers against QRNN on this CPU: bench-peers.py [THREADS]

    pip install --no-deps sru minGRU-pytorch

nn.LSTM, nn.GRU, SRU (Lei et al., 2018) and minGRU (Feng et al., 2024), one layer of 320 units in float32, taking turns,
best of several. What is not installed is left out.
"""

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from statistics import geometric_mean

import torch
from torch import Tensor, nn

from quasirnn import QRNN
from quasirnn.benchmarks.passes import MODES, layer_pass, time_passes
from quasirnn.benchmarks.result import Setting
from quasirnn.benchmarks.timing import Budget

H = 320
SHAPES = [(B, T) for B in (1, 8, 32) for T in (32, 256)]


class TimeMajor(nn.Module):
    """minGRU with the arguments and results of the others."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.layer(x.transpose(0, 1)).transpose(0, 1),)


def layers() -> dict[str, Callable[[], nn.Module]]:
    made: dict[str, Callable[[], nn.Module]] = {
        "QRNN": lambda: QRNN(H, H),
        "nn.LSTM": lambda: nn.LSTM(H, H),
        "nn.GRU": lambda: nn.GRU(H, H),
    }
    if find_spec("sru"):
        made["SRU"] = lambda: import_module("sru").SRU(H, H, num_layers=1)
    if find_spec("minGRU_pytorch"):
        made["minGRU"] = lambda: TimeMajor(import_module("minGRU_pytorch").minGRU(H))
    return made


def main() -> None:
    warnings.simplefilter("ignore")  # SRU's about CUDA
    torch.set_num_threads(int(sys.argv[1]) if sys.argv[1:] else 2)
    made = layers()
    print(f"time / QRNN's, {H} units, float32, {torch.get_num_threads()} threads\n")
    print(f"| mode | batch x length | {' | '.join(list(made)[1:])} |\n|---|---|{'---:|' * (len(made) - 1)}")
    for mode in MODES:
        ratios: dict[str, list[float]] = {name: [] for name in list(made)[1:]}
        for B, T in SHAPES:
            torch.manual_seed(1)
            x = torch.randn(T, B, H)
            samples = time_passes(
                {name: layer_pass(make(), x, mode) for name, make in made.items()}, Budget(seconds=1.5), Setting()
            )
            for name, values in ratios.items():
                values.append(samples[name].best / samples["QRNN"].best)
            print(f"| {mode} | {B} x {T} | {' | '.join(f'{values[-1]:.2f}' for values in ratios.values())} |")
        print(f"| {mode} | geometric mean | {' | '.join(f'{geometric_mean(v):.2f}' for v in ratios.values())} |")


if __name__ == "__main__":
    main()
