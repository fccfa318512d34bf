"""Language model: embedding, recurrent layers, softmax over the vocabulary (paper, section 3.2)."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from quasirnn.models.linear_cross_entropy import readout_loss, readout_losses
from quasirnn.models.pretrained import Pretrained
from quasirnn.models.recurrent import Cell, State, drop_words, locked_dropout, recurrent, refuse_for_lstm
from quasirnn.models.sampling import Sampler
from quasirnn.ops import checks
from quasirnn.ops.autograd import dropout
from quasirnn.ops.operators import state_type


class LanguageModel(Pretrained):
    """Predicts the next token of a stream from all tokens before it.

        x = dropout(embedding(tokens))     h = rnn(x)     p(next) = softmax(W dropout(h) + b)

    Args:
        vocabulary_size: V.
        hidden_size, num_layers: H and L of the recurrent layers.
        embedding_size: of the word vectors; H if not given.
        cell: "qrnn", or "lstm" for the same model on `nn.LSTM`.
        kernel_size, pooling, zoneout: of the QRNN; not for an LSTM.
        dropout: on the embeddings and between layers.
        input_dropout: on the embeddings, if it is not the same.
        output_dropout: before the softmax.
        gate_bias: False leaves out the biases of the recurrent layers.
        tied: the softmax uses the word vectors as its weight; embedding_size must then be H.
        locked_dropout: every dropout uses one mask for all time steps of a call, instead of one per step.
        word_dropout: probability that a word's vector is zero wherever the word occurs in the input.
        document_start: a token that begins a document: nothing of what was read before it has an effect. QRNN only.

    Inputs: `tokens`, (T, B), int64; `state`, the pair that an earlier call returned, continues the streams.
    Outputs: logits (T, B, V), or, with `targets` (T, B), the summed loss in nats; and the state. The loss never needs
        memory for all logits at once.

    >>> model = LanguageModel(100, hidden_size=16)
    >>> logits, state = model(torch.tensor([[1], [2], [3]]))
    >>> logits.shape
    torch.Size([3, 1, 100])

    Differs from the paper: it does not specify the initialisation, the bias of the softmax and the dropout before it;
    these are ours. Its equations have no biases: `gate_bias=False`.
    """

    added = frozenset({"input_dropout", "locked_dropout", "word_dropout", "document_start"})

    def __init__(
        self,
        vocabulary_size: int,
        *,
        hidden_size: int = 640,
        num_layers: int = 2,
        embedding_size: int | None = None,
        cell: Cell = "qrnn",
        kernel_size: int | Sequence[int] | None = None,
        pooling: str | None = None,
        zoneout: float | None = None,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        gate_bias: bool = True,
        tied: bool = False,
        locked_dropout: bool = False,
        word_dropout: float = 0.0,
        input_dropout: float | None = None,
        document_start: int | None = None,
    ) -> None:
        super().__init__(locals())
        width = hidden_size if embedding_size is None else embedding_size
        if tied and width != hidden_size:
            raise ValueError(
                f"LanguageModel: tied needs embedding_size = hidden_size, got {width} and {hidden_size}. "
                f"Leave embedding_size out, or tied=False."
            )
        if cell == "lstm":
            refuse_for_lstm(cell, document_start=document_start)
        self.document_start = document_start
        self.dropout = checks.probability("LanguageModel", "dropout", dropout)
        self.input_dropout = (
            dropout if input_dropout is None else checks.probability("LanguageModel", "input_dropout", input_dropout)
        )
        self.output_dropout = checks.probability("LanguageModel", "output_dropout", output_dropout)
        self.locked_dropout = locked_dropout
        self.word_dropout = checks.probability("LanguageModel", "word_dropout", word_dropout)
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.rnn = recurrent(
            cell,
            width,
            hidden_size,
            num_layers,
            dropout=dropout,
            locked=locked_dropout,
            bias=gate_bias,
            kernel_size=kernel_size,
            pooling=pooling,
            zoneout=zoneout,
        )
        self.softmax = nn.Linear(hidden_size, vocabulary_size)
        if tied:
            self.softmax.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self, word_scale: float = 0.1) -> None:
        """Random word vectors, a nearly uniform first prediction; the layers have their default initialisation."""
        nn.init.normal_(self.embedding.weight, std=word_scale)
        if self.softmax.weight is not self.embedding.weight:
            nn.init.uniform_(self.softmax.weight, -0.05, 0.05)
        nn.init.zeros_(self.softmax.bias)
        self.rnn.reset_parameters()

    @property
    def vocabulary_size(self) -> int:
        return self.embedding.num_embeddings

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        targets: Tensor | None = None,
        penalties: tuple[float, float] = (0.0, 0.0),
    ) -> tuple[Tensor, State]:
        """Logits or loss, and the state.

        Args:
            penalties: weights of activation and temporal activation regularisation (Merity et al., 2017), added to the
                loss in training: AR * mean(dropout(h)^2) + TAR * mean((h[t+1] - h[t])^2) per token, h the output of the
                last layer.
        """
        if targets is not None:
            _check_targets(tokens, targets)
        output, state = self._outputs(tokens, state)
        h = self._drop(output, self.output_dropout)
        if targets is None:
            return self.softmax(h), state
        loss = readout_loss(self.softmax, h.flatten(0, 1), targets.flatten())
        if self.training:
            for weight, activations in zip(penalties, (h, output[1:] - output[:-1]), strict=True):
                if weight and len(activations):
                    # The loss is a sum over tokens, the penalty a mean.
                    mean = activations.to(state_type(h.dtype)).square().mean()
                    loss = loss + weight * targets.numel() * mean
        return loss, state

    def hidden(self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """The input of the softmax, (T, B, H), and the state; with `lengths`, (B,), of a QRNN, at each row's end."""
        output, state = self._outputs(tokens, state, lengths)
        return self._drop(output, self.output_dropout), state

    def _outputs(self, tokens: Tensor, state: State | None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """The last layer's output, (T, B, H), before dropout, and the state."""
        x = self.embedding(tokens)
        if self.training:
            x = drop_words(x, tokens, self.embedding.num_embeddings, self.word_dropout)
            x = self._drop(x, self.input_dropout)
        options: dict[str, Tensor] = {} if self.document_start is None else {"starts": tokens == self.document_start}
        if lengths is not None:
            options["lengths"] = lengths
        output: tuple[Tensor, State] = self.rnn(x, state, **options)
        return output

    def _drop(self, x: Tensor, p: float) -> Tensor:
        return (locked_dropout if self.locked_dropout else dropout)(x, p, self.training)

    @torch.no_grad()
    def losses(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The loss of every target in nats, (T, B), without gradient."""
        _check_targets(tokens, targets)
        h, state = self.hidden(tokens, state)
        losses = readout_losses(self.softmax, h.flatten(0, 1), targets.flatten())
        return losses.view_as(targets), state

    @torch.no_grad()
    def generate(self, prompt: Tensor, sampler: Sampler, window: int = 4096) -> Iterator[int]:
        """Continue one stream without end, token by token, at constant cost and memory.

        Args:
            prompt: (T,), at least one token; read `window` tokens at a time.
            sampler: draws each token.

        The model must be in eval mode.
        """
        if prompt.dim() != 1 or len(prompt) == 0:
            raise ValueError(
                f"LanguageModel.generate: the prompt must be (T,) with T at least 1, got {tuple(prompt.shape)}."
            )
        state = None
        for part in prompt.split(window):
            h, state = self.hidden(part[:, None], state)
        while True:
            token = sampler(self.softmax(h[-1]))  # (1,)
            yield int(token)
            h, state = self.hidden(token[None], state)


def _check_targets(tokens: Tensor, targets: Tensor) -> None:
    if targets.shape != tokens.shape:
        raise ValueError(
            f"LanguageModel: targets must have the shape of tokens, (T, B) = {tuple(tokens.shape)}, "
            f"got {tuple(targets.shape)}. Time comes first here: targets.T?"
        )
