"""The compiled operators under AddressSanitizer and UndefinedBehaviorSanitizer: thousands of random calls.

    make sanitize

builds the kernels with both sanitizers and runs this file on them (QUASIRNN_KERNELS). Valid calls go forward and
backward and are compared with the reference; invalid ones may raise what they like. The sanitizers end the process at
the first finding, so that the last line is printed only if there was none.
"""

import argparse
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from ops.cases import POOLINGS, Case, exact, inputs, public, results
from ops.operator_arguments import arguments, backward_arguments, stack_arguments
from quasirnn.ops import backends
from quasirnn.ops.operators import state_type
from quasirnn.ops.quantized import quantize_weight
from quasirnn.ops.training_step import IGNORED

# Loose: whether results are right to the last digits is the business of tests/ops.
LOOSE = {torch.float32: 1e-3, torch.float64: 1e-9, torch.float16: 0.1, torch.bfloat16: 0.5}


def random_case(draw: random.Random) -> Case:
    """Mostly small; now and then several chunks of time, or a row of several blocks."""
    function = draw.choice(("layer", "layer", "fused", "gated", "linear"))
    T = draw.choice((1, 2, 3, draw.randint(4, 40), draw.randint(4, 40), draw.randint(400, 700)))
    H = draw.choice((1, 2, draw.randint(3, 20), draw.randint(3, 70), draw.randint(100, 350) if T < 50 else 5))
    k = draw.choice((1, 2, 3, 6))
    return Case(
        function,
        T,
        draw.choice((0, 1, 2, 3, draw.randint(1, 21) if T < 50 else 1)),
        H,
        draw.choice(POOLINGS),
        k,
        D=draw.choice((1, 2, draw.randint(3, 40))),
        look_ahead=draw.random() < 0.3,
        reverse=draw.random() < 0.5,
        lengths=draw.random() < 0.5,
        state=draw.random() < 0.5,
        zoneout=draw.choice((0.0, 0.0, 0.3, 1.0)),
        expected=draw.random() < 0.5,
        bias=draw.choice(("none", "one", "rows")),
        gates=draw.random() < 0.5,
        starts=draw.random() < 0.3,
    )


def valid(case: Case, dtype: torch.dtype) -> list[str]:
    """Forward, backward and, where that is quick, a comparison. Returns what is wrong."""
    for name, args in (arguments(case, dtype), backward_arguments(case, dtype)):
        getattr(torch.ops.quasirnn, name)(*args)
    if case.T * case.B * case.H > 2000 or case.T > 12 or case.B == 0:
        return []
    tensors = inputs(case, dtype)
    found = results(public, case, tensors)
    truth = results(exact, case, {name: value.double() for name, value in tensors.items()})
    return [
        f"{case} {dtype}: {name} is off by {error:.2g}"
        for name in truth
        if not (error := (found[name].double() - truth[name]).abs().max())
        <= LOOSE[dtype] * (1 + truth[name].abs().max())
    ]


def softmax_arguments(dtype: torch.dtype, draw: random.Random) -> list[torch.Tensor]:
    """Rows below and above a block, classes below and above a vector, some rows that do not count."""
    N, V = draw.choice((0, 1, 63, 64, 65, draw.randint(1, 200))), draw.choice((1, 15, 16, 17, draw.randint(1, 400)))
    targets = torch.randint(V, (N,))
    targets[torch.rand(N) < draw.choice((0.0, 0.3, 1.0))] = IGNORED
    return [torch.randn(N, V).to(dtype), torch.randn(V).to(torch.promote_types(dtype, torch.float32)), targets]


def int8_calls(draw: random.Random) -> list[tuple[str, list]]:
    """Every int8 operator on sizes below and above a vector, by the paths that this CPU has."""
    T, B, k = (
        draw.choice((1, 2, draw.randint(3, 60))),
        draw.choice((0, 1, 3, draw.randint(1, 9))),
        draw.choice((1, 2, 5)),
    )
    D, H, gates = (
        draw.choice((1, 63, 64, 65, draw.randint(1, 90))),
        draw.choice((1, 15, 17, draw.randint(1, 40))),
        draw.choice((2, 3, 4)),
    )
    weight, scale = quantize_weight(torch.randn(gates * H, k, D))
    x, bias = torch.randn(T, B, D), draw.choice((None, torch.randn(gates * H)))
    lengths = draw.choice((None, torch.randint(1, T + 1, (B,))))
    starts = draw.choice((None, torch.rand(T, B) < 0.3))
    reverse, ahead = draw.random() < 0.5, draw.randrange(k)
    context = torch.randn(B, k - 1, D) if not reverse and not ahead and draw.random() < 0.5 else None
    state = draw.choice((None, torch.randn(1, B, H + (k - 1) * D)))
    rows = draw.choice((1, 2, 3, 5, draw.randint(1, 40)))
    narrow = torch.randint(-128, 128, (rows, D), dtype=torch.int8)
    columns = torch.randint(-128, 128, (gates * H, D), dtype=torch.int8)
    return [
        (
            "quantized_layer",
            [x, weight, scale, bias, context, None, lengths, starts, 0.1, gates, ahead, reverse, draw.random() < 0.5],
        ),
        (
            "quantized_stack",
            [x, [weight], [scale], [] if bias is None else [bias], state, 0.1, gates, draw.random() < 0.5],
        ),
        ("quantized_linear", [torch.randn(rows, D), columns, scale, bias]),
        ("int8_mm", [narrow, columns, draw.choice((0, 1, 4))]),
    ]


def gather_calls(dtype: torch.dtype, draw: random.Random) -> list[tuple[str, list]]:
    """Sums of table rows and their derivative, of sizes below and above a vector and a block of columns."""
    R, W = draw.choice((1, 2, 40)), draw.choice((1, 15, 17, 191, 193, 400))
    N, k = draw.choice((0, 1, 17, 40)), draw.choice((0, 1, 2, 6))
    rows = torch.randint(R, (N, k))
    return [
        ("sum_rows", [torch.randn(R, W).to(dtype), rows]),
        ("add_rows", [torch.randn(N, W).to(dtype), rows, R]),
    ]


def elementwise_calls(dtype: torch.dtype, draw: random.Random) -> list[tuple[str, list]]:
    """Dropout, sums and updates of sizes below and above a vector, a block and a thread's share."""
    n = draw.choice((0, 1, 15, 16, 17, draw.randint(1, 5000), draw.choice((16383, 16384, 16385, 40_000))))
    parameter, gradient, mean = torch.randn(n), torch.randn(n), torch.randn(n)
    square = torch.rand(n)
    common = [draw.choice((0.0, 1e-4)), draw.choice((1.0, 0.3)), 0.01]
    part = torch.randn(n).to(dtype)
    return [
        ("dropout", [part, torch.tensor(draw.getrandbits(60)), draw.choice((1e-6, 0.4, 0.999))]),
        ("accumulate", [torch.randn(n).to(state_type(dtype)), part]),
        *gather_calls(dtype, draw),
        ("sum_of_squares", [parameter, gradient, common[0]]),
        ("sgd_update", [parameter, gradient, *common]),
        ("rmsprop_update", [parameter, gradient, square, *common, 0.9, 1e-8]),
        ("adam_update", [parameter, gradient, mean, square, *common, 0.9, 0.999, 1e-8, draw.choice((1.0, 5.0, 1e9))]),
    ]


def lstm_calls(dtype: torch.dtype, draw: random.Random) -> list[tuple[str, list]]:
    """An LSTM and its gradient, and the gradient of a weight, of sizes below and above a block."""
    T, B, H = draw.choice((0, 1, 2, 9)), draw.choice((0, 1, 4, 5, 20)), draw.choice((1, 15, 16, 17, 40))
    N, W, K = draw.choice((0, 1, 127, 128, 129, 200)), draw.choice((1, 31, 32, 65)), draw.choice((1, 8, 33))
    product = ("transposed_mm", [torch.randn(N, W).to(dtype), torch.randn(N, K).to(dtype)])
    if dtype == torch.float16:
        return [product]
    state, some = state_type(dtype), draw.random() < 0.5
    cells = torch.randn(B, H, dtype=state) if some else None
    weight = torch.randn(4 * H, H).to(dtype)
    gates, h = torch.randn(T, B, 4 * H).to(dtype), torch.randn(T, B, H).to(dtype)
    h0 = torch.randn(B, H).to(dtype) if some else None
    return [
        product,
        ("lstm", [gates, weight, torch.randn(4 * H, dtype=state), h0, cells, draw.random() < 0.5]),
        ("lstm_backward", [h, cells, gates, h.to(state), cells, weight.T.contiguous()]),
    ]


def spoiled(value, draw: random.Random):
    """Something else in an argument's place."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return draw.choice((-0.5, 2.0, float("nan"), float("inf")))
    if isinstance(value, int):
        return draw.choice((-1, 0, 1, 2, 3, 4, 5, 99, 2**31, 2**62, -(2**63)))
    if isinstance(value, list):
        return draw.choice(([], value[:-1], value + value, [spoiled(each, draw) for each in value]))
    if value is None:
        return draw.choice((torch.zeros(3), torch.zeros(2, 2, 2), torch.tensor([1, 1]), torch.zeros(())))
    if not value.is_floating_point() and value.dim() == 1 and draw.random() < 0.5:
        return value + draw.choice((-(2**62), -1, 1, 10**6, 2**62))
    changes = [
        lambda: None,
        lambda: value.new_empty(0),
        lambda: value.new_zeros(()),
        lambda: value[None],
        lambda: value.flatten(),
        lambda: torch.cat([value, value], dim=draw.randrange(max(1, value.dim()))),
        lambda: value[:-1],
        lambda: value[..., :0].contiguous(),
        lambda: value.transpose(0, -1),
        lambda: value.transpose(0, -1).contiguous(),
        lambda: value[..., ::2],
        lambda: value.flatten()[:1].expand(value.shape),
        lambda: value.to(draw.choice((torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64))),
    ]
    return draw.choice(changes)()


def refused(name: str, args: list) -> bool:
    try:
        getattr(torch.ops.quasirnn, name)(*args)
    except Exception:  # whatever it is, it is no signal
        return True
    return False


def invalid(name: str, args: list, draw: random.Random) -> bool:
    """One or two arguments spoiled. True if the operator refused."""
    args = list(args)
    for _ in range(draw.choice((1, 1, 2))):
        place = draw.randrange(len(args))
        if (name, place) == ("add_rows", 2):  # the rows of the result: any number is valid, and takes its memory
            args[place] = draw.choice((-1, 0, 1, 99))
            continue
        try:
            args[place] = spoiled(args[place], draw)
        except (RuntimeError, IndexError):
            continue  # this tensor cannot be spoiled in this way
    return refused(name, args)


def without_inputs(draw: random.Random) -> bool:
    """D = 0 throughout, which no single spoiled argument gives. True if both operators refused that, and only that."""
    T, B, k = draw.randint(1, 5), draw.randint(1, 3), draw.randint(1, 3)

    def calls(D: int) -> list[tuple[str, list]]:
        x, weight = torch.zeros(T, B, D), torch.zeros(6, k, D)
        settings = [None, None, None, None, None, None, 0.0, 3, 0, False, False]
        return [("layer", [x, weight, *settings]), ("stack", [x, [weight], [], None, 0.0, 3, False])]

    return all(refused(*call) for call in calls(0)) and not any(refused(*call) for call in calls(1))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--shapes", type=int, default=2000, help="how many random shapes")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    if backends.kernels is None:
        print(f"sanitize: there are no kernels to run: {backends.reason}", file=sys.stderr)
        return 2
    print(f"kernels: {os.environ.get('QUASIRNN_KERNELS', 'the installed ones, not sanitized')}", flush=True)
    draw = random.Random(chosen.seed)
    torch.manual_seed(chosen.seed)
    wrong: list[str] = []
    tried = rejected = 0
    for n in range(chosen.shapes):
        dtype = draw.choice(list(LOOSE))
        case = random_case(draw)
        wrong += valid(case, dtype)
        switches = {"state": draw.random() < 0.5, "bias": draw.random() < 0.5, "dense": draw.random() < 0.5}
        switches["zoneout"] = draw.choice((0.0, 0.3))
        widths = tuple(draw.choice((1, 2, 3, 6)) for _ in range(draw.randint(1, 4)))
        stack = stack_arguments(dtype, **switches, T=draw.choice((1, 2, 9, case.T)), B=case.B, widths=widths)
        torch.ops.quasirnn.stack(*stack)
        softmax = softmax_arguments(dtype, draw)
        torch.ops.quasirnn.softmax_loss(*softmax)
        calls = [arguments(case, dtype), backward_arguments(case, dtype), ("stack", stack), ("softmax_loss", softmax)]
        for name, args in (*int8_calls(draw), *elementwise_calls(dtype, draw), *lstm_calls(dtype, draw)):
            getattr(torch.ops.quasirnn, name)(*args)
            calls.append((name, args))
        for name, args in calls:
            for _ in range(3):
                tried += 1
                rejected += invalid(name, args, draw)
        if not without_inputs(draw):
            wrong.append("D = 0 was not refused, or D = 1 was")
        if (n + 1) % 200 == 0:
            print(f"{n + 1} shapes, {tried} spoiled calls, {rejected} refused", flush=True)
    for line in wrong:
        print(line)
    print(
        f"{chosen.shapes:,} shapes forward and backward, {tried:,} spoiled calls of which {rejected:,} were refused; "
        f"{len(wrong)} findings"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(2)
    sys.exit(main())
