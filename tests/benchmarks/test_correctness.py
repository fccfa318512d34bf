import pytest
import torch

from quasirnn.benchmarks import correctness


@pytest.mark.parametrize("variant", correctness.VARIANTS, ids=str)
def test_every_variant_that_is_timed_is_correct(variant):
    check = correctness.check_layer(*variant)
    assert check.ok, check


def test_double_precision_is_held_to_double_precision():
    check = correctness.check_layer(dtype=torch.float64)
    assert check.ok
    assert check.allowed < 1e-12


def test_a_wrong_pooling_is_detected(monkeypatch):
    correct = correctness.fo_pool
    monkeypatch.setattr(correctness, "fo_pool", lambda z, f, o, c0: correct(z, 1 - f, o, c0))
    with pytest.raises(correctness.WrongNumbers, match="nothing is timed"):
        correctness.require_correct()


@pytest.mark.parametrize("wrong", ["training", "inference", "steps"])
def test_a_layer_that_is_wrong_in_one_mode_only_is_detected(monkeypatch, wrong):
    class Wrong(correctness.QRNN):
        def forward(self, x, state=None):
            mode = "training" if self.training else "inference" if len(x) > 1 else "steps"
            output, state = super().forward(x, state)
            return (output * (1 + 1e-4), state) if mode == wrong else (output, state)

    monkeypatch.setattr(correctness, "QRNN", Wrong)
    assert not correctness.check_layer().ok


def test_a_nan_is_not_correct(monkeypatch):
    correct = correctness.fo_pool
    monkeypatch.setattr(correctness, "fo_pool", lambda z, f, o, c0: correct(z * float("nan"), f, o, c0))
    assert not correctness.check_pooling().ok


def test_checking_leaves_the_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    correctness.require_correct()
    assert torch.equal(torch.rand(3), expected)
