"""Sequence classifier: embedding, densely connected recurrent layers, one label per sequence (paper, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.models.pretrained import Pretrained
from quasirnn.models.recurrent import Cell, State, drop_words, recurrent
from quasirnn.nn import QRNN
from quasirnn.ops import checks
from quasirnn.ops.autograd import dropout
from quasirnn.ops.sequences import check_lengths, padding_mask

Readout = Literal["mean", "max-mean-last"]


@dataclass(frozen=True, eq=False)
class Reading:
    """The state of a classifier between two pieces of its sequences."""

    state: State  # of the layers
    total: Tensor  # sum of the last layer's outputs so far, (B, H)
    count: int  # steps read
    largest: Tensor | None = None  # maximum of the outputs so far, (B, H), for the readout "max-mean-last"


class SequenceClassifier(Pretrained):
    """Predicts the class of a sequence from the mean of the last layer's outputs.

        x = dropout(embedding(tokens))     h = rnn(x)     p(class) = softmax(W mean_t h[t] + b)

    Args:
        vocabulary_size: V.
        num_classes: C, at least 2.
        hidden_size, num_layers: H and L of the recurrent layers.
        embedding_size: of the word vectors.
        cell: "qrnn", or "lstm" for the same model on LSTM layers.
        kernel_size, pooling, zoneout: of the QRNN; not for an LSTM.
        dropout: on the embeddings and between layers.
        dense: every layer receives the word vectors and the outputs of all layers before it.
        padding: the token that fills up short rows; its vector is zero. None if there is none.
        readout: "mean" over time, or "max-mean-last": the maximum and the mean over time and the output at the end of
            each direction, concatenated.
        word_dropout: probability that a word's vector is zero wherever the word occurs in the batch.
        bidirectional: each layer also reads the sequence from its end, with as many units again. The model then needs
            the whole sequence: `read` is an error.
        adversarial: the training loss is that of word vectors moved against the classifier: along the gradient of the
            loss, by this fraction of the norm of a sequence's vectors (Miyato, Dai and Goodfellow, 2017). A training
            step then takes 1.8 times as long.

    Inputs: `tokens`, (T, B), int64; `lengths`, (B,), each row's own length, T if not given. Tokens past it have no
        effect.
    Outputs: logits (B, C), or, with `labels` (B,), the summed loss in nats.

    The readout can be updated word by word, so the class is available after each word at constant cost: `read`.

    >>> model = SequenceClassifier(100, 2, hidden_size=8, num_layers=2, embedding_size=4)
    >>> model(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])).shape
    torch.Size([2, 2])

    Differs from the paper: it does not specify the readout; the mean over time, with no layer between it and the
    softmax, is ours.
    """

    added = frozenset({"readout", "word_dropout", "bidirectional", "adversarial"})

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
        readout: Readout = "mean",
        word_dropout: float = 0.0,
        bidirectional: bool = False,
        adversarial: float = 0.0,
    ) -> None:
        super().__init__(locals())
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
        if readout not in ("mean", "max-mean-last"):
            raise ValueError(f"SequenceClassifier: readout must be 'mean' or 'max-mean-last', got {readout!r}.")
        if not 0 <= adversarial < 1:
            raise ValueError(f"SequenceClassifier: adversarial must be at least 0 and below 1, got {adversarial}.")
        self.dropout = checks.probability("SequenceClassifier", "dropout", dropout)
        self.word_dropout = checks.probability("SequenceClassifier", "word_dropout", word_dropout)
        self.hidden_size, self.readout, self.bidirectional = hidden_size, readout, bidirectional
        self.adversarial = adversarial
        self.embedding = nn.Embedding(vocabulary_size, embedding_size, padding_idx=padding)
        self.rnn = recurrent(
            cell,
            embedding_size,
            hidden_size,
            num_layers,
            dropout=dropout,
            dense=dense,
            bidirectional=bidirectional,
            kernel_size=kernel_size,
            pooling=pooling,
            zoneout=zoneout,
        )
        features = hidden_size * (2 if bidirectional else 1) * (1 if readout == "mean" else 3)
        self.output = nn.Linear(features, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        x = self.embedding(tokens)
        if labels is None:
            return self._logits(x, tokens, lengths)
        if self.adversarial and self.training and torch.is_grad_enabled():
            x = x + self._perturbation(x.detach(), tokens, lengths, labels)
        return functional.cross_entropy(self._logits(x, tokens, lengths), labels, reduction="sum")

    def _perturbation(self, x: Tensor, tokens: Tensor, lengths: Tensor | None, labels: Tensor) -> Tensor:
        """The step of length `adversarial` * ||x||, for each sequence, that raises the loss fastest."""
        x = x.requires_grad_()
        loss = functional.cross_entropy(self._logits(x, tokens, lengths), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        norm = torch.linalg.vector_norm(gradient, dim=(0, 2), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        size = self.adversarial * torch.linalg.vector_norm(x.detach(), dim=(0, 2), keepdim=True)
        return gradient / norm * size

    def _logits(self, x: Tensor, tokens: Tensor, lengths: Tensor | None) -> Tensor:
        """From the word vectors (T, B, E) of the tokens."""
        if self.training:
            x = drop_words(x, tokens, self.embedding.num_embeddings, self.word_dropout)
            x = dropout(x, self.dropout)
        if lengths is None:
            h, _ = self.rnn(x)
        elif isinstance(self.rnn, QRNN):
            h, _ = self.rnn(x, lengths=lengths)
        else:
            T, B = tokens.shape
            checked = check_lengths("SequenceClassifier", lengths, T, B, x.device)
            assert checked is not None
            lengths = checked
            padding = padding_mask(lengths, T)[..., None]
            # Padding cannot affect earlier outputs, but must stay out of the readout; and out of the input, as NaN
            # times a gradient of zero would be NaN in the gradient of the weights.
            x = x.masked_fill(padding, 0.0)
            h, _ = self.rnn(x, lengths=lengths) if self.bidirectional else self.rnn(x)
            h = h.masked_fill(padding, 0.0)
        logits: Tensor = self.output(self._read_out(h, lengths).to(h.dtype))
        return logits

    def _read_out(self, h: Tensor, lengths: Tensor | None) -> Tensor:
        """The input of the last linear layer, from outputs (T, B, dirs * H) that are zero in the padding."""
        T, B, _ = h.shape
        lengths = torch.full((B,), T, device=h.device) if lengths is None else lengths.to(h.device)
        mean = h.sum(0, dtype=_sum_type(h)) / lengths[:, None]
        if self.readout == "mean":
            return mean
        largest = h.masked_fill(padding_mask(lengths, T)[..., None], float("-inf")).amax(0)
        last = h[lengths - 1, torch.arange(B, device=h.device)]
        if self.bidirectional:
            # The backward direction ends at the first token.
            last = torch.cat([last[:, : self.hidden_size], h[0, :, self.hidden_size :]], dim=1)
        return torch.cat([largest, mean, last], dim=1)

    @torch.no_grad()
    def read(self, tokens: Tensor, reading: Reading | None = None) -> tuple[Tensor, Reading]:
        """The logits after every step, (T, B, C), and a `Reading`, to be passed back with the tokens that follow.

        In eval mode the last logits are those of `forward` for the whole sequences.

        Raises:
            ValueError: the model is bidirectional.
        """
        if self.bidirectional:
            raise ValueError(
                "SequenceClassifier.read: a bidirectional model needs the whole sequence. Call model(tokens, lengths)."
            )
        h, state = self.rnn(self.embedding(tokens), None if reading is None else reading.state)
        before = 0 if reading is None else reading.count
        total = h.cumsum(0, dtype=_sum_type(h))
        if reading is not None:
            total = total + reading.total
        count = torch.arange(before + 1, before + len(tokens) + 1, device=h.device)
        mean = total / count[:, None, None]
        if self.readout == "mean":
            return self.output(mean.to(h.dtype)), Reading(state, total[-1], before + len(tokens))
        largest = h.cummax(0).values
        if reading is not None and reading.largest is not None:
            largest = torch.maximum(largest, reading.largest.to(h.dtype))
        logits = self.output(torch.cat([largest, mean.to(h.dtype), h], dim=-1))
        return logits, Reading(state, total[-1], before + len(tokens), largest[-1])

    @torch.no_grad()
    def inspect(self, tokens: Tensor) -> dict[str, dict[str, Tensor]]:
        """Gates and cells of every layer by name, as from `QRNN.inspect`: `["l3"]["f"]` is (T, B, H)."""
        if not isinstance(self.rnn, QRNN):
            raise ValueError("SequenceClassifier.inspect: only a QRNN can show its gates; this model has an LSTM.")
        return self.rnn.inspect(self.embedding(tokens))


def _sum_type(h: Tensor) -> torch.dtype:
    """16 bits are too few for a sum over many words."""
    return torch.promote_types(h.dtype, torch.float32)
