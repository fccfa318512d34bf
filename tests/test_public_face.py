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

FACE = [
    "QRNN",
    "QRNNLayer",
    "convert",
    "f_pool",
    "fo_pool",
    "fused_pool",
    "ifo_pool",
    "linear_recurrence",
    "load",
    "quantize",
]
PACKAGES = {
    "quasirnn": FACE,
    "quasirnn.nn": [
        "QRNN",
        "LayerGates",
        "LayerState",
        "QRNNLayer",
        "QRNNLayerOutput",
        "as_matrices",
        "from_matrices",
        "quantize",
    ],
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
        "register_pooling",
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
    assert list(forward) == ["self", "input", "hx", "lengths", "starts", "cu_seqlens"]
    assert forward["lengths"].kind is inspect.Parameter.KEYWORD_ONLY


# What a fresh interpreter has loaded, and how torch is set, after each of these.
FRESH = """
import json, sys
import quasirnn
told = {"package": sorted(sys.modules), "named": sorted({*quasirnn.__all__} - {*dir(quasirnn)})}
import torch
torch.manual_seed(5)
def settings():
    state = torch.get_num_threads(), str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.initial_seed()
    return [*state, torch.get_rng_state().sum().item()]
told |= {"torch": sorted(sys.modules), "before": settings()}
from quasirnn import QRNN
told |= {"layer": sorted(sys.modules), "after": settings()}
quasirnn.nn.QRNN, quasirnn.onnx.export
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def fresh():
    result = subprocess.run([sys.executable, "-W", "error", "-c", FRESH], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_the_package_alone_loads_nothing(fresh):
    assert not {name for name in fresh["package"] if name.startswith("quasirnn.")}
    assert not {*fresh["package"]} & {"torch", "numpy"}


def test_names_are_listed_before_they_are_loaded(fresh):
    assert fresh["named"] == []
    with pytest.raises(AttributeError, match="no attribute 'QRN'"):
        _ = quasirnn.QRN


def test_the_layer_loads_nothing_that_only_a_command_needs(fresh):
    # What torch itself loads is not ours to answer for.
    loaded = {*fresh["layer"]} - {*fresh["torch"]}
    ours = {name.split(".")[1] for name in loaded if name.startswith("quasirnn.")}
    assert ours <= {"nn", "ops", "_kernels"}
    assert "quasirnn.ops.triton_kernels" not in loaded
    heavy = {"matplotlib", "typer", "rich", "click", "accelerate", "safetensors", "fastapi", "sacrebleu", "triton"}
    assert not {name.split(".")[0] for name in loaded} & heavy


def test_import_leaves_torch_as_it_found_it(fresh):
    assert fresh["before"] == fresh["after"]
