"""One QRNN layer in one direction."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from quasirnn.ops import LayerGates, LayerOutput, LayerState, checks
from quasirnn.ops.layer import LayerOptions, run_layer
from quasirnn.ops.sequences import Lengths, Rows

__all__ = ["LayerGates", "LayerState", "QRNNLayer", "QRNNLayerOutput"]

QRNNLayerOutput = LayerOutput


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
        pooling: "f", "fo" or "ifo", or one of your own (docs/adding-a-pooling.md).
        zoneout: probability p that a channel keeps its state for a step (eq. 6): at random in training; in eval the
            expectation of that, f' = p + (1 - p) f and, for "ifo", i' = (1 - p) i.
        causal: False lets the window reach floor(k / 2) steps ahead: the paper's unmasked convolution.
        reverse: read the sequence from its end; the output stays in the order of the input.

    Initial weights are uniform with variance 1 / (k D), so that pre-activations have the variance of the input at any
    width. The forget gate's bias is initialised to 1, the others to 0: f is then near 0.73, and gradients reach back
    about four steps instead of two. f is the only memory of a QRNN.

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
        self.pooling = checks.pooling(who, pooling, checks.POOLINGS)
        self.zoneout = checks.probability(who, "zoneout", zoneout)
        self.causal = checks.switch(who, "causal", causal)
        self.reverse = checks.switch(who, "reverse", reverse)
        if dtype is not None and dtype not in checks.FLOATS:
            raise TypeError(f"{who}: dtype must be float32, float64, float16 or bfloat16, got {dtype}.")
        width = len(checks.POOLINGS[pooling]) * hidden_size
        self.weight = nn.Parameter(torch.empty(width, kernel_size, input_size, device=device, dtype=dtype))
        if checks.switch(who, "bias", bias):
            self.bias = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial weights, as the class describes."""
        bound = math.sqrt(3.0 / (self.kernel_size * self.input_size))
        with torch.no_grad():
            self.weight.uniform_(-bound, bound)
            if self.bias is not None:
                self.bias.zero_()
                self.bias[self.hidden_size : 2 * self.hidden_size] = 1.0

    @property
    def input_like(self) -> Tensor:
        """A tensor of the type and on the device that inputs must have."""
        return self.weight

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
        lengths: Lengths | Rows = None,
        starts: Tensor | None = None,
        extra_bias: Tensor | None = None,
        training: bool | None = None,
        return_gates: bool = False,
    ) -> LayerOutput:
        """Run the layer over a sequence.

        Args:
            x: (T, B, D).
            state: the initial cells and the inputs before the first step; zeros if not given.
            lengths: each row's own length, B integers in 1..T.
            starts: boolean, (T, B), True where a new sequence starts inside a row: cells and window are cut there.
            extra_bias: added to the pre-activations of every step of a row, (B, gates * H): V h in the paper's eq. 7.
            training: whether zoneout is random; as the module's own mode if not given.
            return_gates: also return all gates and cells, differentiable: eq. 8 needs c and o before they are
                multiplied.
        Returns:
            (h, state, gates): h is (T, B, H), zero past a row's length; the state continues each row at its own end.
        """
        if not isinstance(lengths, Rows):
            state, lengths = self._check(x, state, lengths, starts)
        random = self.zoneout > 0 and (self.training if training is None else training)
        bias: Tensor | None = self.bias
        if extra_bias is not None:
            sizes = (x.shape[1], self.weight.shape[0])
            checks.shaped("QRNNLayer", "extra_bias", extra_bias, "(B, gates * H)", sizes, x)
            bias = extra_bias if bias is None else extra_bias + bias
        c0, context = (None, None) if state is None else state
        return self._run(
            x,
            bias,
            c0,
            context=context,
            rows=lengths,
            seed=torch.randint(2**63 - 1, (), device=x.device) if random else None,
            options=LayerOptions(
                pooling=self.pooling,
                context_size=self.context_size,
                look_ahead=self.look_ahead,
                zoneout=self.zoneout,
                reverse=self.reverse,
                return_gates=return_gates,
            ),
        )

    def _run(self, x: Tensor, bias: Tensor | None, c0: Tensor | None, **arguments: Any) -> LayerOutput:
        return run_layer(x, self.weight, bias, c0, **arguments)

    if TYPE_CHECKING:
        __call__ = forward

    def _check(self, x: Tensor, state: Any, lengths: Lengths, starts: Tensor | None) -> tuple[LayerState | None, Rows]:
        """Check the arguments of a direct call; a QRNN has checked those it passes."""
        who = "QRNNLayer"
        x = checks.sequence(who, "x", x, "(T, B, D)")
        _, B, D = x.shape
        if self.input_size != D:
            raise checks.ShapeError(
                f"{who}: the last dimension of x must be input_size = {self.input_size}, got shape {tuple(x.shape)}."
            )
        same_type(who, "x", x, self.input_like)
        if state is not None:
            if not isinstance(state, tuple | list) or len(state) != 2:
                raise TypeError(
                    f"{who}: state must be the pair (c, context) that an earlier call returned, "
                    f"got {checks.type_name(state)}."
                )
            c, context = state
            if c is not None:
                checks.shaped(who, "the cells of the state", c, "(B, H)", (B, self.hidden_size), x)
            if context is not None:
                if self.context_size == 0:
                    raise ValueError(f"{who}: only a causal layer in the forward direction has a context.")
                sizes = (B, self.context_size, D)
                checks.shaped(who, "the context of the state", context, "(B, k - 1, D)", sizes, x)
            state = LayerState(c, context)
        return state, Rows.checked(who, x, lengths, starts)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}, kernel_size={self.kernel_size}, pooling='{self.pooling}'"
        if self.zoneout:
            text += f", zoneout={self.zoneout}"
        for name, default in (("causal", True), ("reverse", False)):
            if getattr(self, name) is not default:
                text += f", {name}={not default}"
        return text + ("" if self.bias is not None else ", bias=False")


def same_type(who: str, name: str, x: Tensor, weight: Tensor) -> None:
    """x on the device of the weights and of their type, or under autocast."""
    checks.same_device(who, name, x, "the weights", weight)
    # There is no autocast on the meta device, and asking for it is an error.
    autocast = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    if x.dtype != weight.dtype and not autocast:
        raise checks.ArgumentTypeError(
            f"{who}: {name} must have the type of the weights, {weight.dtype}, got {x.dtype}. "
            f"{name}.to({weight.dtype}), or the module .to({x.dtype})?"
        )
