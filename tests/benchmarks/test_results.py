"""What each benchmark measures and summarises. How it is printed and drawn: tests/cli/test_bench.py."""

import math

import torch
from torch import nn

from benchmarks.tiny import AT_ONCE, PLANS
from quasirnn import QRNN
from quasirnn.benchmarks import floor, layer, passes, train_step
from quasirnn.benchmarks.result import Figure, Setting
from quasirnn.benchmarks.tables import grid_table, ratio_grid, summary_table


def test_every_cell_is_announced_and_measured():
    seen = []
    plan = PLANS["layer"][1]
    result = layer.run(plan, Setting(), lambda *now: seen.append(now))
    assert [done for done, _, _ in seen] == list(range(9))
    assert seen[0][1:] == (8, "inference, batch 1, length 2")
    assert [(cell["mode"], cell["B"], cell["T"]) for cell in result.cells] == [
        (mode, B, T) for mode in ("inference", "training") for B in (1, 2) for T in (2, 3)
    ]
    for cell in result.cells:
        assert cell["ratios"]["nn.LSTM"] == cell["seconds"]["nn.LSTM"]["best"] / cell["seconds"]["QRNN"]["best"]


def test_the_summary_of_the_layer_has_means_and_the_worst_cell():
    cells = [
        {"mode": mode, "B": B, "T": 32, "ratios": {"nn.LSTM": ratio}}
        for mode in ("inference", "training")
        for B, ratio in ((1, 4.0), (8, 1.0))
    ]
    assert layer.summarise(cells)[:3] == [
        Figure("nn.LSTM / QRNN, inference: geometric mean", 2.0),
        Figure("nn.LSTM / QRNN, inference: worst cell (batch 8 x length 32)", 1.0),
        Figure("nn.LSTM / QRNN, inference: geometric mean at batch 1", 4.0),
    ]


def test_the_summary_of_the_floor_keeps_its_blocks_apart():
    common = {"B": 16, "T": 64, "H": 320, "k": 2}
    cells = [
        {"block": "grid", "mode": mode, "pooling": "fo", "ratio": ratio, **common}
        for mode in ("inference", "training")
        for ratio in (1.0, 1.21)
    ]
    cells += [
        {"block": "variants", "mode": "inference", "pooling": pooling, "ratio": ratio, **common}
        for pooling, ratio in (("f", 1.0), ("fo", 9.0), ("ifo", 1.44))
    ]
    cells.append({"block": "float64", "mode": "training", "pooling": "fo", "ratio": 7.0, **common})
    assert {figure.what: round(figure.value, 6) for figure in floor.summarise(cells)} == {
        "inference: geometric mean": 1.1,
        "inference: worst cell (batch 16 x length 64)": 1.21,
        "training: geometric mean": 1.1,
        "training: worst cell (batch 16 x length 64)": 1.21,
        "variants, f and ifo: geometric mean": 1.2,
        "variants, fo: geometric mean": 9.0,
        "variants: worst cell (fo, 320 units, width 2)": 9.0,
        "float64, training (batch 16 x length 64)": 7.0,
    }


def test_the_floor_multiplies_as_much_as_the_layer():
    """Counted by torch: the products of a QRNN pass, in inference and training, are those of the bare GEMMs."""
    from torch.utils.flop_counter import FlopCounterMode

    T, B, H, k = 7, 3, 8, 2
    for mode, products in (("inference", 1), ("training", 3)):
        bare = passes.gemm_pass(T * B, k * H, 3 * H, mode, torch.float32, "cpu")
        with FlopCounterMode(display=False) as counter:
            bare()
        assert counter.get_total_flops() == products * 2 * (T * B) * (k * H) * (3 * H)


def test_a_training_pass_asks_for_every_gradient(monkeypatch):
    asked = []
    real = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda out, wanted, grad: asked.append(wanted) or real(out, wanted, grad)
    )
    rnn = QRNN(4, 4)
    passes.layer_pass(rnn, torch.randn(2, 3, 4), "training")()
    assert [each.shape for each in asked[0]] == [(2, 3, 4), rnn.layers[0].weight.shape, rnn.layers[0].bias.shape]


def test_a_stream_goes_on_from_its_state():
    inputs, outputs = [], []

    def note(module, arguments, result):
        inputs.append(arguments[0])
        outputs.append(result[0])

    rnn = QRNN(4, 4)
    rnn.register_forward_hook(note)
    one = passes.step_pass(rnn, torch.randn(1, 1, 4))
    for _ in range(3):
        one()
    with torch.no_grad():
        whole = rnn(torch.cat(inputs))[0]
    torch.testing.assert_close(torch.cat(outputs[:3]), whole)


def test_the_cut_graph_has_the_gradients_of_the_whole():
    plan = train_step.Plan(AT_ONCE, H=4, vocabulary=11, B=2, T=5, dropout=0.0, clip=math.inf, l2=0.0)
    batch = train_step.TrainingBatch(nn.LSTM(4, 4, 2), plan, "cpu")
    before = [p.detach().clone() for p in batch.parameters]
    logits = batch.decoder(batch.rnn(batch.embedding(batch.words[:-1]))[0])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.words[1:].flatten())
    gradients = torch.autograd.grad(loss, batch.parameters)
    batch()
    for p, old, gradient in zip(batch.parameters, before, gradients, strict=True):
        torch.testing.assert_close(p.detach(), old - plan.learning_rate * gradient)
    assert set(batch.batches[0]) == set(train_step.PARTS)


def test_a_loop_over_cells_is_the_lstm():
    loop = train_step.LSTMCells(4, 2, 0.0, "cpu")
    lstm = nn.LSTM(4, 4, 2)
    for depth, cell in enumerate(loop.cells):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(lstm, f"{name}_l{depth}").data.copy_(getattr(cell, name).data)
    x = torch.randn(5, 3, 4)
    torch.testing.assert_close(loop(x)[0], lstm(x)[0])


def test_grid_and_summary():
    cells = [{"B": 1, "T": 2, "ratio": 1.5}, {"B": 8, "T": 4, "ratio": 2.5}]
    grid = ratio_grid("a /\nb", cells, lambda cell: cell["ratio"])
    assert (grid.rows, grid.columns) == (["1", "8"], ["2", "4"])
    assert grid.values[0, 0] == 1.5
    assert math.isnan(grid.values[0, 1])
    table = grid_table(grid, "time")
    assert (table.title, table.header) == ("a / b: time", ["batch \\ length", "2", "4"])
    assert table.rows == [["1", "1.50", "nan"], ["8", "nan", "2.50"]]
    table = summary_table([Figure("memory", 17.25, "MB"), Figure("other", 1.0)])
    assert table.rows == [["memory", "17.2 MB"], ["other", "1.00"]]
