"""Language model: embedding, recurrent layers, softmax over the vocabulary (paper, section 3.2)."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.models.linear_cross_entropy import linear_cross_entropy, token_losses
from quasirnn.models.pretrained import Pretrained
from quasirnn.models.recurrent import Cell, recurrent
from quasirnn.models.sampling import Sampler

State = tuple[Tensor, Tensor]


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
        output_dropout: before the softmax.
        gate_bias: False leaves out the biases of the recurrent layers.
        tied: the softmax has the word vectors for its weight; embedding_size must then be H.

    Inputs: `tokens`, (T, B), int64; `state`, the pair an earlier call returned, continues the streams.
    Outputs: logits (T, B, V), or, with `targets` (T, B), the summed loss in nats; and the state. All logits at once are
        never held for the loss.

    >>> model = LanguageModel(100, hidden_size=16)
    >>> logits, state = model(torch.tensor([[1], [2], [3]]))
    >>> logits.shape
    torch.Size([3, 1, 100])

    Differs from the paper: how weights start, the softmax' bias and the dropout before it are not said there and are
    ours; `gate_bias=False` is what its equations have.
    """

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
    ) -> None:
        super().__init__()
        self.remember(
            vocabulary_size=vocabulary_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            embedding_size=embedding_size,
            cell=cell,
            kernel_size=list(kernel_size) if isinstance(kernel_size, Sequence) else kernel_size,
            pooling=pooling,
            zoneout=zoneout,
            dropout=dropout,
            output_dropout=output_dropout,
            gate_bias=gate_bias,
            tied=tied,
        )
        width = hidden_size if embedding_size is None else embedding_size
        if tied and width != hidden_size:
            raise ValueError(
                f"LanguageModel: tied needs embedding_size = hidden_size, got {width} and {hidden_size}. "
                f"Leave embedding_size out, or tied=False."
            )
        self.dropout = dropout
        self.output_dropout = output_dropout
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.rnn = recurrent(
            cell,
            width,
            hidden_size,
            num_layers,
            dropout=dropout,
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
        """Random word vectors, a softmax whose first guess is uniform; the layers start as they do by themselves."""
        nn.init.normal_(self.embedding.weight, std=word_scale)
        if self.softmax.weight is not self.embedding.weight:
            nn.init.uniform_(self.softmax.weight, -0.05, 0.05)
        nn.init.zeros_(self.softmax.bias)
        self.rnn.reset_parameters()

    @property
    def vocabulary_size(self) -> int:
        return self.embedding.num_embeddings

    def forward(
        self, tokens: Tensor, state: State | None = None, targets: Tensor | None = None
    ) -> tuple[Tensor, State]:
        if targets is not None:
            _check_targets(tokens, targets)
        h, state = self.hidden(tokens, state)
        if targets is None:
            return self.softmax(h), state
        return linear_cross_entropy(h.flatten(0, 1), self.softmax.weight, self.softmax.bias, targets.flatten()), state

    def hidden(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """What the softmax sees, (T, B, H)."""
        x = functional.dropout(self.embedding(tokens), self.dropout, self.training)
        h, state = self.rnn(x, state)
        return functional.dropout(h, self.output_dropout, self.training), state

    @torch.no_grad()
    def losses(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The loss of every target in nats, (T, B), without gradient."""
        _check_targets(tokens, targets)
        h, state = self.hidden(tokens, state)
        each = token_losses(h.flatten(0, 1), self.softmax.weight, self.softmax.bias, targets.flatten())
        return each.view_as(targets), state

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
