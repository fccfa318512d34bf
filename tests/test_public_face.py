"""What `import quasirnn` gives and what it loads: names, signatures, and nothing that only a command needs."""

import importlib
import importlib.metadata
import inspect
import json
import subprocess
import sys

import pytest
from torch import nn

import quasirnn

FACE = ["QRNN", "QRNNLayer", "f_pool", "fo_pool", "fused_pool", "ifo_pool", "linear_recurrence", "load"]
PACKAGES = {
    "quasirnn": FACE,
    "quasirnn.nn": ["QRNN", "LayerGates", "LayerState", "QRNNLayer", "QRNNLayerOutput"],
    "quasirnn.ops": [
        "LayerGates",
        "LayerOutput",
        "LayerState",
        "f_pool",
        "fo_pool",
        "fused_pool",
        "ifo_pool",
        "linear_recurrence",
        "qrnn_layer",
    ],
}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names(package):
    module = importlib.import_module(package)
    assert set(module.__all__) == set(PACKAGES[package])
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), f"{package}.{name} has no docstring"


def test_version_is_that_of_the_distribution():
    assert quasirnn.__version__ == importlib.metadata.version("quasirnn")


def test_signature_continues_that_of_an_lstm():
    """The names that others build on: nn.LSTM's in its order, then ours, by keyword only."""
    parameters = inspect.signature(quasirnn.QRNN).parameters
    positional = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    lstm = [name for name in inspect.signature(nn.RNNBase.__init__).parameters if name not in ("self", "mode")]
    assert positional == lstm[: lstm.index("bidirectional") + 1]
    ours = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert ours == {
        "kernel_size": 2,
        "pooling": "fo",
        "zoneout": 0.0,
        "dense": False,
        "causal": True,
        "proj_size": 0,
        "device": None,
        "dtype": None,
    }
    forward = inspect.signature(quasirnn.QRNN.forward).parameters
    assert list(forward) == ["self", "input", "hx", "lengths"]
    assert forward["lengths"].kind is inspect.Parameter.KEYWORD_ONLY


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_import_loads_the_layer_and_nothing_else():
    loaded = loaded_by("import quasirnn")
    ours = {name.split(".")[1] for name in loaded if name.startswith("quasirnn.")}
    assert ours <= {"nn", "ops", "_kernels"}
    roots = {name.split(".")[0] for name in loaded}
    heavy = {"matplotlib", "typer", "rich", "click", "accelerate", "safetensors", "fastapi", "sacrebleu", "triton"}
    # Of these, what torch itself loads is not ours to answer for.
    assert not roots & heavy - {name.split(".")[0] for name in loaded_by("import torch")}


def test_import_leaves_torch_as_it_found_it():
    settings = "torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.initial_seed()"
    program = (
        "import torch\n"
        "torch.manual_seed(5)\n"
        f"before = ({settings})\n"
        "import quasirnn\n"
        f"assert before == ({settings}), (before, ({settings}))\n"
        "assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(5)))\n"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
