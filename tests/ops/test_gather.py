"""Sums of table rows: against float64, gradients of every order, and on the plain path."""

import pytest
import torch

from quasirnn.ops import backends, gather
from quasirnn.ops.gather import sum_rows

pytestmark = pytest.mark.backends
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def build(R=23, W=200, N=50, k=6, dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(R, W, dtype=torch.float64).to(dtype), torch.randint(R, (N, k))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("sizes", [(23, 200, 50, 6), (1, 1, 1, 1), (5, 17, 0, 2), (4, 193, 33, 1)], ids=str)
def test_sums_and_gradients_against_float64(sizes, dtype):
    table, rows = build(*sizes, dtype=dtype)
    table.requires_grad_()
    exact = table.detach().double().requires_grad_()
    out, truth = sum_rows(table, rows), exact[rows].sum(1)
    weights = torch.randn_like(out)
    (grad,) = torch.autograd.grad(out, table, weights)
    (true_grad,) = torch.autograd.grad(truth, exact, weights.double())
    assert (out.dtype, grad.dtype) == (dtype, dtype)
    eps = torch.finfo(dtype).eps
    # Sums of 16-bit numbers are made in float32 and rounded once.
    for found, expected in ((out, truth), (grad, true_grad)):
        of_sums = 20 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
        assert ((found.double() - expected).abs() <= eps * expected.abs() + of_sums).all()


def test_gradients_of_first_and_second_order():
    """Of the kernels in float64, too, which `sum_rows` leaves to torch."""
    table, rows = build(4, 3, 5, 2, torch.float64)
    table.requires_grad_()
    for function in (sum_rows, gather._sum):
        assert torch.autograd.gradcheck(lambda x, f=function: f(x, rows), table, nondet_tol=0)
    assert torch.autograd.gradgradcheck(lambda x: gather._sum(x, rows).square(), table)
    values = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: gather._add(x, rows, 4), values)


def test_strides_of_table_rows_and_gradient_do_not_matter():
    table, rows = build()
    expected = sum_rows(table, rows)
    assert torch.equal(sum_rows(table.T.contiguous().T, rows.T.contiguous().T), expected)
    table.requires_grad_()
    (grad,) = torch.autograd.grad(sum_rows(table, rows).sum(), table)
    assert torch.equal(grad, torch.bincount(rows.flatten(), minlength=23)[:, None].expand(23, 200).float())


def test_the_same_bits_for_any_number_of_threads():
    table, rows = build(300, 700, 400, 3, torch.bfloat16)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            own = table.clone().requires_grad_()
            out = sum_rows(own, rows)
            found.append([out, *torch.autograd.grad(out, own, torch.ones_like(out))])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_operators(dtype):
    table, rows = build(dtype=dtype)
    torch.library.opcheck(torch.ops.quasirnn.sum_rows.default, (table, rows))
    torch.library.opcheck(torch.ops.quasirnn.add_rows.default, (table[:5], rows[:5], 23))


@pytest.mark.skipif(backends.kernels is None, reason="needs the compiled kernels")
def test_rows_outside_the_table_are_refused():
    table, rows = build()
    rows[3, 1] = 23
    with pytest.raises(RuntimeError, match=r"rows\[3, 1\] = 23 is outside 0..22"):
        torch.ops.quasirnn.sum_rows(table, rows)
    rows[3, 1] = -1
    with pytest.raises(RuntimeError, match=r"rows\[3, 1\] = -1 is outside 0..22"):
        torch.ops.quasirnn.add_rows(table[:1].expand(50, -1).contiguous(), rows, 23)
    with pytest.raises(RuntimeError, match="rows has the wrong element type"):
        torch.ops.quasirnn.sum_rows(table, rows.int())
