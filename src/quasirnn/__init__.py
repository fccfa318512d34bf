"""quasirnn: the Quasi-Recurrent Neural Network, for where an LSTM is too slow.

>>> from quasirnn import QRNN
>>> rnn = QRNN(input_size=32, hidden_size=64, num_layers=2)
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quasirnn.export.convert import convert
    from quasirnn.nn import QRNN, QRNNLayer, quantize
    from quasirnn.ops import f_pool, fo_pool, fused_pool, ifo_pool, linear_recurrence
    from quasirnn.tasks.pipeline import load

__version__ = "0.1.0"
__all__ = [
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

# Names are looked up when they are asked for: the command line answers without torch, and the layer loads neither
# vocabularies nor training.
_OWNERS = {
    **dict.fromkeys(("QRNN", "QRNNLayer", "quantize"), "nn"),
    **dict.fromkeys(("f_pool", "fo_pool", "fused_pool", "ifo_pool", "linear_recurrence"), "ops"),
    "convert": "export.convert",
    "load": "tasks.pipeline",
}
_SUBMODULES = ("hf", "models", "nn", "onnx", "ops")


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"quasirnn.{name}")
    if name in _OWNERS:
        value = getattr(import_module(f"quasirnn.{_OWNERS[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'quasirnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})


# A program with torch may load a file that has our operators in it.
if "torch" in sys.modules:
    import_module("quasirnn.ops")
