"""One update of a float32 parameter in one visit: L2, clipping and the optimizer's step. Kernels only, on a CPU.

    g = clip * (gradient + l2 * w)
    SGD      w -= rate * g
    RMSprop  v = alpha v + (1 - alpha) g^2;  w -= rate * g / (sqrt(v) + eps)
    Adam     m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
             w -= rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)

These are torch's own formulas; the order of their operations differs, so the last bits do.
"""

import torch

from quasirnn.ops import operators  # noqa: F401 - defines them where no library does

sum_of_squares = torch.ops.quasirnn.sum_of_squares.default
sgd_update = torch.ops.quasirnn.sgd_update.default
rmsprop_update = torch.ops.quasirnn.rmsprop_update.default
adam_update = torch.ops.quasirnn.adam_update.default
