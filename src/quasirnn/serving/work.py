"""A bounded queue, its worker threads, and a fair scheduler. Knows nothing of HTTP or of the work itself.

A job calls `step` again and again while it runs. There it is stopped if nobody waits for its result any more, and there
it can be suspended: a few jobs may have begun, but only as many run at a time as there are slots. The scheduler decides
by the time each has had so far, in seconds of a slot:

1. Short and long jobs have a lane each, with a queue of its own. If both lanes are busy, each gets half of the time. So
   neither starves the other, and a job that enters an empty lane runs at another's next step.
2. Within a lane the client that has had least is next, and of its jobs the one that has had least for its age. So a job
   of one second takes a few seconds even next to jobs of minutes, and new jobs do not starve an old one.

A job is accepted only if it is likely to be done in time: the number of waiting jobs is limited, in all and per client,
and so is their expected duration, estimated from earlier jobs of the same kind.
"""

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic
from typing import Any

Step = Callable[[], None]
Run = Callable[[list[Any], Step], Sequence[Any]]

SHORT, LONG = "short", "long"
# How long a job keeps its slot, unless a short one waits for it.
SLICE_SECONDS = 0.05
# The short lane goes first until it has had this much more than the long one.
LEAD_SECONDS = 0.1
# A job that has had less than this share of the time since its arrival goes before all new ones.
AGED = 0.25
# How many jobs of each lane may have begun, per slot: each holds memory until it ends.
BEGUN = 4
# The largest share of a queue for one client, so that others find room.
SHARE = 0.75


class Full(Exception):
    """The job cannot be accepted now; the message says why."""


class Closing(Exception):
    """No new jobs are accepted; accepted ones are still done."""


class _Stopped(Exception):
    """Raised by `step` if nobody waits for the result."""


@dataclass(eq=False)
class Job:
    """A piece of work, and the future of its result.

    Args:
        item: the argument of `run`.
        run: takes the items of one or more jobs and `step`, and returns the result of each. A result that is an
            Exception is raised by the future.
        deadline: when nobody waits any more, by `time.monotonic`.
        key: jobs of equal keys may run as one batch, by the first one's `run`; None for a job that runs alone.
        size: its part of a batch, see `Work`.
        short: which lane it belongs to.
        client: who sent it; None for no limit per client.
        kind: jobs of one kind take about the same time per token.
        tokens: its amount of work.
    """

    item: Any
    run: Run
    deadline: float
    key: Hashable = None
    size: int = 1
    short: bool = False
    client: Hashable = None
    kind: Hashable = None
    tokens: int = 1
    # The result, or TimeoutError if the deadline passed first. Cancelled by `Work.stop` if the job has not begun.
    future: Future[Any] = field(default_factory=Future, init=False)
    stopped: bool = field(default=False, init=False)
    arrived: float = field(default_factory=lambda: monotonic(), init=False)

    @property
    def lane(self) -> str:
        return SHORT if self.short else LONG

    def is_over(self) -> bool:
        return self.stopped or monotonic() >= self.deadline


@dataclass(eq=False)
class _Turn:
    """Jobs that run as one batch."""

    jobs: list[Job]
    resume: threading.Condition
    has_slot: bool = True
    since: float = field(default_factory=lambda: monotonic())  # when it got the slot, or was last charged for it
    slice: float = 0.0  # seconds since it got the slot
    had: float = 0.0  # seconds in total

    @property
    def lane(self) -> str:
        return self.jobs[0].lane

    def is_over(self) -> bool:
        return all(job.is_over() for job in self.jobs)


class Work:
    """The queue and its workers.

    Args:
        slots: how many jobs run at the same time.
        capacity: how many jobs may wait in each lane, besides those that a slot is free for.
        batch: the largest batch, as the sum of the sizes of its jobs.
    """

    def __init__(self, slots: int, capacity: int, batch: int) -> None:
        self.slots, self.capacity, self.batch = slots, capacity, batch
        self.done: Counter[Hashable] = Counter()  # tokens by kind
        self._lock = threading.Lock()
        self._free = slots
        self._waiting: list[Job] = []
        self._begun: list[_Turn] = []
        self._closing = False
        self._lanes = dict.fromkeys((SHORT, LONG), 0.0)  # seconds that each has had
        self._clients: dict[tuple[str, Hashable], float] = {}  # the same for clients that have jobs
        self._pace: dict[Hashable, float] = {}  # seconds per token, by kind
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    @property
    def queued(self) -> int:
        """Jobs that have not begun."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Jobs that have begun."""
        with self._lock:
            return sum(len(turn.jobs) for turn in self._begun)

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def full(self) -> bool:
        """Whether no job of any lane or client would be accepted."""
        with self._lock:
            return all(self._queued(lane) >= self.capacity for lane in self._lanes)

    def submit(self, job: Job) -> None:
        """Put a job into the queue of its lane.

        Raises:
            Full: the queue is full, or the job would not be done in time.
            Closing: no more jobs are accepted.
        """
        with self._lock:
            if self._closing:
                raise Closing
            self._check_room(job)
            self._enter(job)
            self._waiting.append(job)
            self._dispatch()

    def stop(self, job: Job) -> None:
        """Nobody waits for the job any more: it leaves the queue at once, or ends at its next step."""
        job.stopped = True
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                self._leave([job])
            # A suspended job has to run in order to end.
            self._dispatch()
        job.future.cancel()

    def close(self) -> None:
        """Accept no more jobs. Accepted ones are done; then the threads end."""
        with self._lock:
            self._closing = True
            self._end_threads()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, at most this long."""
        limit = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, limit - monotonic()))

    # With the lock held.

    def _queued(self, lane: str, client: Hashable = None) -> int:
        return sum(job.lane == lane and client in (None, job.client) for job in self._waiting)

    def _all(self) -> "list[Job | _Turn]":
        return [*self._waiting, *self._begun]

    def _check_room(self, job: Job) -> None:
        lane = job.lane
        if self._free:
            return
        if self._queued(lane) >= self.capacity:
            raise Full(f"{self.capacity} requests wait already")
        share = math.ceil(SHARE * self.capacity)
        if job.client is not None and self._queued(lane, job.client) >= share:
            raise Full(f"{share} requests of yours wait already")
        ahead = self._ahead(job)
        # The other lane gets half of the time if it has work. Half of the time to the deadline is for the job itself.
        busy = 1 + any(other.lane != lane for other in self._all())
        if ahead * busy / self.slots > max(0.0, job.deadline - monotonic()) / 2:
            raise Full(f"requests that take about {ahead * busy / self.slots:.0f} s wait already")

    def _ahead(self, job: Job) -> float:
        """Seconds of work in its lane that come before this job."""
        work: dict[Hashable, float] = defaultdict(float)
        for other in self._waiting:
            if other.lane == job.lane:
                work[other.client] += self._expected(other)
        waiting, begun = len(work), 0
        for turn in self._begun:
            if turn.lane == job.lane:
                begun += 1
                total = sum(map(self._expected, turn.jobs))
                left = max(0.0, 1 - turn.had / total) if total else 0.0
                for other in turn.jobs:
                    work[other.client] += left * self._expected(other)
        if job.kind not in self._pace or waiting + begun >= BEGUN * self.slots:
            return sum(work.values())
        # It begins at once, and clients take turns: of another client at most as much comes first as of its own.
        own = work.pop(job.client, 0.0)
        return own + sum(min(other, own + self._expected(job)) for other in work.values())

    def _expected(self, job: Job) -> float:
        return self._pace.get(job.kind, 0.0) * job.tokens

    def _enter(self, job: Job) -> None:
        """A lane or client that returns starts level with the others: idle time is not credited."""
        for turn in self._begun:
            if turn.has_slot:
                self._charge(turn)
        if not any(each.lane == job.lane for each in self._all()):
            other = self._lanes[LONG if job.short else SHORT]
            self._lanes[job.lane] = max(self._lanes[job.lane], other)
        others = [had for (lane, _), had in self._clients.items() if lane == job.lane]
        self._clients.setdefault((job.lane, job.client), min(others, default=0.0))

    def _leave(self, jobs: Sequence[Job]) -> None:
        there = {(job.lane, job.client) for job in self._waiting}
        there |= {(job.lane, job.client) for turn in self._begun for job in turn.jobs}
        for job in jobs:
            if (job.lane, job.client) not in there:
                self._clients.pop((job.lane, job.client), None)

    def _charge(self, turn: _Turn) -> None:
        now = monotonic()
        seconds, turn.since = now - turn.since, now
        turn.slice += seconds
        turn.had += seconds
        self._lanes[turn.lane] += seconds
        size = sum(job.size for job in turn.jobs)
        for job in turn.jobs:
            self._clients[job.lane, job.client] += seconds * job.size / max(1, size)

    def _rank(self, each: "Job | _Turn") -> tuple[bool, float, float, float]:
        """The lowest is next: first those that are over, then by the time of lane, client and job."""
        job, had = (each, 0.0) if isinstance(each, Job) else (each.jobs[0], each.had)
        lane = self._lanes[job.lane] - (LEAD_SECONDS if job.short else 0.0)
        had -= AGED * (monotonic() - job.arrived)
        # In whole slices, so that a job that has begun continues before another begins.
        return not each.is_over(), lane, self._clients[job.lane, job.client], had // SLICE_SECONDS

    def _next(self) -> "Job | _Turn | None":
        begun = Counter(turn.lane for turn in self._begun)
        first: dict[tuple[str, Hashable], Job] = {}  # of every client: its other jobs have the same rank
        for job in self._waiting:
            if begun[job.lane] < BEGUN * self.slots:
                first.setdefault((job.lane, job.client), job)
        # min gives the first of equals: those that have begun, then in order of arrival.
        candidates: list[Job | _Turn] = [turn for turn in self._begun if not turn.has_slot]
        return min([*candidates, *first.values()], key=self._rank, default=None)

    def _dispatch(self) -> None:
        """Give free slots to the next jobs."""
        while self._free and (chosen := self._next()) is not None:
            self._free -= 1
            if isinstance(chosen, _Turn):
                chosen.has_slot, chosen.since, chosen.slice = True, monotonic(), 0.0
                chosen.resume.notify()
                continue
            turn = _Turn(self._take(chosen), threading.Condition(self._lock))
            self._begun.append(turn)
            if not self._idle:
                thread = threading.Thread(target=self._work, name=f"work-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._idle -= 1
            self._turns.put(turn)

    def _take(self, first: Job) -> list[Job]:
        """A waiting job and those that can run in one batch with it."""
        jobs, size = [first], first.size
        if first.key is not None:
            for job in self._waiting:
                if job is not first and job.key == first.key and size + job.size <= self.batch:
                    jobs.append(job)
                    size += job.size
        for job in jobs:
            self._waiting.remove(job)
        return jobs

    def _end_threads(self) -> None:
        if self._closing and not self._waiting and not self._begun:
            for _ in self._threads:
                self._turns.put(None)

    # In a worker thread.

    def _work(self) -> None:
        while (turn := self._turns.get()) is not None:
            self._run(turn)

    def _run(self, turn: _Turn) -> None:
        """Run a batch of jobs and give each its result, or its error."""
        jobs = [job for job in turn.jobs if job.future.set_running_or_notify_cancel()]
        outcomes = self._outcomes(jobs, turn)
        # Before the results, so that who has the last result sees no active job.
        with self._lock:
            self._charge(turn)
            self._begun.remove(turn)
            self._leave(turn.jobs)
            if jobs and not turn.is_over():
                self._learn(turn)
            self._free += 1
            self._idle += 1
            self._dispatch()
            self._end_threads()
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)

    def _learn(self, turn: _Turn) -> None:
        kind, tokens = turn.jobs[0].kind, sum(job.tokens for job in turn.jobs)
        before = self._pace.get(kind)
        pace = turn.had / max(1, tokens)
        self._pace[kind] = pace if before is None else 0.8 * before + 0.2 * pace
        self.done[kind] += tokens

    def _outcomes(self, jobs: list[Job], turn: _Turn) -> Sequence[Any]:
        def step() -> None:
            if all(job.is_over() for job in jobs):
                raise _Stopped
            self._make_way(turn)

        try:
            # The deadline may have passed while they waited.
            if jobs:
                step()
            return jobs[0].run([job.item for job in jobs], step) if jobs else []
        except _Stopped:
            return [TimeoutError() for _ in jobs]
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            # One of them may be the cause; the others run again without it.
            return [outcome for job in jobs for outcome in self._outcomes([job], turn)]

    def _make_way(self, turn: _Turn) -> None:
        """Suspend the job while another has priority."""
        # Without the lock: most of the time nothing waits.
        if not self._waiting and len(self._begun) <= self.slots:
            return
        with self._lock:
            self._charge(turn)
            other = self._next()
            if other is None or self._rank(other) >= self._rank(turn):
                return
            if turn.slice < SLICE_SECONDS and (other.lane == LONG or turn.lane == SHORT) and not other.is_over():
                return
            turn.has_slot = False
            self._free += 1
            self._dispatch()
            while not turn.has_slot:
                turn.resume.wait()
