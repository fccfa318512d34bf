"""int8 layers: their integers, how far they may be from the float64 reference, every mode, and what they refuse."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from quasirnn import QRNN, QRNNLayer, quantize
from quasirnn.models import LanguageModel
from quasirnn.nn.quantized import QuantizedEmbedding, QuantizedLinear
from quasirnn.ops.quantized import error_bound

pytestmark = pytest.mark.backends

MODES = [
    {},
    {"pooling": "f"},
    {"pooling": "ifo"},
    {"pooling": "ifo", "zoneout": 0.3},
    {"zoneout": 0.2, "kernel_size": 1},
    {"kernel_size": 3, "bias": False},
    {"kernel_size": 6},
    {"kernel_size": (4, 2), "dense": True},
    {"bidirectional": True},
    {"bidirectional": True, "kernel_size": 3, "pooling": "f"},
    {"causal": False},
    {"causal": False, "kernel_size": 5, "bidirectional": True},
    {"batch_first": True},
]


def ids(mode):
    return ", ".join(f"{key}={value}" for key, value in mode.items()) or "default"


def network(mode, D=13, H=21, layers=2):
    torch.manual_seed(1)
    return QRNN(D, H, layers, **mode).eval()


def shaped(mode, T=19, B=4, D=13):
    x = torch.randn(T, B, D)
    return x.transpose(0, 1) if mode.get("batch_first") else x


@pytest.mark.parametrize("mode", MODES, ids=ids)
@torch.no_grad()
def test_every_mode_is_near_the_float_network(mode):
    rnn, x = network(mode), shaped(mode)
    small = quantize(rnn)
    for lengths in (None, torch.tensor([19, 1, 7, 12])):
        output, (h, c) = rnn(x, lengths=lengths)
        got, (got_h, got_c) = small(x, lengths=lengths)
        assert got.dtype == torch.float32
        for here, there in ((got, output), (got_h, h), (got_c, c)):
            assert here.shape == there.shape
            # Some hundredths of what is there: 1 / 127 of each input and weight, averaged over many.
            assert (here - there).abs().max() <= 0.03 * there.abs().max()
        if lengths is not None:
            time_major = got.transpose(0, 1) if mode.get("batch_first") else got
            assert not time_major[torch.arange(19)[:, None] >= lengths].any(), "padding is zero"


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_guarantee_right_in_int8_error_is_within_the_bound(pooling, k, reverse, causal):
    """Pre-activations within the bound of docs/quantized.md, and what follows from it for gates, cells and outputs."""
    torch.manual_seed(k)
    layer = QRNNLayer(17, 24, kernel_size=k, pooling=pooling, causal=causal, reverse=reverse).eval()
    x = 3 * torch.randn(23, 3, 17)
    lengths = torch.tensor([23, 9, 14])
    small = quantize(nn.ModuleList([layer]))[0]
    exact = copy.deepcopy(layer).double()(x.double(), lengths=lengths, return_gates=True)
    got = small(x, lengths=lengths, return_gates=True)
    bound = bounds(layer.double(), x.double(), lengths, exact)
    slack = 1e-5
    for name, here, there in (
        *((name, getattr(got.gates, name), getattr(exact.gates, name)) for name in ("z", "f", "o", "i", "c")),
        ("h", got.h, exact.h),
    ):
        if there is not None:
            assert ((here.double() - there).abs() <= bound[name] + slack).all(), name


def bounds(layer, x, lengths, exact):
    """How far each of z, f, o, i, c and h may be off, (T, B, H), from the bound of the pre-activations on."""
    T, B, D = x.shape
    k, ahead = layer.kernel_size, layer.look_ahead
    past = torch.arange(T)[:, None] >= lengths
    x = x.masked_fill(past[..., None], 0)
    before, after = (ahead, k - 1 - ahead) if layer.reverse else (k - 1 - ahead, ahead)
    padded = torch.cat([x.new_zeros(before, B, D), x, x.new_zeros(after, B, D)])
    windows = padded.unfold(0, k, 1).movedim(-1, 2)  # (T, B, k, D)
    windows = windows.flip(2) if layer.reverse else windows
    pre = error_bound(windows.reshape(T * B, k * D), layer.weight.flatten(1)).view(T, B, -1)
    names = "zfoi"[: len(layer.pooling) + 1]
    # tanh has slopes up to 1, sigmoid up to 1 / 4.
    off = {name: part if name == "z" else part / 4 for name, part in zip(names, pre.chunk(len(names), -1), strict=True)}
    gates = exact.gates
    c, e = x.new_zeros(B, layer.hidden_size), x.new_zeros(B, layer.hidden_size)
    cells = x.new_zeros(T, B, layer.hidden_size)
    for t in reversed(range(T)) if layer.reverse else range(T):
        z, f = gates.z[t], gates.f[t]
        dz, df = off["z"][t], off["f"][t]
        keeps = (f + df) * e + df * c.abs()
        if "i" in off:
            i, di = gates.i[t], off["i"][t]
            new = keeps + i * dz + di * (z.abs() + dz)
        else:
            new = keeps + (1 - f) * dz + df * (z.abs() + dz)
        valid = ~past[t][:, None]
        e, c = torch.where(valid, new, e), torch.where(valid, gates.c[t], c)
        cells[t] = torch.where(valid, e, 0.0)
    off["c"] = cells
    off["h"] = cells if "o" not in off else off["o"] * (gates.c.abs() + cells) + gates.o * cells
    return {name: part.masked_fill(past[..., None], 0) for name, part in off.items()}


@torch.no_grad()
def test_guarantee_cut_anywhere_in_int8():
    for mode in ({}, {"kernel_size": (3, 1), "pooling": "ifo"}, {"dense": True, "zoneout": 0.1}):
        small, x = quantize(network(mode)), shaped(mode)
        whole, (h, c) = small(x)
        for cuts in ([7, 12], [1] * 19):
            state, parts = None, []
            for part in x.split(cuts):
                output, state = small(part, state)
                parts.append(output)
            assert torch.equal(torch.cat(parts), whole)
            assert torch.equal(state[0], h)
            assert torch.equal(state[1], c)


@torch.no_grad()
def test_packed_sequences():
    small, x, lengths = quantize(network({})), shaped({}), torch.tensor([3, 19, 8, 8])
    packed, state = small(pack_padded_sequence(x, lengths, enforce_sorted=False))
    output, _ = pad_packed_sequence(packed)
    padded, same = small(x, lengths=lengths)
    assert torch.equal(output, padded)
    assert all(map(torch.equal, state, same))


@torch.no_grad()
def test_guarantee_padding_cannot_leak_into_int8():
    small, x, lengths = quantize(network({"causal": False, "kernel_size": 3})), shaped({}), torch.tensor([19, 2, 9, 5])
    clean, _ = small(x, lengths=lengths)
    x[torch.arange(19)[:, None] >= lengths] = torch.nan
    assert torch.equal(small(x, lengths=lengths)[0], clean)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@torch.no_grad()
def test_bad_numbers_show(value):
    small, x = quantize(network({}, layers=1)), shaped({})
    clean, _ = small(x)
    x[9, 1, 3] = value
    output, _ = small(x)
    assert output[9:11, 1].isnan().all()
    assert torch.equal(output[:9], clean[:9])
    assert torch.equal(output[:, [0, 2, 3]], clean[:, [0, 2, 3]])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@torch.no_grad()
def test_bad_weights_show(value):
    """A network that has diverged must not look like one that works."""
    rnn, x = network({}, layers=1), shaped({})
    clean, _ = quantize(rnn)(x)
    rnn.layers[0].weight[3, 0, 5] = value
    output, _ = quantize(rnn)(x)
    assert output[..., 3].isnan().all()
    others = [channel for channel in range(21) if channel != 3]
    assert torch.equal(output[..., others], clean[..., others])


@torch.no_grad()
def test_zeros_and_numbers_near_nothing():
    rnn = network({}, layers=1)
    rnn.layers[0].weight[3] = 0
    rnn.layers[0].weight[4] = 1e-42
    small = quantize(rnn)
    for x in (torch.zeros(5, 2, 13), torch.full((5, 2, 13), 1e-42), torch.randn(5, 2, 13)):
        torch.testing.assert_close(small(x)[0], rnn(x)[0], atol=1e-2, rtol=0.05)
    assert small(1e38 * torch.randn(5, 2, 13))[0].isfinite().all()


def test_training_is_a_clear_error():
    small, x = quantize(network({})), shaped({})
    with pytest.raises(RuntimeError, match=r"int8 model is for inference.*eval\(\)"):
        small.train()(x)
    with pytest.raises(RuntimeError, match="int8 model is for inference"):
        small.eval()(x.requires_grad_())
    with pytest.raises(RuntimeError, match="use the original float32 model"):
        small.reset_parameters()
    assert not any(parameter.requires_grad for parameter in small.parameters())
    with torch.no_grad(), pytest.raises(TypeError, match=r"must have the type of the weights, torch\.float32"):
        small(x.double())


def test_what_cannot_be_quantised():
    with pytest.raises(ValueError, match="Linear has no QRNN layer"):
        quantize(nn.Linear(2, 3))
    with pytest.raises(ValueError, match="already quantised"):
        quantize(quantize(QRNN(2, 3)))
    with pytest.raises(TypeError, match=r"must be float32, got .*bfloat16"):
        quantize(QRNN(2, 3).bfloat16())


@torch.no_grad()
def test_the_original_stays_and_the_copy_has_a_quarter_of_the_bytes():
    rnn = network({}, D=64, H=64)
    before = copy.deepcopy(rnn.state_dict())
    small = quantize(rnn)
    assert all(torch.equal(rnn.state_dict()[name], value) for name, value in before.items())
    size = {id(m): sum(t.nbytes for t in m.state_dict().values()) for m in (rnn, small)}
    assert size[id(small)] < 0.3 * size[id(rnn)]
    other = quantize(network({}, D=64, H=64))
    other.load_state_dict(small.state_dict())
    x = torch.randn(5, 2, 64)
    assert torch.equal(other(x)[0], small(x)[0])


@torch.no_grad()
def test_linear_and_embedding_on_request():
    torch.manual_seed(2)
    shared = nn.Linear(8, 30, bias=False)
    model = nn.ModuleDict({"words": nn.Embedding(30, 8, padding_idx=2), "rnn": QRNN(8, 8), "out": shared})
    plain = quantize(model)
    assert type(plain["out"]) is nn.Linear
    assert type(plain["words"]) is nn.Embedding
    small = quantize(model, linear=True, embedding=True)
    assert isinstance(small["out"], QuantizedLinear)
    assert isinstance(small["words"], QuantizedEmbedding)
    tokens = torch.tensor([[1, 2], [29, 0]])
    vectors = model["words"](tokens)
    error = (small["words"](tokens) - vectors).abs()
    assert (error <= vectors.abs().amax(-1, keepdim=True) / 254 * 1.001).all()
    assert not small["words"](tokens)[0, 1].any(), "the padding's vector is zero"
    x = torch.randn(3, 5, 8)
    off = (small["out"](x) - shared(x)).abs().flatten(0, 1)
    assert (off <= error_bound(x.flatten(0, 1), shared.weight) + 1e-6).all()


def test_an_embedding_with_a_largest_norm_stays_as_it_is():
    model = nn.ModuleDict({"words": nn.Embedding(30, 8, max_norm=0.1), "rnn": QRNN(8, 8)})
    small = quantize(model, embedding=True)
    tokens = torch.arange(30)
    with torch.no_grad():
        assert torch.equal(small["words"](tokens), model["words"](tokens))


def test_tied_weights_stay_tied():
    words = nn.Embedding(30, 8)
    model = nn.ModuleDict({"words": words, "rnn": QRNN(8, 8), "out": nn.Linear(8, 30)})
    model["out"].weight = words.weight
    both = quantize(model, linear=True, embedding=True)
    assert both["out"].weight is both["words"].weight
    assert both["out"].scale is both["words"].scale
    assert both["out"].weight.dtype == torch.int8
    # Where one of the two stays as it is, so does the other.
    one = quantize(model, embedding=True)
    assert one["out"].weight is one["words"].weight
    assert one["out"].weight.dtype == torch.float32


def test_a_module_with_two_names_stays_one():
    shared = nn.Linear(8, 8)
    small = quantize(nn.Sequential(shared, QRNNLayer(8, 8), shared), linear=True)
    assert isinstance(small[2], QuantizedLinear)
    assert small[0] is small[2]


def test_a_model_inside_of_another_module(tmp_path):
    """Whose config is an object, as that of a model of transformers; what is inside can be saved and loaded."""

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = object()
            self.model = LanguageModel(9, hidden_size=4, num_layers=1)

    model = Wrapper()
    small = quantize(model)
    assert small.config is not None
    assert "quantized" not in model.model.config
    small.model.save_pretrained(tmp_path)
    tokens = torch.randint(9, (5, 2))
    with torch.no_grad():
        assert torch.equal(LanguageModel.from_pretrained(tmp_path)(tokens)[0], small.model(tokens)[0])


@torch.no_grad()
def test_export_and_compile():
    small, x = quantize(network({})), torch.randn(6, 2, 13)
    T, B = torch.export.Dim("T", min=2, max=100), torch.export.Dim("B", max=100)
    program = torch.export.export(small, (x,), dynamic_shapes=({0: T, 1: B},))
    for shape in ((6, 2), (17, 5)):
        x = torch.randn(*shape, 13)
        output, (h, c) = program.module()(x)
        expected, (expected_h, expected_c) = small(x)
        assert torch.equal(output, expected)
        assert torch.equal(h, expected_h)
        assert torch.equal(c, expected_c)
    compiled = torch.compile(small, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x)[0], expected)
