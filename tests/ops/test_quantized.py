"""Products of int8: every path gives the exact integers, extremes that would saturate 16 bits included."""

import pytest
import torch

from quasirnn.ops import backends
from quasirnn.ops.quantized import _int8_mm, _layer, _linear, quantize_weight

pytestmark = pytest.mark.backends

SIZES = [
    (1, 1, 1),
    (20, 1, 6),
    (1, 63, 5),
    (2, 64, 4),
    (3, 65, 9),
    (4, 128, 8),
    (5, 200, 33),
    (17, 640, 12),
    (70, 129, 31),
    (12, 16, 16),
    (13, 47, 32),
    (25, 2, 40),
]
PATHS = {"chosen": 0, "plain": 1, "VNNI": 2, "library": 3, "AVX2": 4}


def product(rows, weight, path):
    if backends.kernels is None and path != "chosen":
        pytest.skip("without the kernels there is one path")
    try:
        return torch.ops.quasirnn.int8_mm(rows, weight, PATHS[path])
    except RuntimeError as error:
        if "this CPU has no" in str(error) or "this torch has no" in str(error):
            pytest.skip(str(error).splitlines()[0])
        raise


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("n", "K", "W"), SIZES)
def test_every_path_gives_the_exact_integers(n, K, W, path):
    torch.manual_seed(n)
    rows, weight = (torch.randint(-128, 128, (m, K), dtype=torch.int8) for m in (n, W))
    assert torch.equal(product(rows, weight, path), _int8_mm(rows, weight, 0))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("a", "w"), [(127, 127), (-127, 127), (127, -127), (-127, -127), (-128, -128)])
def test_sums_of_pairs_do_not_saturate(a, w, path):
    """Two products of 127 * 127 only just fit into 16 bits, two of 255 * 127 do not: AVX2's shortcut would clip."""
    rows, weight = torch.full((20, 1000), a, dtype=torch.int8), torch.full((7, 1000), w, dtype=torch.int8)
    assert (product(rows, weight, path) == 1000 * a * w).all()


def test_more_columns_than_32_bits_hold_are_refused():
    if backends.kernels is None:
        pytest.skip("plain PyTorch adds in double")
    with pytest.raises(RuntimeError, match="sums 1 to 133000 products"):
        torch.ops.quasirnn.int8_mm(
            torch.zeros(1, 133_001, dtype=torch.int8), torch.zeros(1, 133_001, dtype=torch.int8), 0
        )


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("num_gates", [2, 3, 4])
def test_the_kernel_is_the_plain_definition(k, reverse, num_gates):
    torch.manual_seed(k)
    x, lengths = torch.randn(130, 5, 11), torch.tensor([130, 1, 60, 2, 129])
    weight, scale = quantize_weight(torch.randn(num_gates * 9, k, 11))
    bias, c0 = torch.randn(5, num_gates * 9), torch.randn(5, 9)
    context = None if reverse else torch.randn(5, k - 1, 11)
    starts = torch.rand(130, 5) < 0.1 if num_gates == 3 else None
    arguments = (x, weight, scale, bias, context, c0, lengths, starts, 0.25, num_gates, 0, reverse, True)
    for got, plain in zip(torch.ops.quasirnn.quantized_layer(*arguments), _layer(*arguments), strict=True):
        torch.testing.assert_close(got, plain, atol=2e-6, rtol=2e-6)


def test_linear_is_the_plain_definition():
    torch.manual_seed(0)
    x, bias = torch.randn(40, 33), torch.randn(50)
    weight, scale = quantize_weight(torch.randn(50, 33))
    torch.testing.assert_close(
        torch.ops.quasirnn.quantized_linear(x, weight, scale, bias), _linear(x, weight, scale, bias)
    )


def test_a_linear_layer_without_outputs():
    """As nn.Linear, which takes no outputs for an answer: a division by their number would end the process."""
    weight, scale = torch.empty(0, 4, dtype=torch.int8), torch.empty(0)
    assert torch.ops.quasirnn.quantized_linear(torch.randn(3, 4), weight, scale, None).shape == (3, 0)


def test_weights_are_within_half_a_step():
    weight = torch.randn(7, 3, 5)
    quantized, scale = quantize_weight(weight)
    assert quantized.dtype == torch.int8
    assert (quantized.flatten(1).abs().amax(1) == 127).all()
    assert ((quantized * scale[:, None, None] - weight).abs() <= scale[:, None, None] / 2 * 1.0001).all()


def test_opcheck():
    torch.manual_seed(0)
    weight, scale = quantize_weight(torch.randn(6, 2, 3))
    x = torch.randn(4, 2, 3)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        torch.ops.quasirnn.quantized_layer,
        (x, weight, scale, None, None, None, None, None, 0.0, 3, 0, False, True),
        test_utils=checks,
    )
    torch.library.opcheck(
        torch.ops.quasirnn.quantized_stack, (x, [weight], [scale], [], None, 0.0, 3, False), test_utils=checks
    )
    torch.library.opcheck(
        torch.ops.quasirnn.quantized_linear, (x[0], weight[:, 0].contiguous(), scale, None), test_utils=checks
    )
