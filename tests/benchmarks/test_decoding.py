"""Beam search as it is timed: how long it searches, and what is made of the times."""

from dataclasses import replace

import pytest
import torch

from benchmarks.tiny import PLANS
from quasirnn.benchmarks import decoding
from quasirnn.benchmarks.result import Setting
from quasirnn.models import Translator

PLAN = PLANS["decoding"][1]


def test_sizes_are_batches_of_one_length_and_lengths_in_one_batch_each_once():
    assert [(size.B, size.T) for size in PLAN.sizes] == [(1, 5), (2, 5), (2, 3)]
    assert len(set(decoding.FULL.sizes)) == len(decoding.FULL.sizes) == 11


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_a_search_goes_to_the_length_of_its_source_with_its_whole_beam(cell, monkeypatch):
    torch.manual_seed(1)
    model = Translator(9, hidden_size=4, num_layers=2, cell=cell).eval()
    rows = []
    advance = model.advance
    monkeypatch.setattr(model, "advance", lambda tokens, state: rows.append(len(tokens)) or advance(tokens, state))
    sentences = decoding.search_pass(model, torch.randint(4, 9, (5, 2)), beam=3)()
    assert rows == [2, 6, 6, 6, 6]
    assert [[len(best.tokens) for best in sentence] for sentence in sentences] == [[5], [5]]
    assert not any(best.finished for sentence in sentences for best in sentence)


def test_speeds_count_the_characters_of_the_best_translations():
    result = decoding.run(replace(PLAN, lengths=()), Setting())
    for cell in result.cells:
        for name, seconds in cell["seconds"].items():
            assert cell["characters_per_second"][name] == pytest.approx(cell["B"] * cell["T"] / seconds["best"])
        assert cell["ratios"]["nn.LSTM"] == pytest.approx(
            cell["seconds"]["nn.LSTM"]["best"] / cell["seconds"]["QRNN"]["best"]
        )


def test_the_summary_names_the_fastest_and_what_a_batch_gains():
    cells = [
        {"B": 1, "T": 5, "characters_per_second": {"QRNN": 10.0, "nn.LSTM": 4.0}, "ratios": {"nn.LSTM": 2.5}},
        {"B": 2, "T": 5, "characters_per_second": {"QRNN": 15.0, "nn.LSTM": 5.0}, "ratios": {"nn.LSTM": 3.0}},
        {"B": 2, "T": 3, "characters_per_second": {"QRNN": 14.0, "nn.LSTM": 7.0}, "ratios": {"nn.LSTM": 2.0}},
    ]
    assert {figure.what: figure.value for figure in decoding.summarise(cells, PLAN)} == {
        "QRNN: most characters per second (batch 2, length 5)": 15.0,
        "nn.LSTM: most characters per second (batch 2, length 3)": 7.0,
        "nn.LSTM / QRNN, time: batch 1, length 5": 2.5,
        "nn.LSTM / QRNN, time: batch 2, length 5": 3.0,
        "QRNN: characters per second, batch 2 / batch 1": 1.5,
    }
