"""Replace `nn.LSTM` with `QRNN` in a tagger, by changing one line.

The task needs memory: does a closing bracket follow later in the text? Only a backward direction can know, so the layer
is bidirectional.

    python examples/swap_lstm.py [--steps 300]
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quasirnn import QRNN

SYMBOLS = "()abc "


class Tagger(nn.Module):
    def __init__(self, layer: type[nn.Module], hidden_size: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(SYMBOLS), 16)
        self.rnn = layer(16, hidden_size, num_layers=2, batch_first=True, bidirectional=True)  # nn.LSTM or QRNN
        self.tag = nn.Linear(2 * hidden_size, 2)

    def forward(self, symbols: Tensor) -> Tensor:
        output, (_h_n, _c_n) = self.rnn(self.embedding(symbols))  # (B, T, 2 * hidden_size)
        return self.tag(output)  # (B, T, 2)


def batch_of_texts(rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random symbols, and for each of them whether a closing bracket follows."""
    weights = torch.tensor([1.0, 0.3, 3.0, 3.0, 3.0, 3.0])
    symbols = torch.multinomial(weights, rows * length, replacement=True, generator=generator).view(rows, length)
    closing = (symbols == SYMBOLS.index(")")).long()
    after = closing.flip(1).cumsum(1).flip(1) - closing
    return symbols, (after > 0).long()


def train(layer: type[nn.Module], steps: int) -> float:
    """Train a tagger and return its accuracy on new texts."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = Tagger(layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        symbols, tags = batch_of_texts(32, 30, generator)
        loss = F.cross_entropy(model(symbols).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        symbols, tags = batch_of_texts(500, 30, generator)
        return (model(symbols).argmax(-1) == tags).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    for layer in (nn.LSTM, QRNN):
        print(f"{layer.__name__:5} accuracy {train(layer, steps):.1%} after {steps} steps")


if __name__ == "__main__":
    main()
