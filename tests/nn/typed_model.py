"""A file as a user writes it, with types: `make check` holds it to mypy --strict."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from quasirnn import QRNN


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = QRNN(3, 4, num_layers=2, batch_first=True)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> Tensor:
        output, (h, c) = self.rnn(x, state)
        output = output + 1
        return output.sum() + h.sum() + c.sum()


packed, _ = QRNN(3, 4)(pack_sequence([torch.zeros(2, 3)]))
data: Tensor = packed.data
gates: dict[str, dict[str, Tensor]] = QRNN(3, 4).inspect(torch.zeros(2, 1, 3))
