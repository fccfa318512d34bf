"""Two processes under DistributedDataParallel have the gradients of one process on the whole batch."""

import socket

import pytest
import torch
from torch import distributed, multiprocessing

import processes  # noqa: F401  (what the fork server imports once)
from nn.data_parallel import build, loss_of, work


@pytest.mark.slow
@pytest.mark.skipif(not distributed.is_gloo_available(), reason="this torch has no gloo")
def test_gradients_of_two_processes_are_those_of_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = multiprocessing.start_processes(
        work, args=(str(tmp_path), port), nprocs=2, join=False, start_method="forkserver"
    )
    try:
        assert any(both.join(timeout=60) for _ in range(5)), "the processes do not end"
    finally:
        for process in both.processes:
            process.kill()
    rnn, x, lengths = build()
    truth = torch.autograd.grad(loss_of(rnn, x, lengths), list(rnn.parameters()))
    for rank in range(2):
        for mine, true in zip(torch.load(tmp_path / f"{rank}.pt"), truth, strict=True):
            torch.testing.assert_close(mine, true, rtol=1e-12, atol=1e-13)
