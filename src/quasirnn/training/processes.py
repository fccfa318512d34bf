"""The processes of a training: those that train together, one training per run folder, and signals that end it."""

import contextlib
import errno
import fcntl
import os
import signal
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor, distributed

from quasirnn.errors import Failure, MissingPackageError, RunError, WriteError
from quasirnn.files import writing

Precision = Literal["no", "bf16", "fp16"]
# By their names in records and settings.
PRECISIONS: dict[str, Precision] = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}

LOCK_NAME = ".lock"
# Some network file systems have no locks at all.
UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A terminal and a launcher may both pass on the same key press: a signal that follows this fast is the same one.
ECHO_SECONDS = 0.2


class RankFailed(Failure):
    """Another process of this training failed; its own message says why."""


class World:
    """One process, or all those that `torchrun` started.

    Create it before the data is divided, which needs `rank` and `size`:

        with World("bf16") as world:
            learner = MyLearner(rank=world.rank, ranks=world.size, device=world.device)
            train(learner, ..., world=world)

    Args:
        mixed_precision: "no", "bf16" or "fp16" (GPU only) for the forward pass.
        cpu: stay on the CPU even if there is a GPU.
    """

    def __init__(self, mixed_precision: Precision = "no", *, cpu: bool = False) -> None:
        try:
            from accelerate import Accelerator, InitProcessGroupKwargs
        except ImportError as error:
            raise MissingPackageError("training needs accelerate: pip install 'quasirnn[train]'") from error
        if mixed_precision not in ("no", "bf16", "fp16"):
            raise ValueError(f'World: mixed_precision must be "no", "bf16" or "fp16", got {mixed_precision!r}')
        # By default Accelerate takes processes on machines without a GPU for independent trainings.
        cpu = cpu or not torch.accelerator.is_available()
        if mixed_precision == "fp16" and cpu:
            raise ValueError('World: mixed_precision="fp16" needs a GPU; "bf16" works on a CPU too')
        # The others wait while the first one validates, which may take longer than the default of ten minutes.
        timeout = InitProcessGroupKwargs(timeout=timedelta(hours=4))
        self.accelerator = Accelerator(mixed_precision=mixed_precision, cpu=cpu, kwargs_handlers=[timeout])
        self.rank: int = self.accelerator.process_index
        self.size: int = self.accelerator.num_processes
        self.device: torch.device = self.accelerator.device
        self.mixed_precision: Precision = mixed_precision

    @property
    def precision(self) -> str:
        """The type of the matrix products, by its name."""
        return next(name for name, each in PRECISIONS.items() if each == self.mixed_precision)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[float | Tensor]) -> list[float]:
        """Each number summed over all processes. Their only communication besides the gradients."""
        if self.size == 1:
            return [float(value) for value in values]
        vector = torch.zeros(len(values), dtype=torch.float64, device=self.device)
        for number, value in enumerate(values):
            vector[number] = value
        distributed.all_reduce(vector)
        return vector.tolist()

    def agree(self, error: Exception | None, doing: str) -> None:
        """Continue if no process has an error; otherwise all raise, so that none waits for one that has left."""
        failed = self.sum([float(error is not None)])[0]
        if error is not None:
            raise error
        if failed:
            raise RankFailed(f"{doing} failed on another process; see its message")

    def close(self) -> None:
        """Leave the group of processes."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class RunLock:
    """Keeps other trainings out of a run folder, as a context manager or with `acquire` and `release`.

    The lock is an flock on a file in the folder, which holds the id of the process for others to read. The kernel
    releases it when the process ends, however it ends. The folder is created if it is missing, but never again
    afterwards: see `check`.

        with RunLock(folder) as lock:
            ...  # write to the folder
            train(learner, optimizer, plan, folder, lock=lock)
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.supported = True
        self._path = self.folder / LOCK_NAME
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            RunError: another training has it.
            WriteError: the folder cannot be made or written to.
        """
        with writing(self.folder, "nothing was written"):
            self.folder.mkdir(parents=True, exist_ok=True)
            while True:
                # Not through a link: the file is going to be written to.
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
                try:
                    self._lock(self._descriptor)
                    # Whoever had it may have removed the file in between; then this is a lock on nothing.
                    if self._is_in_place():
                        os.ftruncate(self._descriptor, 0)
                        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
                        return
                except BaseException:
                    self._close()
                    raise
                self._close()

    def release(self) -> None:
        try:
            if self._descriptor is not None and self._is_in_place():
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
        finally:
            self._close()

    def check(self) -> None:
        """WriteError if the folder is not the one that was locked: then nothing must be written to it any more."""
        if not self._is_in_place():
            raise WriteError(
                f"{self.folder} or its {LOCK_NAME} was removed or replaced during training: stopped without writing"
            )

    def __enter__(self) -> "RunLock":
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            content = os.pread(descriptor, 20, 0).strip()
            holder = f"process {int(content)}" if content.isdigit() else "another process"
            raise RunError(
                f"{self.folder}: {holder} is training in this folder. Wait for it, stop it (its checkpoint is kept), "
                "or use another folder."
            ) from None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            self.supported = False

    def _is_in_place(self) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(self._descriptor))
        except OSError:
            return False

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class StopSignals:
    """While open, a signal is only stored in `received`; the loop looks there when it can stop cleanly.

    A second signal ends the process at once with the exit code of a killed process, 128 + number. A SIGHUP that is
    ignored (nohup) stays ignored. Outside the main thread, where Python sets no handlers, this does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._received_at = 0.0
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._former.items():
            # None: a handler that was not set from Python and cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._former.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = number, time.monotonic()
        elif time.monotonic() - self._received_at > ECHO_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os._exit(128 + number)
