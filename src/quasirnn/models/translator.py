"""Translator: encoder, decoder with attention, softmax over the vocabulary (paper, sections 2.1 and 3.3)."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from torch import Tensor, nn

from quasirnn.models.embedding_projection import EmbeddedTokens
from quasirnn.models.initialisation import GAINS, init_unit_variance
from quasirnn.models.linear_cross_entropy import readout_loss
from quasirnn.models.pretrained import Pretrained
from quasirnn.models.recurrent import Cell, recurrent, refuse_for_lstm
from quasirnn.models.translator_decoder import WIDTH, Decoding, Encoded, LSTMDecoder, QRNNDecoder, State
from quasirnn.models.translator_encoder import LSTMEncoder, QRNNEncoder, encoder_kernel_sizes, qrnn_layers
from quasirnn.ops import checks
from quasirnn.ops.operators import state_type
from quasirnn.ops.sequences import check_lengths, padding_mask
from quasirnn.ops.training_step import IGNORED


class Translator(Pretrained):
    """Predicts the next token of a target from a source and all tokens of the target before it.

        memory, h~ = encoder(source)     h = decoder(target, memory, h~)
        p(next) = softmax(W h + b)

    The encoder reads every source from its own end, with unmasked convolutions. Every layer of the decoder receives a
    projection of the last output of the encoder's layer (eq. 7), and the last one attends to the outputs of the
    encoder's last layer (eq. 8). Training is parallel over the target. Decoding continues from a state, at the same
    cost for every token but for the attention, which grows with the source.

    Args:
        vocabulary_size: V, of both languages together.
        hidden_size, num_layers: H and L, of the encoder and of the decoder.
        embedding_size: of the token vectors, which both languages share; H if not given.
        cell: "qrnn", or "lstm" for the same model on LSTM layers.
        kernel_size: widths of the encoder's convolutions, one integer or one per layer; by default 6 for the first
            layer and 2 for the others. The decoder's are 2. Not for an LSTM.
        pooling, zoneout: of all layers; "fo" and 0 if not given. Not for an LSTM.
        dropout: between layers.
        padding: the token that fills up short rows; its vector is zero.
        start, end: the tokens before the first and after the last one of a target; the model itself does not use them.
        attend: keys and values of the attention are the "outputs" h~ of the encoder's last layer, as in eq. 8, or its
            "cells", as in the code that the authors published. `nn.LSTM` does not return its cells at every step: an
            LSTM has "outputs" only.
        init_decoder: all decoder layers but the last start from the last cells of the encoder's layer instead of zero,
            as in that code. Not for an LSTM, whose decoder always starts from the encoder's last outputs.
        label_smoothing: of the loss in training, as in `nn.CrossEntropyLoss`.

    Inputs: `source` (S, B) and `target_in` (T, B), int64, with `source_lengths` and `target_lengths` (B,), each row's
        own. Tokens past them have no effect.
    Outputs: logits (T, B, V), those past a target's length the same for all; or, with `labels` (T, B), the next tokens,
        the loss in nats summed over all targets. The loss never needs memory for all logits at once.

    >>> import torch
    >>> model = Translator(50, hidden_size=8, num_layers=2).eval()
    >>> source, lengths = torch.tensor([[5, 7], [6, 8], [9, 0]]), torch.tensor([3, 2])
    >>> model(source, lengths, torch.tensor([[1, 1], [4, 4]]), torch.tensor([2, 2])).shape
    torch.Size([2, 2, 50])
    >>> encoded = model.encode(source, lengths)
    >>> log_probabilities, state, attention = model.step(torch.tensor([1, 1]), model.begin(encoded), encoded)
    >>> log_probabilities.shape, attention.shape
    (torch.Size([2, 50]), torch.Size([2, 3]))

    Differs from the paper: it does not specify the size of the embedding and whether the languages share it, the
    position of the unmasked windows (see `QRNN`), biases and the initialisation (see `init_unit_variance`); these are
    ours, and so is that the attention is not fed back into the layers. Of the LSTM it says only "with attention": how
    its decoder starts and what its attention queries with is ours, see `LSTMDecoder`.
    """

    added = frozenset({"attend", "init_decoder", "label_smoothing"})

    def __init__(
        self,
        vocabulary_size: int,
        *,
        hidden_size: int = 320,
        num_layers: int = 4,
        embedding_size: int | None = None,
        cell: Cell = "qrnn",
        kernel_size: int | Sequence[int] | None = None,
        pooling: str | None = None,
        zoneout: float | None = None,
        dropout: float = 0.0,
        padding: int = 0,
        start: int = 1,
        end: int = 2,
        attend: Literal["outputs", "cells"] = "outputs",
        init_decoder: bool = False,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(locals())
        checks.at_least_one("Translator", "hidden_size", hidden_size)
        checks.at_least_one("Translator", "num_layers", num_layers)
        width = hidden_size if embedding_size is None else embedding_size
        checks.at_least_one("Translator", "embedding_size", width)
        _check_special_tokens(vocabulary_size, padding=padding, start=start, end=end)
        if attend not in ("outputs", "cells"):
            raise ValueError(f"Translator: attend must be 'outputs' or 'cells', got {attend!r}.")
        self.padding, self.start, self.end = padding, start, end
        self.label_smoothing = checks.probability("Translator", "label_smoothing", label_smoothing)
        dropout = checks.probability("Translator", "dropout", dropout)
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=padding)
        self.encoder: QRNNEncoder | LSTMEncoder
        self.decoder: QRNNDecoder | LSTMDecoder
        if cell == "qrnn":
            pooling = checks.pooling("Translator", "fo" if pooling is None else pooling)
            zoneout = checks.probability("Translator", "zoneout", 0.0 if zoneout is None else zoneout)
            layers_of = partial(qrnn_layers, width, hidden_size, pooling=pooling, zoneout=zoneout)
            unmasked = layers_of(encoder_kernel_sizes(kernel_size, num_layers), causal=False, reverse=True)
            self.encoder = QRNNEncoder(unmasked, dropout=dropout, attend_cells=attend == "cells")
            self.decoder = QRNNDecoder(layers_of([WIDTH] * num_layers), dropout=dropout, init_cells=init_decoder)
        else:
            refuse_for_lstm(
                cell,
                kernel_size=kernel_size,
                pooling=pooling,
                zoneout=zoneout,
                attend=attend if attend != "outputs" else None,
                init_decoder=init_decoder or None,
            )
            layers = recurrent("lstm", width, hidden_size, num_layers, dropout=dropout)
            self.encoder = LSTMEncoder(width, hidden_size, num_layers, dropout=dropout)
            self.decoder = LSTMDecoder(layers, hidden_size, num_layers)
        self.softmax = nn.Linear(hidden_size, vocabulary_size)
        gain = GAINS[pooling or "lstm"]
        for part in (self.encoder, self.decoder):
            init_unit_variance(part.input_weights, gain)

    @property
    def vocabulary_size(self) -> int:
        return self.embedding.num_embeddings

    @property
    def precomputed_weights(self) -> list[Tensor]:
        """Weights that training multiplies once per batch, with the vectors of all tokens, and not at every step."""
        if isinstance(self.encoder, LSTMEncoder):
            return []
        return self.encoder.input_weights[:1] + self.decoder.input_weights[:-1][:1]

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target_in: Tensor,
        target_lengths: Tensor,
        labels: Tensor | None = None,
    ) -> Tensor:
        _check_targets(source, target_in, labels)
        T, B = target_in.shape
        lengths = check_lengths("Translator, target", target_lengths, T, B, target_in.device)
        assert lengths is not None
        h, _, _ = self.decoder(self._embedded(target_in), self.encode(source, source_lengths), lengths=lengths)
        padding = padding_mask(lengths, T)
        if labels is None:
            logits: Tensor = self.softmax(h.masked_fill(padding[..., None], 0.0))
            return logits
        targets = labels.masked_fill(padding, IGNORED)
        smoothing = self.label_smoothing if self.training else 0.0
        return readout_loss(self.softmax, h.flatten(0, 1), targets.flatten(), smoothing)

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        """Encode sources (S, B) for `begin` and `step`: everything that is computed once per source."""
        if source.dim() != 2:
            raise ValueError(f"Translator: the source must be (S, B), got shape {tuple(source.shape)}.")
        S, B = source.shape
        checked = check_lengths("Translator, source", lengths, S, B, source.device)
        assert checked is not None
        return self.decoder.prepare(self.encoder(self._embedded(source), checked), checked)

    def begin(self, encoded: Encoded) -> State:
        """The state before the first token of each target, which is `start`."""
        return self.decoder.initial_state(encoded)

    def step(self, tokens: Tensor, state: State, encoded: Encoded) -> tuple[Tensor, State, Tensor]:
        """Read one more token of each target, and predict the next one.

        Args:
            tokens: (N,), int64. N is the number of encoded sources, B, or n times as many: then row b * n + j is the
                j-th target of source b, and the n targets share what was encoded.
            state: from `begin`, `begin(encoded).repeat(n)` for n targets per source, or from the step before.
        Returns:
            log-probabilities (N, V), the state, and the attention (N, S) over the source in its own order.

        In eval mode this gives the same as `forward` for the whole target. It is differentiable; decode under
        `torch.no_grad()`.
        """
        B = len(encoded.lengths)
        if tokens.dim() != 1 or len(tokens) == 0 or len(tokens) % B:
            raise ValueError(
                f"Translator: step needs one token for each of the {B} encoded sources, or n tokens for each, "
                f"got shape {tuple(tokens.shape)}."
            )
        if state.size != len(tokens):
            raise ValueError(
                f"Translator: the state has {state.size} targets, but there are {len(tokens)} tokens. "
                f"state.repeat(n) makes n of each."
            )
        h, attention, state = self.decoder(self._embedded(tokens[None]), encoded, state)
        logits = self.softmax(h[0])
        return logits.to(state_type(logits.dtype)).log_softmax(-1), state, attention[0]

    def _embedded(self, tokens: Tensor) -> EmbeddedTokens:
        return EmbeddedTokens(tokens, self.embedding)

    def decoding(self, source: Tensor, lengths: Tensor) -> Decoding:
        """One empty target for each source: the initial state for `beam_search`, `greedy` and `sample`.

        beam_search(model.advance, model.decoding(source, lengths), B, select=Decoding.rows, ...)
        """
        encoded = self.encode(source, lengths)
        return Decoding(self.begin(encoded), encoded)

    def advance(self, tokens: Tensor, decoding: Decoding) -> tuple[Tensor, Decoding, Tensor]:
        """`step` on a `Decoding`, which includes its sources."""
        log_probabilities, state, attention = self.step(tokens, *decoding)
        return log_probabilities, decoding._replace(state=state), attention


def _check_special_tokens(vocabulary_size: int, **tokens: int) -> None:
    for name, token in tokens.items():
        if not 0 <= checks.integer("Translator", name, token) < vocabulary_size:
            raise ValueError(
                f"Translator: {name} must be a token of the vocabulary, 0 to {vocabulary_size - 1}, got {token}."
            )
    if len(set(tokens.values())) < len(tokens):
        listed = ", ".join(f"{name} = {token}" for name, token in tokens.items())
        raise ValueError(f"Translator: padding, start and end must be three different tokens, got {listed}.")


def _check_targets(source: Tensor, target_in: Tensor, labels: Tensor | None) -> None:
    if source.dim() != 2 or target_in.dim() != 2 or source.shape[1] != target_in.shape[1]:
        raise ValueError(
            f"Translator: source and target_in must be (S, B) and (T, B), with the same B, got {tuple(source.shape)} "
            f"and {tuple(target_in.shape)}. Time comes first here: target_in.T?"
        )
    if labels is not None and labels.shape != target_in.shape:
        raise ValueError(
            f"Translator: labels must have the shape of target_in, (T, B) = {tuple(target_in.shape)}, "
            f"got {tuple(labels.shape)}."
        )
