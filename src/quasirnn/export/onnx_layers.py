"""QRNN layers as ONNX operators: a matrix product over the window for each gate, then a `Scan` of two operations.

Why a `Scan` and not the operator LSTM with zero recurrent weights: docs/decisions/014-onnx-scan.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from quasirnn.export.onnx_graph import Graph
from quasirnn.nn import QRNN, QRNNLayer


class Gates(NamedTuple):
    """What c[t] = f[t] * c[t-1] + update[t], h[t] = o[t] * c[t] needs."""

    f: str
    update: str
    o: str | None


class LayerValues(NamedTuple):
    h: str  # (T, B, H); (N, H) for one step
    c: str  # all cells, as h
    o: str | None
    h_last: str  # (B, H)
    c_last: str  # (B, H)
    context: str | None  # (B, (k - 1) * D)


class Padding(NamedTuple):
    """The lengths of the rows of a batch."""

    lengths: str  # (B,)
    valid: str  # (T, B, 1), true within a row


def rows(graph: Graph, lengths: str, x: str) -> Padding:
    """The lengths (B,) of the rows of x, (T, B, ...)."""
    zero, one = (graph.constant(np.array(number, np.int64)) for number in (0, 1))
    steps = graph("Range", zero, graph("Squeeze", graph.size(x, 0), graph.ints(0)), one)
    valid = graph("Less", graph("Unsqueeze", steps, graph.ints(1)), lengths)
    return Padding(lengths, graph("Unsqueeze", valid, graph.ints(2)))


def without_padding(graph: Graph, x: str, padding: Padding | None, fill: float = 0.0) -> str:
    return x if padding is None else graph("Where", padding.valid, x, graph.number(fill))


def layer(
    graph: Graph, layer: QRNNLayer, x: str, c0: str | None, context: str | None, padding: Padding | None
) -> LayerValues:
    """A layer over whole sequences, as `QRNNLayer.forward` in eval mode.

    Args:
        x: (T, B, D), zero in the padding.
        c0: (B, H); zero if None.
        context: (B, (k - 1) * D); zero if None.
    """
    k, D, H = layer.kernel_size, layer.input_size, layer.hidden_size
    padded = x
    if layer.context_size and context is not None:
        inputs_before = graph("Transpose", graph.reshape(context, 0, k - 1, D), perm=[1, 0, 2])
        padded = graph("Concat", inputs_before, x, axis=0)
    elif k > 1:
        outside = [k - 1 - layer.look_ahead, layer.look_ahead]
        first, last = reversed(outside) if layer.reverse else outside
        padded = graph("Pad", x, graph.ints(first, 0, 0, last, 0, 0))
    window = x
    if k > 1:
        parts = [graph.cut(padded, 0, j, *([j - k + 1] if j + 1 < k else [])) for j in range(k)]
        window = graph("Concat", *parts, axis=2)
    sizes = graph("Concat", graph("Shape", x, start=0, end=2), graph.ints(H), axis=0)
    products = _products(graph, layer, graph.reshape(window, -1, k * D))
    gates = _gates(graph, layer, [graph("Reshape", product, sizes) for product in products])
    f, update = without_padding(graph, gates.f, padding, 1.0), without_padding(graph, gates.update, padding)
    if c0 is None:
        c0 = graph.zeros(graph.size(x, 1), graph.ints(H))
    c_last, c = _scan(graph, f, update, c0, H, layer.reverse)
    h = c if gates.o is None else graph("Mul", gates.o, c)
    h = without_padding(graph, h, padding)
    if layer.reverse:
        h_last = graph.reshape(graph.cut(h, 0, 0, 1), -1, H)
    else:
        h_last = graph.reshape(_last_rows(graph, h, padding, 1, H), -1, H)
    last_inputs = None
    if layer.context_size:
        ends = _last_rows(graph, padded, padding, k - 1, D, offset=k - 1)
        last_inputs = graph.reshape(graph("Transpose", ends, perm=[1, 0, 2]), 0, (k - 1) * D)
    return LayerValues(h, c, gates.o, h_last, c_last, last_inputs)


def layer_step(
    graph: Graph, layer: QRNNLayer, x: str, c: str, context: str | None, extra_bias: str | None = None
) -> LayerValues:
    """A causal layer over one step: x (N, D), c (N, H), context (N, (k - 1) * D), extra_bias (B, gates * H).

    N is B, or n times as many: row b * n + j then has the extra bias of row b.
    """
    k, D = layer.kernel_size, layer.input_size
    window = x if k == 1 else graph("Concat", context or "", x, axis=1)
    products = _products(graph, layer, window)
    if extra_bias is not None:
        H, count = layer.hidden_size, len(products)
        groups = graph("Concat", graph.size(extra_bias, 0), graph.ints(-1, H), axis=0)
        own = graph.several("Split", count, graph("Unsqueeze", extra_bias, graph.ints(1)), axis=2, num_outputs=count)
        together = zip(products, own, strict=True)
        sums = [graph("Add", graph("Reshape", product, groups), bias) for product, bias in together]
        products = [graph.reshape(each, -1, H) for each in sums]
    gates = _gates(graph, layer, products)
    c = graph("Add", graph("Mul", gates.f, c), gates.update)
    h = c if gates.o is None else graph("Mul", gates.o, c)
    return LayerValues(h, c, gates.o, h, c, graph.cut(window, 1, D) if k > 1 else None)


def qrnn(
    graph: Graph, rnn: QRNN, x: str, state: str | None, padding: Padding | None, *, step: bool = False
) -> tuple[str, str, str]:
    """output, h_n and c_n of a network in eval mode.

    Args:
        x: (T, B, D), zero in the padding; (B, D) for a step.
        state: c_n of an earlier call, (L * directions, B, H + C); zero if None.
    """
    h_n, c_n = [], []
    outputs: list[str] = []
    width = rnn.hidden_size + rnn.context_width
    for n, part in enumerate(stacked(rnn)):
        c0, context = (None, None) if state is None else split_state(graph, part, state, n, width)
        if step:
            assert c0 is not None
            values = layer_step(graph, part, x, c0, context)
        else:
            values = layer(graph, part, x, c0, context, padding)
        outputs.append(values.h)
        h_n.append(graph("Unsqueeze", values.h_last, graph.ints(0)))
        c_n.append(join_state(graph, part, values, width))
        if (n + 1) % rnn.num_directions == 0:
            h = outputs[0] if len(outputs) == 1 else graph("Concat", *outputs, axis=-1)
            x = graph("Concat", x, h, axis=-1) if rnn.dense else h
            outputs = []
    return h, graph("Concat", *h_n, axis=0), graph("Concat", *c_n, axis=0)


def linear(graph: Graph, module: nn.Linear, x: str) -> str:
    product = graph("MatMul", x, graph.weight(module.weight.T))
    return product if module.bias is None else graph("Add", product, graph.weight(module.bias))


def embedded(graph: Graph, embedding: nn.Embedding, tokens: str) -> str:
    return graph("Gather", graph.weight(embedding.weight), tokens, axis=0)


def stacked(module: nn.Module) -> list[QRNNLayer]:
    """The layers of a QRNN, an encoder or a decoder."""
    return list(module.layers)  # type: ignore[arg-type]


def split_state(graph: Graph, part: QRNNLayer, state: str, n: int, width: int) -> tuple[str, str | None]:
    """Cells and context of layer n of a state, (layers, B, width)."""
    row = graph.reshape(graph.cut(state, 0, n, n + 1), -1, width)
    H, size = part.hidden_size, part.context_size * part.input_size
    if width == H:
        return row, None
    return graph.cut(row, 1, 0, H), graph.cut(row, 1, H, H + size) if size else None


def join_state(graph: Graph, part: QRNNLayer, values: LayerValues, width: int) -> str:
    """Cells, context, and zeros up to the widest layer's context, as one layer of a state, (1, B, width)."""
    columns = values.c_last
    if values.context is not None:
        columns = graph("Concat", columns, values.context, axis=1)
    missing = width - part.hidden_size - part.context_size * part.input_size
    columns = graph("Pad", columns, graph.ints(0, 0, 0, missing)) if missing else columns
    return graph("Unsqueeze", columns, graph.ints(0))


def _products(graph: Graph, layer: QRNNLayer, window: str) -> list[str]:
    """The pre-activations (N, H) of each gate: windows (N, k * D), in the order of memory, times the weight.

    A product for each gate, with its bias inside: one for all would need an addition and a split, two more
    passes over memory.
    """
    weight: Tensor = layer.weight.flip(1) if layer.reverse else layer.weight
    count = len(layer.pooling) + 1
    biases = [None] * count if layer.bias is None else layer.bias.chunk(count)
    return [
        graph("Gemm", window, graph.weight(part.T), *([] if bias is None else [graph.weight(bias)]))
        for part, bias in zip(weight.flatten(1).chunk(count), biases, strict=True)
    ]


def _gates(graph: Graph, layer: QRNNLayer, products: list[str]) -> Gates:
    """Non-linearities, and zoneout as its expectation (see `ops.reference.activate`)."""
    z, f, *others = products
    z, f, *others = graph("Tanh", z), *(graph("Sigmoid", gate) for gate in (f, *others))
    p = layer.zoneout
    if p > 0:
        f = graph("Add", graph("Mul", f, graph.number(1 - p)), graph.number(p))
    if len(others) == 2:
        i = others[1] if p == 0 else graph("Mul", others[1], graph.number(1 - p))
    else:
        i = graph("Sub", graph.number(1.0), f)
    return Gates(f, graph("Mul", i, z), others[0] if others else None)


def _scan(graph: Graph, f: str, update: str, c0: str, H: int, reverse: bool) -> tuple[str, str]:
    """The last cells (B, H) and all of them (T, B, H)."""
    step = Graph("step")
    for name in ("c", "f", "update"):
        step.input(name, "float32", ["B", H])
    new = step("Add", step("Mul", "f", "c"), "update")
    step.output("c_next", new, "float32", ["B", H])
    step.output("c_out", new, "float32", ["B", H])
    turned = {"scan_input_directions": [1, 1], "scan_output_directions": [1]} if reverse else {}
    last, every = graph.several("Scan", 2, c0, f, update, body=step.body(), num_scan_inputs=2, **turned)
    return last, every


def _last_rows(graph: Graph, x: str, padding: Padding | None, count: int, width: int, offset: int = 0) -> str:
    """The last steps of each row, (count, B, width), of x with `offset` steps before the first."""
    if padding is None:
        return graph.cut(x, 0, -count)
    first = graph("Add", padding.lengths, graph.ints(offset - count))
    steps = graph("Add", graph.constant(np.arange(count)[:, None]), first)  # (count, B)
    sizes = graph("Concat", graph("Shape", steps), graph.ints(width), axis=0)
    return graph("GatherElements", x, graph("Expand", graph("Unsqueeze", steps, graph.ints(2)), sizes), axis=0)
