"""A typical word-level language model written for nn.LSTM, with one line changed.

The text is divided into batch columns, the state is detached and passed from window to window, gradients are clipped,
and the learning rate of SGD falls when validation stops improving. --cell LSTM runs the original line.

    python examples/word_language_model.py [TEXT FILE] [--epochs 3] [--cell QRNN]

Without a file it reads the reference topics that are part of every Python installation.
"""

import argparse
import math
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

from quasirnn import QRNN


class LanguageModel(nn.Module):
    def __init__(self, cell: str, words: int, size: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(words, size)
        layer = {"QRNN": QRNN, "LSTM": nn.LSTM}[cell]
        self.rnn = layer(size, size, layers, dropout=dropout)  # was: nn.LSTM(size, size, layers, dropout=dropout)
        self.decoder = nn.Linear(size, words)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words: Tensor, hidden: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return self.decoder(self.drop(output)), hidden


def read(file: Path | None) -> list[str]:
    if file is not None:
        return file.read_text(encoding="utf-8").replace("\n", " <eos> ").split()
    from pydoc_data.topics import topics

    return " ".join(topics[name] for name in sorted(topics)).replace("\n", " <eos> ").split()


def columns(words: Tensor, batch: int) -> Tensor:
    """(T, batch): each column is a contiguous part of the text."""
    return words[: len(words) // batch * batch].view(batch, -1).T.contiguous()


def run(model: LanguageModel, text: Tensor, length: int, optimizer: torch.optim.Optimizer | None) -> float:
    """Run over a text once and return the mean loss. If an optimizer is given, train on it."""
    model.train(optimizer is not None)
    total, hidden = 0.0, None
    for start in range(0, len(text) - 1, length):
        window, target = text[start : start + length][: len(text) - 1 - start], text[start + 1 : start + 1 + length]
        with torch.set_grad_enabled(optimizer is not None):
            logits, hidden = model(window, hidden)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        hidden = tuple(part.detach() for part in hidden)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
        total += loss.item() * len(window)
    return total / (len(text) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cell", choices=["QRNN", "LSTM"], default="QRNN")
    parser.add_argument("--words", type=int, default=100_000_000, help="maximum number of words to read")
    options = parser.parse_args()
    torch.manual_seed(1)

    text = read(options.text)[: options.words]
    known = {word: n for n, (word, _) in enumerate(Counter(text).most_common(5_000))}
    known["<unk>"] = len(known)
    ids = torch.tensor([known.get(word, known["<unk>"]) for word in text])
    cut = len(ids) * 9 // 10
    train, valid = columns(ids[:cut], 20), columns(ids[cut:], 10)
    model = LanguageModel(options.cell, len(known), 200, 2, 0.2)
    rate, best = 20.0, math.inf
    for epoch in range(1, options.epochs + 1):
        run(model, train, 35, torch.optim.SGD(model.parameters(), rate))
        loss = run(model, valid, 35, None)
        rate, best = (rate, loss) if loss < best else (rate / 4, best)
        print(f"{options.cell}, epoch {epoch}: validation perplexity {math.exp(loss):.1f}")


if __name__ == "__main__":
    main()
