"""quasirnn: the Quasi-Recurrent Neural Network, for where an LSTM is too slow.

>>> from quasirnn import QRNN
>>> rnn = QRNN(input_size=32, hidden_size=64, num_layers=2)
"""

from quasirnn.nn import QRNN, QRNNLayer
from quasirnn.ops import f_pool, fo_pool, fused_pool, ifo_pool, linear_recurrence

__version__ = "0.1.0"
__all__ = ["QRNN", "QRNNLayer", "f_pool", "fo_pool", "fused_pool", "ifo_pool", "linear_recurrence", "load"]


def __getattr__(name: str) -> object:
    # What needs tasks is found when it is asked for: the layer alone loads neither vocabularies nor training.
    if name == "load":
        from quasirnn.tasks.pipeline import load

        return load
    raise AttributeError(f"module 'quasirnn' has no attribute {name!r}")
