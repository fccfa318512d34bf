"""A disk that fails on request: the n-th change to it, or that and all that follow."""

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest


class Crash(BaseException):
    """Ends a run in the midst of a write, as a kill would: nothing catches it, nothing can be cleaned up."""


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_only() -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS))


class Disk:
    """Counts what changes the disk, and lets some of it fail.

    Args:
        fail_at: the number, from 1, of the change that fails; None for never.
        error: makes what is raised.
        for_good: whether everything after it fails, too.
    """

    CHANGES = ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir")

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        fail_at: int | None = None,
        error: Callable[[], BaseException] = Crash,
        for_good: bool = True,
    ) -> None:
        self.changes = 0
        self.failed: list[str] = []
        self.fail_at, self.error, self.for_good = fail_at, error, for_good
        for name in self.CHANGES:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.changes += 1
            if self.fail_at is not None and (
                self.changes == self.fail_at or (self.for_good and self.changes > self.fail_at)
            ):
                self.failed.append(name)
                raise self.error()
            return function(*arguments, **keywords)

        return call
