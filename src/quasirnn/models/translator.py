"""Translator: encoder, decoder with attention, softmax over the vocabulary (paper, sections 2.1 and 3.3)."""

from collections.abc import Sequence

from torch import Tensor, nn

from quasirnn.models.attention import behind
from quasirnn.models.linear_cross_entropy import linear_cross_entropy
from quasirnn.models.pretrained import Pretrained
from quasirnn.models.recurrent import Cell, recurrent
from quasirnn.models.symbol_layer import Symbols
from quasirnn.models.translator_decoder import Decoding, Encoded, LSTMDecoder, QRNNDecoder, State
from quasirnn.models.translator_encoder import LSTMEncoder, QRNNEncoder, encoder_widths
from quasirnn.models.translator_start import GAINS, start_evenly
from quasirnn.ops import checks
from quasirnn.ops.operators import state_type
from quasirnn.ops.softmax import IGNORED


class Translator(Pretrained):
    """Predicts the next symbol of a target from a source and all symbols of the target before it.

        memory, ends = encoder(source)     h = decoder(target, memory, ends)
        p(next) = softmax(W h + b)

    The encoder reads every source from its own end, through unmasked convolutions. Every layer of the decoder sees a
    projection of what the encoder's layer ended with (eq. 7), and the last one attends to the last one's outputs
    (eq. 8). Training is parallel over the target; decoding goes on from a state, at the same cost for every symbol but
    for the attention, which grows with the source.

    Args:
        vocabulary_size: V, of both languages together.
        hidden_size, num_layers: H and L, of the encoder and of the decoder.
        embedding_size: of the vectors of symbols, which both languages share; H if not given.
        cell: "qrnn", or "lstm" for the same model on LSTM layers.
        kernel_size: widths of the encoder's convolutions, one integer or one per layer; 6 for the first layer and 2 for
            the others if not given. The decoder's are 2. Not for an LSTM.
        pooling, zoneout: of all layers; "fo" and 0 if not given. Not for an LSTM.
        dropout: between layers.
        padding: the symbol that fills short rows up; its vector is zero.
        start, end: the symbols before the first and after the last of a target; the model itself makes no use of them.

    Inputs: `source` (S, B) and `target_in` (T, B), int64, with `source_lengths` and `target_lengths` (B,), each row's
        own. What stands behind them is never looked at.
    Outputs: logits (T, B, V), those behind a target's length the same for all; or, with `labels` (T, B), the symbols
        that come next, the loss in nats summed over all targets. All logits at once are never held for it.

    >>> import torch
    >>> model = Translator(50, hidden_size=8, num_layers=2).eval()
    >>> source, lengths = torch.tensor([[5, 7], [6, 8], [9, 0]]), torch.tensor([3, 2])
    >>> model(source, lengths, torch.tensor([[1, 1], [4, 4]]), torch.tensor([2, 2])).shape
    torch.Size([2, 2, 50])
    >>> encoded = model.encode(source, lengths)
    >>> log_probabilities, state, attention = model.step(torch.tensor([1, 1]), model.begin(encoded), encoded)
    >>> log_probabilities.shape, attention.shape
    (torch.Size([2, 50]), torch.Size([2, 3]))

    Differs from the paper: not said there and so ours are the size of the embedding and that both languages have one,
    where the unmasked windows stand (see `QRNN`), biases, how weights start (see `start_evenly`), and that no attention
    is fed back into the layers. Of the LSTM it says no more than "with attention": how its decoder starts and what its
    attention asks with is in `LSTMDecoder`, and ours.
    """

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
            padding=padding,
            start=start,
            end=end,
        )
        checks.at_least_one("Translator", "hidden_size", hidden_size)
        checks.at_least_one("Translator", "num_layers", num_layers)
        width = hidden_size if embedding_size is None else embedding_size
        checks.at_least_one("Translator", "embedding_size", width)
        _check_symbols(vocabulary_size, padding=padding, start=start, end=end)
        self.padding, self.start, self.end = padding, start, end
        dropout = checks.probability("Translator", "dropout", dropout)
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=padding)
        self.encoder: QRNNEncoder | LSTMEncoder
        self.decoder: QRNNDecoder | LSTMDecoder
        if cell == "qrnn":
            pooling = checks.pooling("Translator", "fo" if pooling is None else pooling)
            zoneout = checks.probability("Translator", "zoneout", 0.0 if zoneout is None else zoneout)
            widths = encoder_widths(kernel_size, num_layers)
            self.encoder = QRNNEncoder(width, hidden_size, widths, pooling=pooling, zoneout=zoneout, dropout=dropout)
            self.decoder = QRNNDecoder(
                width, hidden_size, num_layers, pooling=pooling, zoneout=zoneout, dropout=dropout
            )
        else:
            # Refuses what an LSTM has not.
            layers = recurrent(
                cell,
                width,
                hidden_size,
                num_layers,
                dropout=dropout,
                kernel_size=kernel_size,
                pooling=pooling,
                zoneout=zoneout,
            )
            self.encoder = LSTMEncoder(width, hidden_size, num_layers, dropout=dropout)
            self.decoder = LSTMDecoder(layers, hidden_size, num_layers)
        self.softmax = nn.Linear(hidden_size, vocabulary_size)
        gain = GAINS["lstm" if cell == "lstm" else pooling]
        start_evenly(self.encoder.input_weights, gain)
        start_evenly(self.decoder.input_weights, gain)

    @property
    def vocabulary_size(self) -> int:
        return self.embedding.num_embeddings

    @property
    def looked_up_weights(self) -> list[Tensor]:
        """Those that training multiplies once a batch, with the vectors of all symbols, and not at every step."""
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
        lengths = checks.lengths("Translator, target", target_lengths, T, B, target_in.device)
        h, _, _ = self.decoder(self._symbols(target_in), self.encode(source, source_lengths), lengths=lengths)
        padding = behind(lengths, T).T
        if labels is None:
            return self.softmax(h.masked_fill(padding[..., None], 0.0))
        goals = labels.masked_fill(padding, IGNORED)
        return linear_cross_entropy(h.flatten(0, 1), self.softmax.weight, self.softmax.bias, goals.flatten())

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        """Sources (S, B) as `begin` and `step` need them: all that depends on nothing else, so that it is done once."""
        if source.dim() != 2:
            raise ValueError(f"Translator: the source must be (S, B), got shape {tuple(source.shape)}.")
        lengths = checks.lengths("Translator, source", lengths, *source.shape, source.device)
        return self.decoder.read(*self.encoder(self._symbols(source), lengths), lengths)

    def begin(self, encoded: Encoded) -> State:
        """The state before the first symbol of each target, which is `start`."""
        return self.decoder.begin(encoded)

    def step(self, tokens: Tensor, state: State, encoded: Encoded) -> tuple[Tensor, State, Tensor]:
        """Read one more symbol of each target, and tell what comes next.

        Args:
            tokens: (N,), int64. N is the number of encoded sources, B, or n times as many: then row b * n + j is the
                j-th target of source b, and the n of them share what was encoded.
            state: as `begin` gave it, `begin(encoded).repeat(n)` for n targets a source, or the step before.
        Returns:
            log-probabilities (N, V), the state, and the attention (N, S) over the source in its own order.

        In eval mode this gives what `forward` gives for the whole target. Gradients go through it; whoever decodes has
        no use for them: `torch.no_grad()`.
        """
        B = len(encoded.lengths)
        if tokens.dim() != 1 or len(tokens) == 0 or len(tokens) % B:
            raise ValueError(
                f"Translator: step takes one token for each of the {B} encoded sources, or a whole number for each, "
                f"got shape {tuple(tokens.shape)}."
            )
        if state.size != len(tokens):
            raise ValueError(
                f"Translator: the state is of {state.size} targets and there are {len(tokens)} tokens. "
                f"state.repeat(n) makes n of each."
            )
        h, attention, state = self.decoder(self._symbols(tokens[None]), encoded, state)
        logits = self.softmax(h[0])
        return logits.to(state_type(logits.dtype)).log_softmax(-1), state, attention[0]

    def _symbols(self, tokens: Tensor) -> Symbols:
        return Symbols(tokens, self.embedding)

    def decoding(self, source: Tensor, lengths: Tensor) -> Decoding:
        """The start of one target for each source: what `beam_search` and its like are given.

        beam_search(model.advance, model.decoding(source, lengths), B, select=Decoding.rows, ...)
        """
        encoded = self.encode(source, lengths)
        return Decoding(self.begin(encoded), encoded)

    def advance(self, tokens: Tensor, decoding: Decoding) -> tuple[Tensor, Decoding, Tensor]:
        """`step` for a decoding, which has its sources with it."""
        log_probabilities, state, attention = self.step(tokens, *decoding)
        return log_probabilities, decoding._replace(state=state), attention


def _check_symbols(vocabulary_size: int, **symbols: int) -> None:
    for name, symbol in symbols.items():
        if not 0 <= checks.integer("Translator", name, symbol) < vocabulary_size:
            raise ValueError(
                f"Translator: {name} must be a symbol of the vocabulary, 0 ... {vocabulary_size - 1}, got {symbol}."
            )
    if len(set(symbols.values())) < len(symbols):
        listed = ", ".join(f"{name} = {symbol}" for name, symbol in symbols.items())
        raise ValueError(f"Translator: padding, start and end must be three symbols, got {listed}.")


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
