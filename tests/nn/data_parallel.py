"""What each of two processes does in `test_distributed`: a file of its own, which a spawned process can import."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from quasirnn import QRNN


def build() -> tuple[QRNN, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    rnn = QRNN(3, 5, 2, bidirectional=True, kernel_size=3, dtype=torch.float64)
    return rnn, torch.randn(7, 6, 3, dtype=torch.float64), torch.tensor([7, 3, 1, 5, 2, 7])


def loss_of(rnn: torch.nn.Module, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    output, (h_n, c_n) = rnn(x, lengths=lengths)
    return (output.sin().sum() + h_n.cos().sum() + (c_n**2).sum()) / x.shape[1]


def work(rank: int, folder: str, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        rnn, x, lengths = build()
        rows = slice(3 * rank, 3 * rank + 3)
        parallel = DistributedDataParallel(rnn)
        for _ in range(2):
            # Twice: the second time every gradient must have been reduced, or DDP complains.
            rnn.zero_grad()
            loss_of(parallel, x[:, rows], lengths[rows]).backward()
        torch.save([p.grad for p in rnn.parameters()], f"{folder}/{rank}.pt")
        # Its reducer, if it outlived the process group, would wait for the other process at its own end.
        del parallel
        dist.barrier()
    finally:
        dist.destroy_process_group()
