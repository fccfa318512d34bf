"""The whole stack against float64 loops: outputs, last state and every gradient, in a sample that covers all pairs."""

import copy

import pytest
import torch
from torch import Tensor

from nn import reference_stack
from nn.reference_stack import assert_right, describe, parameters_of
from ops.cases import pairwise
from quasirnn import QRNN

pytestmark = pytest.mark.backends

SWITCH = (False, True)
SAMPLE = pairwise(
    7,
    T=(1, 2, 7, 33),
    B=(1, 3, 8),
    D=(1, 4, 9),
    H=(1, 5, 17),
    kernel_size=((1,), (2,), (6,), (2, 1), (1, 3), (6, 2), (3, 3), (2, 6, 1)),
    pooling=("f", "fo", "ifo"),
    dense=SWITCH,
    bidirectional=SWITCH,
    causal=SWITCH,
    bias=SWITCH,
    lengths=SWITCH,
    state=SWITCH,
)


def build(case: dict, dtype: torch.dtype) -> QRNN:
    names = ("kernel_size", "pooling", "dense", "bidirectional", "causal", "bias")
    settings = {name: case[name] for name in names}
    return QRNN(case["D"], case["H"], len(case["kernel_size"]), **settings, dtype=dtype)


def draw(case: dict, rnn: QRNN) -> dict[str, Tensor]:
    """Input, initial state and, for the loss, a weight for every number that comes out."""
    T, B, D, H, places = case["T"], case["B"], case["D"], case["H"], len(rnn.layers)
    tensors = {"x": torch.randn(T, B, D)}
    if case["state"]:
        tensors["c"] = torch.randn(places, B, H + rnn.context_width)
        for n, layer in enumerate(rnn.layers):
            tensors["c"][n, :, H + layer.context_size * layer.input_size :] = 0
    tensors["weight of output"] = torch.randn(T, B, H * rnn.num_directions)
    tensors["weight of h_n"] = torch.randn(places, B, H)
    tensors["weight of c_n"] = torch.randn(places, B, H + rnn.context_width)
    return tensors


def join(rnn: QRNN, cells: Tensor, contexts: list[Tensor]) -> Tensor:
    """c_n as documented: cells, then the last inputs, oldest first, padded with zeros to the widest layer's."""
    if rnn.bidirectional or not rnn.causal:
        return cells
    widest = max(context[0].numel() for context in contexts)
    padded = [torch.nn.functional.pad(c.flatten(1), (0, widest - c[0].numel())) for c in contexts]
    return torch.cat([cells, torch.stack(padded)], dim=-1)


def split(rnn: QRNN, c: Tensor | None) -> tuple[Tensor | None, list[Tensor] | None]:
    if c is None:
        return None, None
    cells, rest = c[..., : rnn.hidden_size], c[..., rnn.hidden_size :]
    if rest.shape[-1] == 0:
        return cells, None
    sizes = [(layer.weight.shape[1] - 1, layer.weight.shape[2]) for layer in rnn.layers]
    return cells, [rest[n, :, : k * D].reshape(c.shape[1], k, D) for n, (k, D) in enumerate(sizes)]


def results(call, parameters: dict[str, Tensor], tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """What a call gives and the gradient of everything it was given."""
    tensors = {name: value.to(dtype).detach() for name, value in tensors.items()}
    inputs = {name: tensors[name].requires_grad_() for name in ("x", "c") if name in tensors}
    found = call(**inputs)
    loss = sum((found[name] * tensors[f"weight of {name}"]).sum() for name in ("output", "h_n", "c_n"))
    names = [*parameters, *inputs]
    gradients = torch.autograd.grad(loss, [*parameters.values(), *inputs.values()])
    return {**found, **{f"gradient of {name}": g for name, g in zip(names, gradients, strict=True)}}


def ours(rnn: QRNN, tensors: dict[str, Tensor], lengths: Tensor | None, dtype: torch.dtype) -> dict[str, Tensor]:
    def call(x, c=None):
        # h of the state is not used: NaN in it may not show anywhere.
        state = None if c is None else (c.new_full((*c.shape[:2], rnn.hidden_size), torch.nan), c)
        output, (h_n, c_n) = rnn(x, state, lengths=lengths)
        return {"output": output, "h_n": h_n, "c_n": c_n}

    return results(call, dict(rnn.named_parameters()), tensors, dtype)


def loops(rnn: QRNN, tensors: dict[str, Tensor], lengths: Tensor | None, dtype: torch.dtype) -> dict[str, Tensor]:
    parameters = parameters_of(rnn, dtype)

    def call(x, c=None):
        found = reference_stack.run(rnn, parameters, x, *split(rnn, c), lengths)
        return {"output": found.output, "h_n": found.h_n, "c_n": join(rnn, found.cells, found.contexts)}

    return results(call, parameters, tensors, dtype)


def row_lengths(case: dict) -> Tensor | None:
    return torch.randint(1, case["T"] + 1, (case["B"],)) if case["lengths"] else None


@pytest.mark.parametrize("case", SAMPLE, ids=describe)
def test_guarantee_right_stack_in_float32(case, worst_cell):
    rnn = build(case, torch.float32)
    tensors, lengths = draw(case, rnn), row_lengths(case)
    mine = ours(rnn, tensors, lengths, torch.float32)
    plain = loops(rnn, tensors, lengths, torch.float32)
    truth = loops(rnn, tensors, lengths, torch.float64)
    assert mine.keys() == truth.keys()
    ratios = {name: assert_right(name, mine[name], plain[name], truth[name]) for name in truth}
    name = max(ratios, key=lambda name: ratios[name])
    worst_cell("stack against float64, float32", ratios[name], f"{name}, {describe(case)}")


@pytest.mark.parametrize("case", SAMPLE[::2], ids=describe)
def test_stack_in_float64_is_the_reference_to_rounding(case):
    rnn = build(case, torch.float64)
    tensors, lengths = draw(case, rnn), row_lengths(case)
    mine, truth = (call(rnn, tensors, lengths, torch.float64) for call in (ours, loops))
    for name, true in truth.items():
        # Both round, some hundred times in a row at most.
        torch.testing.assert_close(mine[name], true, rtol=0, atol=1e-14 * max(1.0, true.abs().max().item()))


@pytest.mark.parametrize("case", SAMPLE[::4], ids=describe)
def test_double_backward_through_the_stack(case):
    """A penalty on the gradient, as in Wasserstein GANs: its gradient is that of the loops."""
    rnn = build(case, torch.float64)
    lengths = row_lengths(case)
    x = torch.randn(case["T"], case["B"], case["D"], dtype=torch.float64, requires_grad=True)
    parameters = parameters_of(rnn, torch.float64)
    found = []
    for output, leaves in (
        (rnn(x, lengths=lengths)[0], list(rnn.parameters())),
        (reference_stack.run(rnn, parameters, x, lengths=lengths).output, list(parameters.values())),
    ):
        (gradient,) = torch.autograd.grad(output.sin().sum(), x, create_graph=True)
        found.append(torch.autograd.grad((gradient**2).sum(), [*leaves, x], materialize_grads=True))
    for mine, true in zip(*found, strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-11, atol=1e-12)


def test_batch_first_is_a_transposition():
    rnn = QRNN(3, 5, 2, bidirectional=True, kernel_size=(3, 2))
    turned = copy.deepcopy(rnn)
    turned.batch_first = True
    x, lengths = torch.randn(6, 4, 3), [6, 1, 3, 4]
    output, (h_n, c_n) = rnn(x, lengths=lengths)
    turned_output, (turned_h, turned_c) = turned(x.transpose(0, 1), lengths=lengths)
    assert torch.equal(turned_output, output.transpose(0, 1))
    assert torch.equal(turned_h, h_n)
    assert torch.equal(turned_c, c_n)
