"""What two processes go through in `test_processes`, all in one start of torchrun; each prints what became of it."""

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from quasirnn.training import BadLoss, RankFailed, World, WriteError, checkpoint, run_log
from training.tiny import TinyLearner, run


def whole(folder: Path, rank: int) -> str:
    return run(folder).reason


def without_dropout(folder: Path, rank: int) -> str:
    return run(folder, drop=0.0).reason


def signal_to_the_second(folder: Path, rank: int) -> str:
    def before_batch(epoch: int, number: int) -> None:
        if (rank, epoch, number) == (1, 1, 1):
            os.kill(os.getpid(), signal.SIGTERM)

    outcome = run(folder, before_batch=before_batch)
    return f"{outcome.reason} {outcome.signal} at step {outcome.step}, then {run(folder, resume=True).reason}"


def nan_on_the_second(folder: Path, rank: int) -> str:
    learner = TinyLearner(folder, rank=rank, ranks=2)
    plain = learner.loss

    def loss(model, batch, carried):
        total, count, carried = plain(model, batch, carried)
        return total * (float("nan") if rank == 1 else 1.0), count, carried

    learner.loss = loss
    return run(folder, learner=learner).reason


def no_space_on_the_second(folder: Path, rank: int) -> str:
    """The second process finds no space for its part of the checkpoint of step 6."""
    write = checkpoint.write_synced

    def failing(path: Path, data: bytes) -> None:
        if rank == 1 and "step-000000006" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    checkpoint.write_synced = failing
    try:
        return run(folder).reason
    finally:
        checkpoint.write_synced = write


def no_space_for_records(folder: Path, rank: int) -> str:
    """The first process, the only one that writes records, finds no space for that of step 2."""
    add = run_log.Metrics.add

    def failing(self: run_log.Metrics, record: dict) -> None:
        if record["step"] == 2:
            self._file.close()
            self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
        add(self, record)

    run_log.Metrics.add = failing
    try:
        return run(folder).reason
    finally:
        run_log.Metrics.add = add


def error_in_the_validation(folder: Path, rank: int) -> str:
    learner = TinyLearner(folder, rank=rank, ranks=2)
    learner.best_by = "accuracy"
    return run(folder, learner=learner).reason


SCENARIOS: list[Callable[[Path, int], str]] = [
    whole,
    without_dropout,
    signal_to_the_second,
    nan_on_the_second,
    no_space_on_the_second,
    no_space_for_records,
    error_in_the_validation,
]


def main() -> None:
    torch.set_num_threads(1)
    with World(cpu=True) as world:
        for scenario in SCENARIOS:
            try:
                result = scenario(Path(sys.argv[1]) / scenario.__name__, world.rank)
            except (WriteError, RankFailed, BadLoss, KeyError) as error:
                result = f"{type(error).__name__}: {error}"
            print(json.dumps({"scenario": scenario.__name__, "rank": world.rank, "result": result}), flush=True)


if __name__ == "__main__":
    main()
