"""Forecast a time series with a QRNN and with an LSTM with as many units, trained in the same way.

The series is synthetic and hourly: daily and weekly seasonality, a slow drift, and noise. Each model reads two weeks
and predicts the next day. The baseline repeats the same hours of the week before.

    python examples/forecast.py [--steps 200]
"""

import argparse
import math
import time

import torch
from torch import Tensor, nn

from quasirnn import QRNN

READ, AHEAD, WEEK = 14 * 24, 24, 7 * 24  # hours


class Forecaster(nn.Module):
    """Predicts the difference from the same hours of the week before."""

    def __init__(self, rnn: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.rnn = rnn
        self.output = nn.Linear(hidden_size, AHEAD)

    def forward(self, series: Tensor) -> Tensor:
        """(T, B, 1) to (B, AHEAD)."""
        h, _ = self.rnn(series)
        return week_ago(series) + self.output(h[-1])


def week_ago(series: Tensor) -> Tensor:
    return series[READ - WEEK : READ - WEEK + AHEAD, :, 0].T


def draw(batch: int) -> tuple[Tensor, Tensor]:
    """Input, (READ, batch, 1), and target, (batch, AHEAD)."""
    hours = torch.arange(READ + AHEAD)[:, None] + torch.randint(0, WEEK, (batch,))
    day, week = 2 * math.pi * hours / 24, 2 * math.pi * hours / WEEK
    sizes = 0.5 + torch.rand(3, batch)
    drift = torch.cumsum(0.02 * torch.randn(READ + AHEAD, batch), 0)
    series = sizes[0] * torch.sin(day) + sizes[1] * torch.cos(2 * day) * 0.5 + sizes[2] * torch.sin(week) + drift
    series = series + 0.1 * torch.randn_like(series)
    return series[:READ, :, None], series[READ:].T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    hidden_size = 64
    print(f"{'':12}{'error':>8}{'seconds':>9}")
    layers = {
        "LSTM": lambda: nn.LSTM(1, hidden_size, num_layers=2),
        # The window of the first layer covers a day.
        "QRNN": lambda: QRNN(1, hidden_size, num_layers=2, kernel_size=(24, 2)),
    }
    for name, layer in layers.items():
        torch.manual_seed(1)
        model = Forecaster(layer(), hidden_size)
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        start = time.perf_counter()
        for _ in range(steps):
            series, target = draw(32)
            loss = (model(series) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        seconds = time.perf_counter() - start
        torch.manual_seed(2)
        series, target = draw(500)
        with torch.no_grad():
            error = (model.eval()(series) - target).square().mean().sqrt()
        print(f"{name:12}{error:8.3f}{seconds:9.1f}")
    print(f"{'a week ago':12}{(week_ago(series) - target).square().mean().sqrt():8.3f}")


if __name__ == "__main__":
    main()
