"""docs/adding-a-pooling.md, followed to the letter: its two files, written out and run."""

import re
from pathlib import Path

import pytest
import torch

from processes import run_with_torch
from quasirnn import QRNN
from quasirnn.nn import quantize
from quasirnn.ops import checks, layer, register_pooling

PAGE = (Path(__file__).parents[2] / "docs/adding-a-pooling.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_works_as_it_is_written(tmp_path):
    equations, use, test = BLOCKS
    (tmp_path / "bounded_pooling.py").write_text(equations)
    (tmp_path / "use.py").write_text(use)
    (tmp_path / "test_bounded_pooling.py").write_text(test)
    program = 'import use, pytest; raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider"]))'
    result = run_with_torch(program, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def copies():
    """The paper's poolings once more, as variants: they must equal the fused ones."""

    def f(recur, z, f):
        c, last = recur(f, (1 - f) * z)
        return c, c, last

    def fo(recur, z, f, o):
        c, last = recur(f, (1 - f) * z)
        return o * c, c, last

    def ifo(recur, z, f, o, i):
        c, last = recur(f, i * z)
        return o * c, c, last

    for name, gates, pool in (("f", "zf", f), ("fo", "zfo", fo), ("ifo", "zfoi", ifo)):
        register_pooling(f"my {name}", gates, pool)
    yield
    for name in ("f", "fo", "ifo"):
        del checks.POOLINGS[f"my {name}"], layer._registered[f"my {name}"]


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "causal": False}, {"dense": True}], ids=str)
def test_a_variant_with_the_papers_equations_is_the_papers(copies, pooling, options):
    torch.manual_seed(0)
    arguments = {"kernel_size": 3, "zoneout": 0.3, "dtype": torch.float64, **options}
    fused, mine = (QRNN(3, 5, 2, pooling=name, **arguments) for name in (pooling, f"my {pooling}"))
    mine.load_state_dict(fused.state_dict())
    x = torch.randn(8, 3, 3, dtype=torch.float64, requires_grad=True)
    calls = [{}, {"lengths": [8, 2, 5]}, {"starts": torch.rand(8, 3) < 0.3, "lengths": [3, 8, 8]}]
    for training in (True, False):
        for call in calls:
            results = []
            for rnn in (fused.train(training), mine.train(training)):
                torch.manual_seed(1)
                output, (h, c) = rnn(x, **call)
                loss = output.square().sum() + h.sum() + c.sum()
                results.append([output, h, c, *torch.autograd.grad(loss, [x, *rnn.parameters()])])
            torch.testing.assert_close(*results)
    row = x[:, 0]
    torch.testing.assert_close(mine.eval()(row, cu_seqlens=[0, 3, 8]), fused.eval()(row, cu_seqlens=[0, 3, 8]))
    gates = [rnn.inspect(x)["l1"] for rnn in (fused, mine)]
    torch.testing.assert_close(*gates)


def test_errors(copies):
    with pytest.raises(ValueError, match=r'gates must be "zf", "zfo" or "zfoi", got .zo.'):
        register_pooling("mine", "zo", lambda *_: None)
    with pytest.raises(ValueError, match='the pooling "fo" already exists'):
        register_pooling("fo", "zfo", lambda *_: None)
    with pytest.raises(ValueError, match=r'QRNN: pooling must be "f", "fo", "ifo", .*"my ifo", got .mine.'):
        QRNN(3, 4, pooling="mine")
    with pytest.raises(ValueError, match="quantize: pooling must be"):
        quantize(QRNN(3, 4, pooling="my fo"))
