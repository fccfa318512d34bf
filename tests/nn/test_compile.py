"""Compiled and exported networks compute what the eager one does, gradients included, for any length and batch."""

import io
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim

from quasirnn import QRNN, QRNNLayer

pytestmark = pytest.mark.slow

# aot_eager traces forward and backward as every back end does, and then runs the graph as it is. Inductor, which also
# writes and compiles C++, takes half a minute and is tried once.
aot_eager = "aot_eager"
# What takes long there and has nothing to do with our operators: headers compiled ahead, which pay after many graphs,
# not after one; a pool of compiling processes; vectors, and trying out which of them there are.
IN_A_HURRY = {
    "cpp_cache_precompile_headers": False,
    "compile_threads": 1,
    "cpp.simdlen": 1,
    "cpp.vec_isa_ok": True,
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def results(rnn: nn.Module, call, *arguments: Tensor, **options) -> list[Tensor]:
    """Outputs, states and gradients of every parameter and of the first argument."""
    x = arguments[0].detach().requires_grad_()
    output, (h_n, c_n) = call(x, *arguments[1:], **options)
    loss = output.sin().sum() + h_n.cos().sum() + (c_n**2).sum()
    return [output, h_n, c_n, *torch.autograd.grad(loss, [*rnn.parameters(), x])]


def assert_same(mine: list[Tensor], true: list[Tensor]) -> None:
    """Equal up to the order in which gradients are added: 8 eps of the largest value."""
    for a, b in zip(mine, true, strict=True):
        size = max([1.0, *b.abs().flatten().tolist()])
        torch.testing.assert_close(a, b, rtol=0, atol=8 * torch.finfo(b.dtype).eps * size)


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"num_layers": 2, "bidirectional": True, "kernel_size": 3}, marks=pytest.mark.full)]
)
@torch._inductor.config.patch(IN_A_HURRY)
def test_inductor_whole_graph(options):
    rnn = QRNN(3, 5, **options)
    compiled = torch.compile(rnn, fullgraph=True, dynamic=True)
    for T, lengths in ((6, [6, 1, 3, 4]), (9, [2, 9, 9, 5])):
        x, rows = torch.randn(T, 4, 3), torch.tensor(lengths)
        assert_same(results(rnn, compiled, x, lengths=rows), results(rnn, rnn, x, lengths=rows))


VARIANTS = {
    "bidirectional": {"bidirectional": True, "kernel_size": 3},
    "causal": {"kernel_size": (3, 2), "pooling": "ifo"},
    "dense unmasked": {"dense": True, "causal": False, "kernel_size": (2, 4), "pooling": "f", "bias": False},
}


# The other three, exported, are below.
@pytest.mark.parametrize(
    ("name", "with_lengths"),
    [
        ("bidirectional", True),
        *(
            pytest.param(name, with_lengths, marks=pytest.mark.full)
            for name, with_lengths in product(VARIANTS, (False, True))
            if (name, with_lengths) != ("bidirectional", True)
        ),
    ],
)
def test_one_graph_and_no_recompilation_per_length(name, with_lengths):
    rnn = QRNN(3, 5, 2, **VARIANTS[name])
    counter = CompileCounterWithBackend(aot_eager)
    compiled = torch.compile(rnn, fullgraph=True, backend=counter)
    for T in (5, 9, 17, 33, 2, 4):
        x = torch.randn(T, 4, 3)
        lengths = {"lengths": torch.tensor([T, 1, 2, T - 1])} if with_lengths else {}
        assert_same(results(rnn, compiled, x, **lengths), results(rnn, rnn, x, **lengths))
    # The first length, then one graph for all.
    assert counter.frame_count <= 2


@torch._dynamo.config.patch(error_on_recompile=True)
def test_batch_size_and_state_need_no_recompilation_either():
    rnn = QRNN(3, 5, 2, kernel_size=(6, 2)).eval()
    compiled = torch.compile(rnn, fullgraph=True, backend=aot_eager, dynamic=True)
    for B in (4, 7, 15, 3):
        state = tuple(part.detach() for part in rnn(torch.randn(2, B, 3))[1])
        # Pieces shorter and longer than the window, on one graph.
        for T in (9, 2, 5, 3):
            x = torch.randn(T, B, 3)
            assert_same(results(rnn, compiled, x, state), results(rnn, rnn, x, state))
            state = tuple(part.detach() for part in rnn(x, state)[1])


def test_zoneout_and_dropout_are_reproducible_under_compile():
    rnn = QRNN(3, 50, 2, zoneout=0.5, dropout=0.3)
    compiled = torch.compile(rnn, fullgraph=True, backend=aot_eager)
    x = torch.randn(6, 4, 3)
    found = []
    for call, seed in ((compiled, 1), (compiled, 1), (rnn, 1), (compiled, 2)):
        torch.manual_seed(seed)
        found.append(results(rnn, call, x))
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])
    assert not torch.equal(found[0][0], found[3][0])
    rnn.eval()
    assert_same(results(rnn, compiled, x), results(rnn, rnn, x))


def test_layer_with_gates_and_addition():
    layer = QRNNLayer(3, 5, kernel_size=3, pooling="ifo")
    compiled = torch.compile(layer, fullgraph=True, backend=aot_eager)
    x, addition = torch.randn(6, 4, 3), torch.randn(4, 20, requires_grad=True)
    found = []
    for call in (compiled, layer):
        h, state, gates = call(x, extra_bias=addition, return_gates=True)
        loss = h.sum() + state.c.sum() + sum((gate**2).sum() for gate in gates)
        found.append([h, state.c, *gates, *torch.autograd.grad(loss, [*layer.parameters(), addition])])
    assert_same(*found)


def test_compiled_training_of_16_bit_autocast():
    rnn = QRNN(3, 5, 2, bidirectional=True)
    compiled = torch.compile(rnn, fullgraph=True, backend=aot_eager)
    x = torch.randn(6, 4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(results(rnn, compiled, x), results(rnn, rnn, x))


@pytest.mark.parametrize("bidirectional", [pytest.param(False, marks=pytest.mark.full), True])
def test_without_gradients(bidirectional):
    rnn = QRNN(3, 5, 2, kernel_size=3, bidirectional=bidirectional, zoneout=0.5).eval()
    compiled = torch.compile(rnn, fullgraph=True, backend=aot_eager)
    x = torch.randn(6, 4, 3)
    with torch.no_grad():
        exported = torch.export.export(rnn, (x,)).module()
        true, true_state = rnn(x)
        for call in (compiled, exported):
            output, state = call(x)
            assert_same([output, *state], [true, *true_state])
    # The graph made without gradients is not the one for training.
    assert_same(results(rnn, compiled, x), results(rnn, rnn, x))


def test_wrong_lengths_in_a_compiled_graph_are_an_error():
    rnn = QRNN(3, 5)
    compiled = torch.compile(rnn, fullgraph=True, backend=aot_eager)
    compiled(torch.randn(6, 4, 3), lengths=torch.tensor([6, 1, 3, 4]))
    # Its values are not known while the graph is made, so the operator itself, or an index, says so.
    with pytest.raises((RuntimeError, IndexError), match=r"lengths\[0\] = 7 is outside 1..6|out of bounds"):
        compiled(torch.randn(6, 4, 3), lengths=torch.tensor([7, 1, 3, 4]))


class WithLengths(nn.Module):
    """What is exported has positional arguments; lengths is by keyword only in QRNN."""

    def __init__(self, rnn: QRNN) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, lengths: Tensor):
        return self.rnn(x, lengths=lengths)


def through_a_file(program: torch.export.ExportedProgram) -> nn.Module:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


T_AND_B = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_export_with_dynamic_time_and_batch(options):
    rnn = QRNN(3, 5, 2, **options)
    program = torch.export.export(rnn, (torch.randn(7, 4, 3),), dynamic_shapes=(T_AND_B,))
    loaded = through_a_file(program)
    # 15 and 10 are widths of gates in these networks: no confusion of B with them.
    for T, B in ((7, 4), (12, 2), (2, 15), (33, 10), (1, 1)):
        x = torch.randn(T, B, 3)
        assert_same(results(loaded, loaded, x), results(rnn, rnn, x))


def test_export_with_lengths():
    model = WithLengths(QRNN(3, 5, 2, kernel_size=3))
    shapes = (T_AND_B, {0: Dim.DYNAMIC})
    program = torch.export.export(model, (torch.randn(7, 4, 3), torch.tensor([7, 1, 3, 2])), dynamic_shapes=shapes)
    loaded = through_a_file(program)
    for T, rows in ((7, [7, 1, 3, 2]), (12, [5, 12]), (2, [1, 2, 2])):
        x, lengths = torch.randn(T, len(rows), 3), torch.tensor(rows)
        assert_same(results(loaded, loaded, x, lengths), results(model, model, x, lengths))


def test_exported_network_streams_in_pieces_of_any_length():
    rnn = QRNN(3, 5, 2, kernel_size=(6, 2), dtype=torch.float64).eval()
    x = torch.randn(9, 4, 3, dtype=torch.float64)
    state = tuple(torch.zeros_like(part) for part in rnn(x)[1])
    shapes = (T_AND_B, ({1: Dim.DYNAMIC}, {1: Dim.DYNAMIC}))
    loaded = through_a_file(torch.export.export(rnn, (x, state), dynamic_shapes=shapes))
    outputs = []
    for piece in x.split([1, 2, 5, 1]):
        output, state = loaded(piece, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs), rnn(x)[0], rtol=0, atol=1e-14)
