"""One training per run folder: a lock that the kernel releases when the process ends, however it ends."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from quasirnn.errors import RunError, WriteError
from quasirnn.files import writing

NAME = ".lock"
# Some network file systems have no locks at all.
UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class RunLock:
    """Keeps other trainings out of a run folder, as a context manager or with `acquire` and `release`.

    The lock is an flock on a file in the folder, which holds the id of the process for others to read. The folder is
    created if it is missing, but never again afterwards: see `check`.

        with RunLock(folder) as lock:
            ...  # write to the folder
            train(learner, optimizer, plan, folder, lock=lock)
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.supported = True
        self._path = self.folder / NAME
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
                f"{self.folder} or its {NAME} was removed or replaced during training: stopped without writing"
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
