"""A bounded queue and the threads that work it off. Knows nothing of HTTP, nor of what the work is.

A job is run by one thread from its beginning to its end, and calls `step` again and again while it runs. There it is
stopped if nobody waits for its result any more, and there a job that takes long lets a short one go first. So a short
job waits for one step of a long one at most, whatever the number of threads.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[], None]
Run = Callable[[list[Any], Step], Sequence[Any]]


class Full(Exception):
    """No more may wait."""


class Closing(Exception):
    """What was accepted is still done, and nothing else."""


class _Stopped(Exception):
    """Raised by `step` where nobody waits for the result."""


@dataclass(eq=False)
class Job:
    """Something to do, and whose result it is.

    Args:
        item: what `run` is called with.
        run: takes the items of one or more jobs and `step`, and returns the result of each. One that is an Exception is
            raised where the result is waited for.
        deadline: when nobody waits any more, by `time.monotonic`.
        key: jobs of equal keys may be run together, by the first one's `run`; None for a job that is run alone.
        size: how much of a batch it takes up, see `Work`.
        short: it is done in a moment, so that a long one can wait for it.
    """

    item: Any
    run: Run
    deadline: float
    key: Hashable = None
    size: int = 1
    short: bool = False
    # The result; TimeoutError where the deadline came first. Cancelled by `Work.stop` before it has begun.
    future: Future[Any] = field(default_factory=Future, init=False)
    stopped: bool = field(default=False, init=False)

    def is_over(self) -> bool:
        return self.stopped or time.monotonic() >= self.deadline


class Work:
    """What waits and what is being worked on.

    Args:
        threads: that work.
        capacity: the most jobs that wait, besides those that a thread is free for.
        batch: the most that jobs run together may take up, by their sizes.
    """

    def __init__(self, threads: int, capacity: int, batch: int) -> None:
        self.capacity, self.batch = capacity, batch
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._free = 0
        self._active = 0
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, name=f"work-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """Jobs that wait for a thread."""
        with self._changed:
            return max(0, len(self._waiting) - self._free)

    @property
    def active(self) -> int:
        """Jobs that are being worked on, or are about to be."""
        with self._changed:
            return self._active + min(len(self._waiting), self._free)

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def full(self) -> bool:
        """Whether as many wait as may."""
        with self._changed:
            return self._is_full()

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue.

        Raises:
            Full: as many wait as may.
            Closing: no more jobs are taken.
        """
        with self._changed:
            if self._closing:
                raise Closing
            if self._is_full():
                raise Full
            self._waiting.append(job)
            self._changed.notify()

    def _is_full(self) -> bool:
        return len(self._waiting) >= self.capacity + self._free

    def stop(self, job: Job) -> None:
        """Nobody waits for it any more: its place in the queue is free at once, or it ends at its next step."""
        job.stopped = True
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
        job.future.cancel()

    def close(self) -> None:
        """Take no more jobs. Those that were taken are done; then the threads end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, but for so long only."""
        limit = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._free += 1
                while not self._waiting and not self._closing:
                    self._changed.wait()
                self._free -= 1
                if not self._waiting:
                    return
                jobs = self._take(self._waiting[0])
            self._run(jobs)

    def _take(self, first: Job) -> list[Job]:
        """A waiting job and those that can be run with it; the lock is held."""
        jobs, size = [first], first.size
        if first.key is not None:
            for job in self._waiting:
                if job is not first and job.key == first.key and size + job.size <= self.batch:
                    jobs.append(job)
                    size += job.size
        for job in jobs:
            self._waiting.remove(job)
        self._active += len(jobs)
        return jobs

    def _run(self, jobs: list[Job]) -> None:
        """Run jobs together and give each its result, or its error."""
        begun = [job for job in jobs if job.future.set_running_or_notify_cancel()]
        outcomes = self._outcomes(begun)
        # First, so that whoever has the last result sees that nothing is active.
        with self._changed:
            self._active -= len(jobs)
        for job, outcome in zip(begun, outcomes, strict=True):
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)

    def _outcomes(self, jobs: list[Job]) -> Sequence[Any]:
        def step() -> None:
            if all(job.is_over() for job in jobs):
                raise _Stopped
            if not jobs[0].short:
                self._let_pass()

        try:
            # The deadline may have come while they waited.
            if jobs:
                step()
            return jobs[0].run([job.item for job in jobs], step) if jobs else []
        except _Stopped:
            return [TimeoutError() for _ in jobs]
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            # One of them may be at fault; the others shall not pay for it.
            return [outcome for job in jobs for outcome in self._outcomes([job])]

    def _let_pass(self) -> None:
        """Run what is short before a job goes on that is not."""
        if not self._waiting:
            return
        with self._changed:
            first = next((job for job in self._waiting if job.short), None)
            jobs = [] if first is None else self._take(first)
        if jobs:
            self._run(jobs)
