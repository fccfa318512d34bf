"""QRNN as a module among others: edge sizes, copies, swapped parameters, threads, initial weights, repr."""

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from quasirnn import QRNN


def small(**options) -> QRNN:
    return QRNN(3, 5, 2, kernel_size=(3, 2), **options)


def loss_of(rnn, x, **options) -> torch.Tensor:
    output, (h_n, c_n) = rnn(x, **options)
    return output.sin().sum() + h_n.cos().sum() + (c_n**2).sum()


def gradients(rnn: nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(rnn.parameters())))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_unbatched_input_is_a_batch_of_one(batch_first, bidirectional):
    rnn = small(batch_first=batch_first, bidirectional=bidirectional)
    x = torch.randn(6, 3)
    output, state = rnn(x)
    batched, batched_state = rnn(x.unsqueeze(0 if batch_first else 1))
    assert torch.equal(output, batched.squeeze(0 if batch_first else 1))
    assert all(torch.equal(a, b.squeeze(1)) for a, b in zip(state, batched_state, strict=True))
    again, _ = rnn(x, state)
    assert torch.equal(again, rnn(x.unsqueeze(0 if batch_first else 1), batched_state)[0].view(6, -1))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_batch_of_no_rows_gives_an_empty_output_and_zero_gradients(bidirectional):
    rnn = small(bidirectional=bidirectional)
    x = torch.randn(6, 0, 3, requires_grad=True)
    lengths = torch.zeros(0, dtype=torch.int64)
    for options in ({}, {"lengths": lengths}, {"hx": rnn(x)[1]}):
        output, (h_n, _) = rnn(x, **options)
        assert output.shape == (6, 0, 5 * rnn.num_directions)
        assert h_n.shape == (2 * rnn.num_directions, 0, 5)
        for gradient, p in zip(gradients(rnn, loss_of(rnn, x, **options)), rnn.parameters(), strict=True):
            assert torch.equal(gradient, torch.zeros_like(p))
    assert rnn.inspect(x)["l1"]["z"].shape == (6, 0, 5)


@pytest.mark.parametrize("shape", [(0, 4, 3), (0, 0, 3), (0, 3)])
def test_a_sequence_of_no_steps_is_an_error(shape):
    with pytest.raises(ValueError, match="no time steps"):
        small()(torch.randn(shape))


@pytest.mark.parametrize("sizes", [(1, 1), (1, 70), (70, 1), (13, 29)])
@pytest.mark.parametrize("T", [1, 2, 130])
def test_any_sizes(sizes, T):
    rnn = QRNN(*sizes, 2, bidirectional=True, kernel_size=4)
    loss = loss_of(rnn, torch.randn(T, 1, sizes[0]))
    assert all(gradient.isfinite().all() for gradient in gradients(rnn, loss))


def test_copies_compute_the_same():
    rnn = small(bidirectional=True, dense=True, zoneout=0.2).eval()
    x = torch.randn(6, 4, 3)
    copies = [copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))]
    fresh = small(bidirectional=True, dense=True, zoneout=0.2)
    file = io.BytesIO()
    torch.save(rnn.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for other in (*copies, fresh.eval()):
        assert torch.equal(other(x)[0], rnn(x)[0])
        assert not {id(p) for p in other.parameters()} & {id(p) for p in rnn.parameters()}
    assert repr(copies[0]) == repr(copies[1]) == repr(rnn)


def test_functional_call_and_func_grad():
    rnn = small(dtype=torch.float64)
    x = torch.randn(6, 4, 3, dtype=torch.float64)
    others = {name: torch.randn_like(p) for name, p in rnn.named_parameters()}
    swapped = small(dtype=torch.float64)
    swapped.load_state_dict(others)
    output, _ = torch.func.functional_call(rnn, others, (x,))
    assert torch.equal(output, swapped(x)[0])

    def loss(parameters):
        return loss_of(lambda x: torch.func.functional_call(rnn, parameters, (x,)), x)

    found = torch.func.grad(loss)(others)
    for name, true in zip(others, gradients(swapped, loss_of(swapped, x)), strict=True):
        torch.testing.assert_close(found[name], true, rtol=1e-12, atol=1e-12)


def test_meta_device_then_memory():
    rnn = small(bidirectional=True, device="meta")
    assert rnn(torch.randn(6, 4, 3, device="meta"))[0].shape == (6, 4, 10)
    rnn = rnn.to_empty(device="cpu")
    for p in rnn.parameters():
        nn.init.constant_(p, torch.nan)
    torch.manual_seed(1)
    rnn.reset_parameters()
    torch.manual_seed(1)
    torch.testing.assert_close(rnn.state_dict(), small(bidirectional=True).state_dict(), rtol=0, atol=0)


def test_weight_drop():
    rnn = small()
    plain = copy.deepcopy(rnn)
    layer = rnn.layers[0]
    raw = nn.Parameter(layer.weight.detach().clone())
    del layer.weight
    layer.register_parameter("weight_raw", raw)
    mask = (torch.rand_like(raw) < 0.5).float() / 0.5
    layer.weight = raw * mask
    plain.layers[0].weight.data.mul_(mask)
    x = torch.randn(6, 4, 3)
    output, _ = rnn(x)
    assert torch.equal(output, plain(x)[0])
    loss_of(rnn, x).backward()
    loss_of(plain, x).backward()
    assert torch.equal(raw.grad, plain.layers[0].weight.grad * mask)
    assert "layers.0.weight_raw" in rnn.state_dict()


def test_parametrization():
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    rnn = small()
    plain = copy.deepcopy(rnn)
    plain.layers[1].weight.data.mul_(2)
    parametrize.register_parametrization(rnn.layers[1], "weight", Doubled())
    x = torch.randn(6, 4, 3)
    assert torch.equal(rnn(x)[0], plain(x)[0])
    loss_of(rnn, x).backward()
    loss_of(plain, x).backward()
    original = rnn.layers[1].parametrizations.weight.original
    assert torch.equal(original.grad, 2 * plain.layers[1].weight.grad)


def test_frozen_parameters():
    rnn, free = small(), small()
    free.load_state_dict(rnn.state_dict())
    x = torch.randn(6, 4, 3)
    loss_of(free, x).backward()
    for frozen in ("layers.0.weight", "layers.1.bias"):
        rnn.get_parameter(frozen).requires_grad_(False)
    loss_of(rnn, x).backward()
    for (name, p), true in zip(rnn.named_parameters(), free.parameters(), strict=True):
        assert (p.grad is None) if not p.requires_grad else torch.equal(p.grad, true.grad), name
    rnn.requires_grad_(False)
    x.requires_grad_()
    assert torch.autograd.grad(loss_of(rnn, x), x)[0].abs().sum() > 0
    assert not rnn(x.detach())[0].requires_grad


def test_checkpointing_recomputes_the_same():
    rnn = QRNN(3, 5, 2, zoneout=0.3, dropout=0.2)
    x = torch.randn(6, 4, 3, requires_grad=True)
    torch.manual_seed(2)
    usual = gradients(rnn, loss_of(rnn, x))
    torch.manual_seed(2)
    found = gradients(rnn, loss_of(lambda x: checkpoint(rnn, x, use_reentrant=False), x))
    assert all(torch.equal(a, b) for a, b in zip(found, usual, strict=True))


def test_gradients_accumulate():
    rnn = small().double()
    x = torch.randn(6, 4, 3, dtype=torch.float64)
    whole = gradients(rnn, loss_of(rnn, x))
    for rows in x.split(1, dim=1):
        loss_of(rnn, rows).backward()
    for p, true in zip(rnn.parameters(), whole, strict=True):
        torch.testing.assert_close(p.grad, true, rtol=1e-12, atol=1e-12)


def test_two_threads_share_a_module():
    rnn = small(bidirectional=True)
    inputs = [torch.randn(40, 7, 3), torch.randn(25, 11, 3)]
    alone = [(rnn(x)[0], *gradients(rnn, loss_of(rnn, x))) for x in inputs]
    start = threading.Barrier(2)
    wrong = []

    def work(n: int) -> None:
        torch.set_num_threads(1)
        start.wait()
        for _ in range(30):
            found = (rnn(inputs[n])[0], *gradients(rnn, loss_of(rnn, inputs[n])))
            wrong.extend(k for k, (a, b) in enumerate(zip(found, alone[n], strict=True)) if not torch.equal(a, b))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_guarantee_deterministic_repeated_runs_give_the_same_bits():
    rnn = QRNN(40, 70, 2, bidirectional=True, zoneout=0.2, dropout=0.2)
    x = torch.randn(50, 20, 40)
    found = []
    for _ in range(3):
        torch.manual_seed(4)
        found.append([rnn(x)[0], *gradients(rnn, loss_of(rnn, x))])
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(again, found[0], strict=True))


def test_initial_weights_as_documented():
    rnn = QRNN(60, 100, 2, kernel_size=(3, 1), pooling="ifo")
    for layer in rnn.layers:
        k, D = layer.kernel_size, layer.input_size
        bound = (3 / (k * D)) ** 0.5
        assert layer.weight.shape == (400, k, D)
        assert bound * 0.99 < layer.weight.abs().max() <= bound
        # Uniform: variance 1 / (k D), to four standard deviations of a variance from that many draws.
        assert layer.weight.var().item() * k * D == pytest.approx(1, abs=4 * (0.8 / layer.weight.numel()) ** 0.5)
        assert abs(layer.weight.mean().item()) < 4 * (1 / (k * D) / layer.weight.numel()) ** 0.5
        z, f, o, i = layer.bias.chunk(4)
        assert torch.equal(f, torch.ones(100)), "the forget gate starts with a bias of 1"
        assert not torch.stack([z, o, i]).any()
    assert all(layer.bias is None for layer in QRNN(3, 5, bias=False).layers)
    assert sum(p.numel() for p in QRNN(3, 5, 2, bias=False).parameters()) == 15 * 2 * 3 + 15 * 2 * 5


def test_repr_says_what_is_not_usual():
    assert repr(QRNN(3, 5)).splitlines()[1].strip() == "3, 5, kernel_size=2, pooling='fo'"
    told = QRNN(3, 5, 2, False, True, 0.5, True, kernel_size=(3, 1), pooling="f", zoneout=0.1, dense=True, causal=False)
    assert repr(told).splitlines()[1].strip() == (
        "3, 5, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True, kernel_size=(3, 1), "
        "pooling='f', zoneout=0.1, dense=True, causal=False"
    )
    assert repr(told.layers[1]) == (
        "QRNNLayer(3, 5, kernel_size=3, pooling='f', zoneout=0.1, causal=False, reverse=True, bias=False)"
    )
