"""Sequence classifier: embedding, densely connected recurrent layers, one label a sequence (paper, section 3.1)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.models.pretrained import Pretrained
from quasirnn.models.recurrent import Cell, State, recurrent
from quasirnn.nn import QRNN
from quasirnn.ops import checks


class Reading(NamedTuple):
    """Where a classifier stands in sequences that it reads piece by piece."""

    state: State  # of the layers
    total: Tensor  # sum of the last layer's outputs so far, (B, H)
    count: int  # steps read


class SequenceClassifier(Pretrained):
    """Tells the class of a sequence from the mean of the last layer's outputs.

        x = dropout(embedding(tokens))     h = rnn(x)     p(class) = softmax(W mean_t h[t] + b)

    Args:
        vocabulary_size: V.
        num_classes: of which one is right.
        hidden_size, num_layers: H and L of the recurrent layers.
        embedding_size: of the word vectors.
        cell: "qrnn", or "lstm" for the same model on LSTM layers.
        kernel_size, pooling, zoneout: of the QRNN; not for an LSTM.
        dropout: on the embeddings and between layers.
        dense: every layer sees the word vectors and the outputs of all layers before it.
        padding: the token that fills short rows up; its vector is zero. None if there is none.

    Inputs: `tokens`, (T, B), int64; `lengths`, (B,), each row's own length. What stands behind it is never looked at.
    Outputs: logits (B, C), or, with `labels` (B,), the summed loss in nats.

    The mean can be kept up word by word, so the class is known after each word at constant cost: `read`.

    >>> model = SequenceClassifier(100, 2, hidden_size=8, num_layers=2, embedding_size=4)
    >>> model(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])).shape
    torch.Size([2, 2])

    Differs from the paper: the mean over time, and that nothing stands between it and the softmax, are not said there
    and are ours.
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_classes: int,
        *,
        hidden_size: int = 256,
        num_layers: int = 4,
        embedding_size: int = 100,
        cell: Cell = "qrnn",
        kernel_size: int | Sequence[int] | None = None,
        pooling: str | None = None,
        zoneout: float | None = None,
        dropout: float = 0.0,
        dense: bool = True,
        padding: int | None = 0,
    ) -> None:
        super().__init__()
        self.remember(
            vocabulary_size=vocabulary_size,
            num_classes=num_classes,
            hidden_size=hidden_size,
            num_layers=num_layers,
            embedding_size=embedding_size,
            cell=cell,
            kernel_size=list(kernel_size) if isinstance(kernel_size, Sequence) else kernel_size,
            pooling=pooling,
            zoneout=zoneout,
            dropout=dropout,
            dense=dense,
            padding=padding,
        )
        sizes = {"hidden_size": hidden_size, "num_layers": num_layers, "embedding_size": embedding_size}
        for name, size in sizes.items():
            checks.at_least_one("SequenceClassifier", name, size)
        if num_classes < 2:
            raise ValueError(f"SequenceClassifier: num_classes must be at least 2, got {num_classes}.")
        if padding is not None and not 0 <= padding < vocabulary_size:
            raise ValueError(
                f"SequenceClassifier: padding must be one of the {vocabulary_size} tokens, 0 to {vocabulary_size - 1}, "
                f"or None, got {padding}."
            )
        self.dropout = checks.probability("SequenceClassifier", "dropout", dropout)
        self.embedding = nn.Embedding(vocabulary_size, embedding_size, padding_idx=padding)
        self.rnn = recurrent(
            cell,
            embedding_size,
            hidden_size,
            num_layers,
            dropout=dropout,
            dense=dense,
            kernel_size=kernel_size,
            pooling=pooling,
            zoneout=zoneout,
        )
        self.output = nn.Linear(hidden_size, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor, labels: Tensor | None = None) -> Tensor:
        x = functional.dropout(self.embedding(tokens), self.dropout, self.training)
        if isinstance(self.rnn, QRNN):
            h, _ = self.rnn(x, lengths=lengths)
        else:
            lengths = checks.lengths("SequenceClassifier", lengths, *tokens.shape, x.device)
            behind = (torch.arange(len(tokens), device=x.device)[:, None] >= lengths)[..., None]
            # Causal: what comes behind a row's end cannot reach back, and has to be left out of the mean; of the input
            # too, as a NaN there times a gradient of zero would be one in the weights' gradients.
            h, _ = self.rnn(x.masked_fill(behind, 0.0))
            h = h.masked_fill(behind, 0.0)
        mean = h.sum(0, dtype=_sum_type(h)) / lengths.to(h.device)[:, None]
        logits = self.output(mean)
        if labels is None:
            return logits
        return functional.cross_entropy(logits, labels, reduction="sum")

    @torch.no_grad()
    def read(self, tokens: Tensor, reading: Reading | None = None) -> tuple[Tensor, Reading]:
        """The logits after every step, (T, B, C), of sequences that go on: pass the reading back with what follows.

        In eval mode the last of them are what `forward` gives for the whole sequences.
        """
        h, state = self.rnn(self.embedding(tokens), None if reading is None else reading.state)
        before = 0 if reading is None else reading.count
        total = h.cumsum(0, dtype=_sum_type(h))
        if reading is not None:
            total = total + reading.total
        count = torch.arange(before + 1, before + len(tokens) + 1, device=h.device)
        logits = self.output(total / count[:, None, None])
        return logits, Reading(state, total[-1], before + len(tokens))

    @torch.no_grad()
    def inspect(self, tokens: Tensor) -> dict[str, dict[str, Tensor]]:
        """Gates and cells of every layer by name, as of `QRNN.inspect`: ["l3"]["f"] is (T, B, H)."""
        if not isinstance(self.rnn, QRNN):
            raise ValueError("SequenceClassifier.inspect: only a QRNN's gates can be shown; this model has an LSTM.")
        return self.rnn.inspect(self.embedding(tokens))


def _sum_type(h: Tensor) -> torch.dtype:
    """Half the bits are too few for a sum over many words."""
    return torch.promote_types(h.dtype, torch.float32)
