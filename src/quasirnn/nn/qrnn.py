"""QRNN: a stack of layers with the interface of `nn.LSTM`.

For inference and single steps all layers run in one operator (`_fused_forward`). A step of 320 units takes about 50 us,
so every microsecond of Python before it counts: what can be looked up once is, and parameters are read from where
`nn.Module` keeps them.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Never, overload

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from quasirnn.nn.layer import LayerState, QRNNLayer, QRNNLayerOutput, same_type
from quasirnn.ops import backends, checks, torch_internals
from quasirnn.ops.autograd import dropout
from quasirnn.ops.checks import FUSED
from quasirnn.ops.operators import state_type
from quasirnn.ops.sequences import Lengths, Packed, Rows

State = tuple[Tensor, Tensor]

# Looked up once, for the single step.
stack, quantized_stack = torch.ops.quasirnn.stack.default, torch.ops.quasirnn.quantized_stack.default
is_grad_enabled = torch.is_grad_enabled
is_compiling = torch.compiler.is_compiling
strided = torch.strided


class QRNN(nn.Module):
    """Quasi-recurrent network (Bradbury, Merity, Xiong, Socher, 2017): `nn.LSTM` with one changed line.

        Z = tanh(W_z * X)   F = sigmoid(W_f * X)   O = sigmoid(W_o * X)     convolutions over time     (paper, eq. 1)
        c[t] = f[t] * c[t-1] + (1 - f[t]) * z[t]   h[t] = o[t] * c[t]       pooling                    (eq. 4)

    All matrix multiplications run in parallel over time; only the cheap pooling is sequential. f = 1 keeps the old
    state.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as in `nn.LSTM`.
        kernel_size: width of the convolution's window: one integer, or one per layer.
        pooling: "f" (no output gate, eq. 3), "fo" (eq. 4) or "ifo" (separate input gate, eq. 5).
        zoneout: probability p that a channel keeps its state for a step (eq. 6): at random in training, in eval its
            expectation, f' = p + (1 - p) f and, for "ifo", i' = (1 - p) i.
        dense: feed each layer the input and the outputs of all layers before it (section 2.1).
        causal: False unmasks the convolution: the window of step t is x[t - floor((k-1)/2)] ... x[t + floor(k/2)].
        proj_size: must be 0; accepted for compatibility with `nn.LSTM`. A QRNN has no projection.

    Inputs: `input`, (T, B, D), or (B, T, D) with `batch_first`, or unbatched (T, D), or a `PackedSequence`;
        `hx`, optional, the pair (h, c) an earlier call returned, or an LSTM-shaped pair (h_0, c_0) whose c_0 has H
        columns and initialises the cells; h_0 has no effect, as h is computed from c;
        `lengths`, optional, each row's own length; `starts` or `cu_seqlens`, optional, several sequences in a row: see
        `forward`.
    Outputs: `output`, (T, B, directions * H), zero past a row's length, in the form the input had;
        `(h_n, c_n)`: h_n is (num_layers * directions, B, H), the output at each row's own end; c_n has the cells in its
        first H columns and after them the last inputs of each layer's window, so that the pair, passed back whole,
        continues the sequence. Nothing is kept on the module.

    In eval mode a causal, one-directional QRNN gives the same output for a sequence cut anywhere. Otherwise a state
    sets the initial cells only.

    A sequence of no steps is a ValueError; a batch of no rows gives an empty output. Under autocast the multiplications
    run in the lower precision; cells, and so c_n, stay in float32, as they do for a QRNN in float16 or bfloat16.

    Dropout acts on the output of every layer but the last. With `dense` a dropped output stays dropped for all later
    layers.

    `layers` holds a `QRNNLayer` for each layer and direction; its documentation describes the initial weights.

    >>> rnn = QRNN(10, 20, num_layers=2)
    >>> output, (h_n, c_n) = rnn(torch.randn(7, 3, 10))
    >>> output.shape, h_n.shape
    (torch.Size([7, 3, 20]), torch.Size([2, 3, 20]))
    >>> torch.equal(output[-1], h_n[-1])
    True

    Differs from the paper: biases; zoneout with "ifo" (see `QRNNLayer`); the position of the unmasked window (the paper
    leaves that open).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        kernel_size: int | Sequence[int] = 2,
        pooling: str = "fo",
        zoneout: float = 0.0,
        dense: bool = False,
        causal: bool = True,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = checks.at_least_one("QRNN", "input_size", input_size)
        self.hidden_size = checks.at_least_one("QRNN", "hidden_size", hidden_size)
        self.num_layers = checks.at_least_one("QRNN", "num_layers", num_layers)
        self.bias = checks.switch("QRNN", "bias", bias)
        self.batch_first = checks.switch("QRNN", "batch_first", batch_first)
        self.dropout = checks.probability("QRNN", "dropout", dropout)
        self.bidirectional = checks.switch("QRNN", "bidirectional", bidirectional)
        self.kernel_sizes = _per_layer(kernel_size, num_layers)
        self.pooling = checks.pooling("QRNN", pooling, checks.POOLINGS)
        self.zoneout = checks.probability("QRNN", "zoneout", zoneout)
        self.dense = checks.switch("QRNN", "dense", dense)
        self.causal = checks.switch("QRNN", "causal", causal)
        if proj_size != 0:
            raise ValueError(
                f"QRNN: there is no projection, so proj_size must be 0, got {proj_size}. Put nn.Linear(hidden_size, "
                "proj_size) after the layer, or choose a smaller hidden_size."
            )
        self.proj_size = 0
        if self.dropout > 0 and num_layers == 1:
            warnings.warn(
                "QRNN: dropout applies between layers, so it has no effect with num_layers = 1.",
                stacklevel=2,
            )
        directions = 2 if bidirectional else 1
        self.layers = nn.ModuleList()
        width = input_size
        for k in self.kernel_sizes:
            for reverse in (False, True)[:directions]:
                layer = QRNNLayer(
                    width,
                    hidden_size,
                    kernel_size=k,
                    pooling=pooling,
                    zoneout=zoneout,
                    bias=bias,
                    causal=causal,
                    reverse=reverse,
                    device=device,
                    dtype=dtype,
                )
                self.layers.append(layer)
            width = (width if dense else 0) + directions * hidden_size
        # None where a cut sequence cannot be continued exactly: then there is no context, and no fused forward.
        self._context_width: int | None = None
        if causal and not bidirectional:
            self._context_width = max(layer.context_size * layer.input_size for layer in self._layers())
        self._h0_seen = False

    @property
    def mode(self) -> str:
        """As `nn.LSTM` has it, where it is "LSTM"."""
        return "QRNN"

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def context_width(self) -> int:
        """C: columns of c_n after the cells, the widest layer's (k - 1) * D; 0 where no context applies."""
        return self._context_width or 0

    def reset_parameters(self) -> None:
        """Draw new initial weights for every layer."""
        for layer in self._layers():
            layer.reset_parameters()

    def flatten_parameters(self) -> None:
        """Does nothing; for compatibility with `nn.LSTM`."""

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        lengths: Lengths = None,
        starts: Tensor | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor | PackedSequence, State]:
        """Run the network over a batch of sequences; inputs and outputs are described in the class.

        Args:
            input: (T, B, D), or (B, T, D) with `batch_first`, or unbatched (T, D), or a `PackedSequence`.
            hx: the pair (h, c) that an earlier call returned; zeros and no inputs before the first if not given.
            lengths: each row's own length, B integers in 1..T.
            starts: boolean, of the input's shape without its features: True where a new sequence starts inside a row.
                Its cells start at zero and its window does not reach into the sequence before, as in a call of its own:
                packed documents, episodes, rows that are padded on the left. The returned state is the one at the
                end of the row (of the backward direction, at its beginning).
            cu_seqlens: for one row of N sequences after one another, (T, D) or a batch of one: where each begins, and
                T, N + 1 integers. h_n and c_n are those of every sequence, as a batch of N.
        Returns:
            (output, (h_n, c_n)).
        """
        full_rows = lengths is None and starts is None and cu_seqlens is None
        fused = self._fused_forward(input, hx) if full_rows else None
        if fused is not None:
            return fused
        if isinstance(input, PackedSequence):
            if not full_rows:
                raise ValueError(
                    "QRNN: a PackedSequence has its own lengths; leave lengths=, starts= and cu_seqlens= out."
                )
            return self._forward_packed(input, hx)
        if isinstance(input, torch.fx.Proxy):
            return self._as_leaf(input, (input, hx), {"lengths": lengths, "starts": starts, "cu_seqlens": cu_seqlens})
        x, state, starts, has_batch = self._time_major(input, hx, starts)
        rows, has_context = self._check(x, state, lengths, starts, cu_seqlens)
        output, (h_n, c_n) = self._output(self._run(x, state, rows, has_context), rows)
        if not has_batch and cu_seqlens is None:
            h_n, c_n = h_n.squeeze(1), c_n.squeeze(1)
        return self._restored(output, has_batch), (h_n, c_n)

    if TYPE_CHECKING:

        @overload
        def __call__(self, input: PackedSequence, hx: State | None = None) -> tuple[PackedSequence, State]: ...
        @overload
        def __call__(
            self,
            input: Tensor,
            hx: State | None = None,
            *,
            lengths: Lengths = None,
            starts: Tensor | None = None,
            cu_seqlens: Tensor | Sequence[int] | None = None,
        ) -> tuple[Tensor, State]: ...
        def __call__(self, input: Any, hx: Any = None, **options: Any) -> Any: ...

    def inspect(
        self, input: Tensor, hx: State | None = None, *, lengths: Lengths = None, starts: Tensor | None = None
    ) -> dict[str, dict[str, Tensor]]:
        """Gates, cells and outputs of every layer by name: as in eval mode, differentiable, the model unchanged.

        Returns {"l0": {"z", "f", "o", "i", "c", "h"}, "l0_reverse": ..., "l1": ...}; o and i as the pooling has them.
        Each is (T, B, H), or (B, T, H) with `batch_first`, or (T, H) for unbatched input.

        >>> rnn = QRNN(3, 5, pooling="fo")
        >>> sorted(rnn.inspect(torch.randn(4, 1, 3))["l0"])
        ['c', 'f', 'h', 'o', 'z']
        """
        if isinstance(input, PackedSequence):
            raise TypeError(
                "QRNN: inspect takes a padded tensor and its lengths: input, lengths = pad_packed_sequence(input)?"
            )
        x, state, starts, has_batch = self._time_major(input, hx, starts)
        rows, has_context = self._check(x, state, lengths, starts)
        results = self._run(x, state, rows, has_context, inspect=True)
        by_name = {}
        for n, result in enumerate(results):
            assert result.gates is not None
            named = {**result.gates._asdict(), "h": result.h}
            name = f"l{n // self.num_directions}" + ("_reverse" if n % self.num_directions else "")
            by_name[name] = {key: self._restored(value, has_batch) for key, value in named.items() if value is not None}
        return by_name

    def _fused_forward(self, x: Any, state: Any) -> tuple[Tensor, State] | None:
        """Output and state by `quasirnn::stack`, all layers in one operator; None where that does not apply.

        None if a gradient, a random mask, a hook, a program transformation, a parametrised weight, or an input or
        state of another form is involved: then the layers run one by one, which gives the same result, and an error
        for wrong arguments.
        """
        C = self._context_width
        if C is None or is_grad_enabled() or is_compiling():
            return None
        if torch_internals.transforming() or torch_internals.autocast_active() or torch_internals.is_tracing():
            return None
        # torch's own register_module_forward_hook was used: the layers have to be called one by one.
        if torch_internals.has_global_hooks():
            return None
        if (
            type(x) is not Tensor
            or x.layout is not strided
            or x.dim() != 3
            or x.is_meta
            or (self.training and self.dropout)
        ):
            return None
        if self.batch_first:
            x = x.transpose(0, 1)
        T, B, width = x.shape
        if T == 0 or width != self.input_size or self.pooling not in FUSED:
            return None
        dtype, device = x.dtype, x.device
        layers = self._layers()
        zoneout = layers[0].zoneout
        weights, scales, biases = [], [], []
        for layer in layers:
            parameters = torch_internals.parameters_of(layer)
            # An int8 weight has scales, and takes their type.
            weight, bias, scale = parameters.get("weight"), parameters.get("bias"), parameters.get("scale")
            if weight is None or weight.device != device or (bias is None) == self.bias:
                return None
            if (weight if scale is None else scale).dtype != dtype:
                return None
            if torch_internals.has_hooks(layer) or layer.zoneout != zoneout:
                return None
            if zoneout and layer.training:
                return None
            weights.append(weight.contiguous())
            if scale is not None:
                scales.append(scale)
            if bias is not None:
                biases.append(bias.contiguous())
        c = None
        if state is not None:
            if type(state) is not tuple or len(state) != 2:
                return None
            h, c = state
            if type(h) is not Tensor or h.shape != (len(weights), B, self.hidden_size):
                return None
            if type(c) is not Tensor or c.layout is not strided or c.shape != (len(weights), B, self.hidden_size + C):
                return None
            if c.dtype != state_type(dtype) or c.device != device:
                return None
            c = c.contiguous()
        sizes = zoneout, len(self.pooling) + 1, self.dense
        if scales and (len(scales) < len(weights) or self.training):
            return None
        if device.type not in backends.asked:
            backends.warn_if_plain(device)
        try:
            if scales:
                output, h_n, c_n = quantized_stack(x.contiguous(), weights, scales, biases, c, *sizes)
            else:
                output, h_n, c_n = stack(x.contiguous(), weights, biases, c, *sizes)
        except RuntimeError:
            # The state of another network, for instance: the layers one by one report what is wrong.
            return None
        return output.transpose(0, 1) if self.batch_first else output, (h_n, c_n)

    def _time_major(self, input: Any, hx: Any, starts: Any) -> tuple[Tensor, Any, Any, bool]:
        """Input, state and starts time-major and with a batch, and whether the caller's have one.

        The input is checked here; the others, wherever their number of dimensions is wrong, are returned as they are.
        """
        with torch_internals.untraced():
            has_batch = _check_input(input, self.input_size, self.batch_first)
        of_steps = isinstance(starts, Tensor) and starts.dim() == 1 + has_batch
        if not has_batch:
            return input.unsqueeze(1), _with_batch(hx), starts.unsqueeze(1) if of_steps else starts, False
        if self.batch_first:
            return input.transpose(0, 1), hx, starts.transpose(0, 1) if of_steps else starts, True
        return input, hx, starts, True

    def _restored(self, x: Tensor, has_batch: bool) -> Tensor:
        """A time-major sequence as the caller has it."""
        if not has_batch:
            return x.squeeze(1)
        return x.transpose(0, 1) if self.batch_first else x

    def _check(
        self, x: Tensor, state: Any, lengths: Lengths, starts: Tensor | None, cu_seqlens: Any = None
    ) -> tuple[Rows, bool]:
        """Where the sequences in the rows start and end, and whether the state has the last inputs: all checked."""
        rows = Rows(None)
        with torch_internals.untraced():
            if cu_seqlens is not None:
                if lengths is not None or starts is not None or state is not None:
                    raise ValueError(
                        "QRNN: cu_seqlens= gives the start and end of every sequence; leave hx, lengths, starts out."
                    )
                T, B, _ = x.shape
                if B != 1:
                    raise checks.ShapeError(
                        f"QRNN: cu_seqlens= needs a single row, (T, D) or a batch of 1, got {B} rows."
                    )
                packed = Packed("QRNN", cu_seqlens, T, x.device)
                rows = Rows(None, packed.starts, packed)
            elif lengths is not None or starts is not None:
                rows = Rows.checked("QRNN", x, lengths, starts)
            layers = self._layers()
            same_type("QRNN", "input", x, layers[0].input_like)
            has_context = state is not None and _check_state(state, layers, self.context_width, x)
            if state is not None and not has_context:
                self._warn_of_h0(*state)
        return rows, has_context

    def _run(
        self, x: Tensor, state: State | None, rows: Rows, has_context: bool, *, inspect: bool = False
    ) -> list[QRNNLayerOutput]:
        """Every layer and direction in turn, time-major; `inspect` as in eval mode, with all gates."""
        layers = self._layers()
        states = [
            None if state is None else _layer_state(state[1][n], layers[n], has_context) for n in range(len(layers))
        ]
        options: dict[str, Any] = {"return_gates": True, "training": False} if inspect else {}
        results: list[QRNNLayerOutput] = []
        for depth in range(self.num_layers):
            places = range(depth * self.num_directions, (depth + 1) * self.num_directions)
            results += [layers[n](x, states[n], lengths=rows, **options) for n in places]
            if depth + 1 == self.num_layers:
                break
            h = self._side_by_side([results[n].h for n in places])
            h = dropout(h, self.dropout, self.training and not inspect)
            # Under autocast the next layer would round x to the type of h anyway.
            x = torch.cat([x.to(h.dtype), h], dim=-1) if self.dense else h
        return results

    def _output(self, results: list[QRNNLayerOutput], rows: Rows) -> tuple[Tensor, State]:
        """The output of the last layer, and the state of all, time-major."""
        output = self._side_by_side([result.h for result in results[-self.num_directions :]])
        return output, _join_state(results, self._layers(), self.context_width, rows)

    def _forward_packed(self, packed: PackedSequence, state: State | None) -> tuple[PackedSequence, State]:
        if packed.data.dim() != 2:
            raise ValueError(
                f"QRNN: the data of a PackedSequence must have 2 dimensions (rows, D), got {tuple(packed.data.shape)}."
            )
        x, row_lengths = pad_packed_sequence(packed)
        # Rows are now in the order in which the caller has them, as are the states; only the packed output is sorted.
        with torch_internals.untraced():
            _check_input(x, self.input_size, batch_first=False)
        rows, has_context = self._check(x, state, row_lengths, None)
        output, new_state = self._output(self._run(x, state, rows, has_context), rows)
        lengths = rows.lengths
        assert lengths is not None
        if packed.sorted_indices is not None:
            output = output.index_select(1, packed.sorted_indices)
            lengths = lengths.index_select(0, packed.sorted_indices)
        data = pack_padded_sequence(output, lengths.cpu()).data
        return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), new_state

    def _side_by_side(self, directions: list[Tensor]) -> Tensor:
        return directions[0] if len(directions) == 1 else torch.cat(directions, dim=-1)

    def _warn_of_h0(self, h: Tensor, c: Tensor) -> None:
        """Warn once where an LSTM's (h_0, c_0) relies on h_0. Of a state of our own |h| <= |c|, since h = o * c."""
        if self._h0_seen or torch.compiler.is_compiling():
            return
        learned = h.requires_grad and (h.is_leaf or not c.requires_grad)
        if not learned and _is_readable(c):
            # 16-bit outputs are rounded.
            ours = 0.0 if self.context_width else 1.01 * c.detach().abs().to(h.dtype)
            learned = bool((h.detach().abs() > ours).any()) and not torch.equal(h, c)
        if learned:
            self._h0_seen = True
            warnings.warn(
                "QRNN: h_0 has no effect: h is computed from the cells, which only c_0 initialises. To condition the "
                "network or to learn its initial state, pass it as c_0: rnn(input, (torch.zeros_like(h_0), h_0)).",
                stacklevel=backends.callers_level(),
            )

    def _as_leaf(self, proxy: torch.fx.Proxy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Under torch.fx.symbolic_trace the network is one node, as `nn.LSTM` is."""
        tracer: Any = proxy.tracer
        return tracer.create_proxy("call_module", tracer.path_of_module(self), args, kwargs)

    def __prepare_scriptable__(self) -> Never:
        raise RuntimeError(
            "QRNN: torch.jit.script cannot compile this layer. Use torch.jit.trace(module.eval(), example), "
            "torch.export.export(module, (example,)) or torch.compile(module)."
        )

    def __getattr__(self, name: str) -> Any:
        # Every name of named_parameters() is an attribute, "layers.0.weight" too.
        if "." in name:
            owner, _, attribute = name.rpartition(".")
            return getattr(self.get_submodule(owner), attribute)
        return super().__getattr__(name)

    def _layers(self) -> list[QRNNLayer]:
        return list(torch_internals.modules_of(torch_internals.modules_of(self)["layers"]).values())

    def extra_repr(self) -> str:
        widths = set(self.kernel_sizes)
        sizes = f"{self.input_size}, {self.hidden_size}"
        shown = {
            "num_layers": (self.num_layers, 1),
            "bias": (self.bias, True),
            "batch_first": (self.batch_first, False),
            "dropout": (self.dropout, 0.0),
            "bidirectional": (self.bidirectional, False),
            "kernel_size": (self.kernel_sizes[0] if len(widths) == 1 else self.kernel_sizes, None),
            "pooling": (self.pooling, None),
            "zoneout": (self.zoneout, 0.0),
            "dense": (self.dense, False),
            "causal": (self.causal, True),
        }
        return ", ".join(
            [sizes, *(f"{name}={value!r}" for name, (value, default) in shown.items() if value != default)]
        )


def _per_layer(kernel_size: int | Sequence[int], num_layers: int) -> tuple[int, ...]:
    """One width per layer."""
    if isinstance(kernel_size, int):
        return (checks.at_least_one("QRNN", "kernel_size", kernel_size),) * num_layers
    if isinstance(kernel_size, str) or not isinstance(kernel_size, Sequence):
        raise TypeError(f"QRNN: kernel_size must be an integer or one per layer, got {type(kernel_size).__name__}.")
    if len(kernel_size) != num_layers:
        raise ValueError(
            f"QRNN: kernel_size has {len(kernel_size)} widths for num_layers = {num_layers}; give one per layer, or "
            "one integer for all."
        )
    return tuple(checks.at_least_one("QRNN", "kernel_size", k) for k in kernel_size)


def _check_input(x: Any, input_size: int, batch_first: bool) -> bool:
    """Whether an input, checked, has a batch."""
    x = checks.is_float("QRNN", "input", x)
    if x.dim() not in (2, 3):
        sizes = "(B, T, D)" if batch_first else "(T, B, D)"
        raise checks.ShapeError(
            f"QRNN: input must have shape {sizes}, or (T, D) without a batch, got {tuple(x.shape)}."
        )
    if x.shape[-1] != input_size:
        hint = " Is its last dimension the features?" if input_size in x.shape else ""
        raise checks.ShapeError(
            f"QRNN: the last dimension of input must be input_size = {input_size}, got shape {tuple(x.shape)}.{hint}"
        )
    has_batch: bool = x.dim() == 3
    if x.shape[1 if has_batch and batch_first else 0] == 0:
        raise checks.ShapeError(f"QRNN: input has no time steps, shape {tuple(x.shape)}; T must be at least 1.")
    return has_batch


def _with_batch(state: Any) -> Any:
    """The state of an unbatched input has no batch dimension either."""
    if not isinstance(state, tuple | list):
        return state
    for part in state:
        if isinstance(part, Tensor) and part.dim() != 2:
            raise checks.ShapeError(
                f"QRNN: without a batch, h and c of the state must have 2 dimensions (num_layers * directions, H), "
                f"got {tuple(part.shape)}."
            )
    return tuple(part.unsqueeze(1) if isinstance(part, Tensor) else part for part in state)


def _check_state(state: Any, layers: list[QRNNLayer], C: int, x: Tensor) -> bool:
    """Whether a state, checked, has C columns of last inputs after its cells: the context of the convolutions."""
    count, B, H = len(layers), x.shape[1], layers[0].hidden_size
    if not isinstance(state, tuple | list) or len(state) != 2:
        hint = " One tensor is a GRU's state; here it is a pair, as an LSTM's." if isinstance(state, Tensor) else ""
        raise TypeError(
            f"QRNN: hx must be the pair (h, c) that an earlier call returned, got {checks.type_name(state)}.{hint}"
        )
    h, c = state
    checks.shaped("QRNN", "hx[0]", h, "(num_layers * directions, B, H)", (count, B, H), x)
    checks.is_float("QRNN", "hx[1]", c)
    if c.dim() != 3 or c.shape[:2] != (count, B) or c.shape[-1] not in (H, H + C):
        also = f" (or {H + C} columns, with the last inputs, as returned)" if C else ""
        # The state of another QRNN, an encoder's for instance: its last inputs mean nothing here.
        other = c.dim() == 3 and c.shape[:2] == (count, B) and c.shape[-1] > H
        hint = f" The cells of another QRNN, without its last inputs, are c[..., :{H}]." if other else ""
        raise checks.ShapeError(f"QRNN: hx[1] must have shape {(count, B, H)}{also}, got {tuple(c.shape)}.{hint}")
    checks.same_device("QRNN", "hx[1]", c, "the input", x)
    has_context = C > 0 and c.shape[-1] == H + C
    if has_context and _is_readable(c):
        _check_unused_columns(c.detach(), layers, H, C)
    return has_context


def _is_readable(c: Tensor) -> bool:
    """Whether checking values costs little: not in a traced program, nor where a GPU would be synchronised."""
    return c.device.type == "cpu" and not torch.compiler.is_compiling() and not torch_internals.transforming()


def _check_unused_columns(c: Tensor, layers: list[QRNNLayer], H: int, C: int) -> None:
    """After the context of a narrow layer come zeros; anything else is the context of another network."""
    for n, layer in enumerate(layers):
        used = layer.context_size * layer.input_size
        if used < C and bool(c[n, :, H + used :].any()):
            raise checks.ShapeError(
                f"QRNN: hx is the state of another network: columns {H + used} to {H + C - 1} of hx[1][{n}] are "
                f"not zero, and this one's layer {n} has {used} inputs in its window. The cells of another QRNN, "
                f"without its last inputs, are c[..., :{H}]."
            )


def _layer_state(c: Tensor, layer: QRNNLayer, has_context: bool) -> LayerState:
    """The state of one layer and direction from its row of c: cells, then the last inputs. h follows from c."""
    H, k, D = layer.hidden_size, layer.context_size, layer.input_size
    context = c[:, H : H + k * D].reshape(c.shape[0], k, D) if has_context and k else None
    return LayerState(c[:, :H], context)


def _join_state(results: list[QRNNLayerOutput], layers: list[QRNNLayer], C: int, rows: Rows) -> State:
    """(h_n, c_n) from each layer's result: outputs at each row's own end; cells, then C columns of last inputs."""
    h_n, c_n = [], []
    lengths = rows.lengths
    for layer, result in zip(layers, results, strict=True):
        if rows.packed is not None:
            h_n.append(result.h[rows.packed.ends(layer.reverse), 0])
        elif layer.reverse:
            h_n.append(result.h[0])
        elif lengths is None:
            h_n.append(result.h[-1])
        else:
            h_n.append(result.h[lengths - 1, torch.arange(lengths.shape[0], device=lengths.device)])
        c, context = result.state
        if C:
            if context is not None:
                c = torch.cat([c, context.flatten(1).to(c.dtype)], dim=1)
            missing = C - layer.context_size * layer.input_size
            c = functional.pad(c, (0, missing)) if missing else c
        c_n.append(c)
    # A copy even of one layer's: a state that is kept must not hold the whole output's memory.
    return torch.stack(h_n), torch.stack(c_n)
