"""One QRNN layer in one direction."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from quasirnn.ops import checks, qrnn_layer
from quasirnn.ops.pooling import Lengths


class LayerState(NamedTuple):
    """Where a layer stands between two pieces of a sequence."""

    c: Tensor  # cells, (B, H)
    context: Tensor | None  # the last k - 1 inputs, (B, k - 1, D); None where none applies


class LayerGates(NamedTuple):
    """Everything a layer computed, after the non-linearities, each (T, B, H). o and i as the pooling has them."""

    z: Tensor
    f: Tensor
    o: Tensor | None
    i: Tensor | None
    c: Tensor


class QRNNLayerOutput(NamedTuple):
    """What a layer returns."""

    h: Tensor  # (T, B, H)
    state: LayerState
    gates: LayerGates | None  # on request


class QRNNLayer(nn.Module):
    """Convolution over time, then pooling: the building block of `QRNN`, of decoders and of pictures.

        Z = tanh(W_z * X + b_z)   F = sigmoid(W_f * X + b_f)   O, I likewise       (paper, eq. 1)
        c[t] = f[t] * c[t-1] + (1 - f[t]) * z[t]    h[t] = o[t] * c[t]             (eq. 4; "f" and "ifo": eq. 3, 5)

    * is the convolution over time with a window of `kernel_size` inputs. f = 1 keeps the old state.

    The layer is time-major, (T, B, D). `weight` is (gates * H, k, D): rows z, f, o, i; columns from the oldest input to
    the newest. `bias` is (gates * H).

    Args:
        input_size: D.
        hidden_size: H.
        kernel_size: k, width of the window.
        pooling: "f", "fo" or "ifo".
        zoneout: probability p that a channel keeps its state for a step (eq. 6): at random in training; in eval the
            expectation of that, f' = p + (1 - p) f and, for "ifo", i' = (1 - p) i.
        causal: False lets the window reach floor(k / 2) steps ahead: the paper's unmasked convolution.
        reverse: read the sequence from its end; the output stays in the order of the input.

    Initial weights are uniform with variance 1 / (k D), so that pre-activations start with the variance of the input
    whatever the width. The forget gate's bias starts at 1, the others at 0: f starts near 0.73, which gives gradients a
    horizon of some four steps and not of two; without it a QRNN, whose only memory is f, starts out forgetful.

    Differs from the paper: the paper's equations have no bias; ours has one, `bias=False` leaves it out. Zoneout with
    "ifo" also sets i = 0 in a zoned channel, which then keeps its state; eq. 6 read literally would still add i * z.
    The paper does not say what zoneout does in eval; the expectation is what Krueger et al. (2016), who introduced it,
    and the authors' own code have.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        kernel_size: int = 2,
        pooling: str = "fo",
        zoneout: float = 0.0,
        bias: bool = True,
        causal: bool = True,
        reverse: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        who = type(self).__name__
        self.input_size = checks.at_least_one(who, "input_size", input_size)
        self.hidden_size = checks.at_least_one(who, "hidden_size", hidden_size)
        self.kernel_size = checks.at_least_one(who, "kernel_size", kernel_size)
        self.pooling = checks.pooling(who, pooling)
        self.zoneout = checks.probability(who, "zoneout", zoneout)
        self.causal = causal
        self.reverse = reverse
        if dtype is not None and dtype not in checks.FLOATS:
            raise TypeError(f"{who}: dtype must be float32, float64, float16 or bfloat16, got {dtype}.")
        width = (len(pooling) + 1) * hidden_size
        self.weight = nn.Parameter(torch.empty(width, kernel_size, input_size, device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial weights; see the class for what and why."""
        bound = math.sqrt(3.0 / (self.kernel_size * self.input_size))
        with torch.no_grad():
            self.weight.uniform_(-bound, bound)
            if self.bias is not None:
                self.bias.zero_()
                self.bias[self.hidden_size : 2 * self.hidden_size] = 1.0

    @property
    def look_ahead(self) -> int:
        return 0 if self.causal else self.kernel_size // 2

    @property
    def context_size(self) -> int:
        """How many earlier inputs the state carries: k - 1, or 0 where a cut sequence cannot be continued exactly."""
        return self.kernel_size - 1 if self.causal and not self.reverse else 0

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        *,
        lengths: Lengths = None,
        addition: Tensor | None = None,
        training: bool | None = None,
        return_gates: bool = False,
    ) -> QRNNLayerOutput:
        """Run the layer over a sequence.

        Args:
            x: (T, B, D).
            state: where to start; zero cells and zero inputs before the first if not given.
            lengths: each row's own length, B integers in 1..T.
            addition: added to the pre-activations of every step of a row, (B, gates * H): V h in the paper's eq. 7.
            training: whether zoneout is random; as the module's own mode if not given.
            return_gates: also return all gates and cells, differentiable: eq. 8 needs c and o before they are
                multiplied.
        Returns:
            (h, state, gates): h is (T, B, H), zero past a row's length; the state continues each row at its own end.
        """
        x = checks.sequence("QRNNLayer", "x", x, "(T, B, D)")
        if x.shape[2] != self.input_size:
            raise ValueError(
                f"QRNNLayer: the last dimension of x must be input_size = {self.input_size}, "
                f"got shape {tuple(x.shape)}."
            )
        if state is not None:
            state = _layer_state(state)
        random = self.zoneout > 0 and (self.training if training is None else training)
        seed = torch.randint(2**63 - 1, (), device=x.device) if random else None
        bias: Tensor | None = self.bias
        if addition is not None:
            sizes = (x.shape[1], self.weight.shape[0])
            checks.shaped("QRNNLayer", "addition", addition, "(B, gates * H)", sizes, x)
            bias = addition if bias is None else addition + bias
        context = None if state is None else state.context
        h, c, cells, gates = qrnn_layer(
            x,
            self.weight,
            bias,
            None if state is None else state.c,
            context=context,
            pooling=self.pooling,
            look_ahead=self.look_ahead,
            zoneout=self.zoneout,
            seed=seed,
            reverse=self.reverse,
            lengths=lengths,
            return_gates=return_gates,
        )
        new_state = LayerState(c, last_inputs(x, context, self.context_size, lengths))
        if gates is None or cells is None:
            return QRNNLayerOutput(h, new_state, None)
        z, f, *others = gates.chunk(len(self.pooling) + 1, dim=-1)
        o = others[0] if len(others) > 0 else None
        i = others[1] if len(others) > 1 else None
        return QRNNLayerOutput(h, new_state, LayerGates(z, f, o, i, cells))

    def extra_repr(self) -> str:
        words = f"{self.input_size}, {self.hidden_size}, kernel_size={self.kernel_size}, pooling='{self.pooling}'"
        if self.zoneout:
            words += f", zoneout={self.zoneout}"
        for name, usual in (("causal", True), ("reverse", False)):
            if getattr(self, name) is not usual:
                words += f", {name}={not usual}"
        return words + ("" if self.bias is not None else ", bias=False")


def _layer_state(state: Any) -> LayerState:
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(
            f"QRNNLayer: state must be the pair (c, context) that an earlier call returned, got {checks.kind(state)}."
        )
    return LayerState(*state)


def last_inputs(x: Tensor, context: Tensor | None, n: int, lengths: Lengths) -> Tensor | None:
    """The last n inputs of each row, (B, n, D), reaching back into the context where the row is shorter than that."""
    if n == 0:
        return None
    T, B, D = x.shape
    if lengths is None and torch.compiler.is_compiling():
        # A choice by T becomes a condition on it: an exported layer could then take no piece shorter than n.
        lengths = torch.full((B,), T, device=x.device)
    if lengths is None and n <= T:
        return x[T - n :].transpose(0, 1)
    if context is None:
        context = x.new_zeros(B, n, D)
    if lengths is None:
        return torch.cat([context[:, T:].to(x.dtype), x.transpose(0, 1)], dim=1)
    position = torch.as_tensor(lengths, device=x.device)[:, None] + torch.arange(n, device=x.device) - n  # (B, n)
    row = torch.arange(B, device=x.device)[:, None]
    from_x = x[position.clamp(min=0), row]
    from_context = context[row, (position + n).clamp(max=n - 1)].to(x.dtype)
    return torch.where((position >= 0)[:, :, None], from_x, from_context)
