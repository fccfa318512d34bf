"""Attention with 16-bit operands: logits in float32, and derivatives of every kind."""

import torch

from quasirnn.models.attention import _logits


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(2, 5, 8).bfloat16(), torch.randn(2, 8, 7).bfloat16()


def test_logits_of_16_bit_operands_are_exact_to_float32():
    queries, keys = operands()
    logits = _logits(queries, keys)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), queries.double() @ keys.double(), rtol=1e-6, atol=1e-6)


def test_gradients_of_the_logits_are_of_the_operands_type_and_have_gradients():
    queries, keys = (each.requires_grad_() for each in operands())
    grads = torch.autograd.grad(_logits(queries, keys).sin().sum(), (queries, keys), create_graph=True)
    exact = [each.detach().double().requires_grad_() for each in (queries, keys)]
    truth = torch.autograd.grad((exact[0] @ exact[1]).sin().sum(), exact, create_graph=True)
    for found, expected in zip(grads, truth, strict=True):
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.double(), expected, rtol=0.05, atol=0.05)
    (second,) = torch.autograd.grad(grads[0].float().square().sum(), keys)
    (true_second,) = torch.autograd.grad(truth[0].square().sum(), exact[1])
    torch.testing.assert_close(second.double(), true_second, rtol=0.1, atol=0.5)


def test_function_transforms_give_the_same_gradient():
    queries, keys = operands()
    grad = torch.func.grad(lambda x: _logits(x, keys).sin().sum())(queries)
    leaf = queries.clone().requires_grad_()
    (expected,) = torch.autograd.grad(_logits(leaf, keys).sin().sum(), leaf)
    torch.testing.assert_close(grad.float(), expected.float(), rtol=0.05, atol=0.05)
