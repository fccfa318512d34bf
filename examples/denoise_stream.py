"""Denoise audio as it arrives: a causal QRNN cleans each frame of 10 ms before the next one arrives.

The audio is synthetic: notes with overtones, plus white noise. The network is trained for a few seconds. Then a minute
of audio is streamed through it frame by frame, as from a microphone; the state is passed from one frame to the next.
The real-time factor is the processing time divided by the duration of the audio.

    python examples/denoise_stream.py [--steps 150] [--seconds 60]
"""

import argparse
import math
import time

import torch
from torch import Tensor, nn

from quasirnn import QRNN

RATE, FRAME = 16_000, 160  # samples per second and per frame


class Denoiser(nn.Module):
    """Denoises frames: learns which share of each frequency to keep, between 0 and 1."""

    def __init__(self, hidden_size: int = 128) -> None:
        super().__init__()
        n = torch.arange(FRAME)
        waves = torch.cos(math.pi / FRAME * (n + 0.5) * n[:, None]) * math.sqrt(2 / FRAME)
        waves[0] /= math.sqrt(2)
        self.register_buffer("waves", waves)  # the discrete cosine transform; its inverse is its transpose
        self.rnn = QRNN(FRAME, hidden_size, num_layers=2)
        self.keep = nn.Linear(hidden_size, FRAME)

    def forward(self, frames: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple]:
        spectrum = frames @ self.waves.T
        h, state = self.rnn((spectrum.abs() + 1e-3).log(), state)
        return (torch.sigmoid(self.keep(h)) * spectrum) @ self.waves, state


def notes(frames: int, batch: int) -> Tensor:
    """Clean audio, (frames, batch, FRAME): a new note every 0.25 s, each with three overtones that fade."""
    t = torch.arange(frames * FRAME) / RATE
    begins = t - t % 0.25
    pitch = 110 * 2 ** (torch.randint(0, 36, (batch, int(t[-1] / 0.25) + 1)) / 12)
    frequency = pitch[:, (begins / 0.25).long()]
    wave = sum(torch.sin(2 * math.pi * n * frequency * t) / n for n in range(1, 5))
    return (0.2 * wave * torch.exp(-6 * (t - begins))).view(batch, frames, FRAME).transpose(0, 1)


def noisy(clean: Tensor) -> Tensor:
    return clean + 0.1 * torch.randn_like(clean)


def decibels(clean: Tensor, heard: Tensor) -> float:
    """Signal-to-noise ratio."""
    return float(10 * torch.log10(clean.square().mean() / (heard - clean).square().mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150, help="training steps")
    parser.add_argument("--seconds", type=int, default=60, help="seconds of audio to stream")
    options = parser.parse_args()
    torch.manual_seed(1)

    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(options.steps):
        clean = notes(100, batch=16)
        cleaned, _ = model(noisy(clean))
        loss = (cleaned - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    clean = notes(options.seconds * RATE // FRAME, batch=1)
    heard = noisy(clean)
    pieces, state = [], None
    with torch.no_grad():
        start = time.perf_counter()
        for frame in heard.split(1):
            piece, state = model(frame, state)
            pieces.append(piece)
        seconds = time.perf_counter() - start
        whole, _ = model(heard)
    streamed = torch.cat(pieces)
    torch.testing.assert_close(streamed, whole, rtol=0, atol=1e-5)
    print(f"signal-to-noise ratio: {decibels(clean, heard):.1f} dB before, {decibels(clean, streamed):.1f} dB after")
    print(
        f"streamed frame by frame: same output as the whole sequence, real-time factor {seconds / options.seconds:.4f}"
    )


if __name__ == "__main__":
    main()
