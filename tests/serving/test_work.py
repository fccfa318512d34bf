"""The queue and its threads: nothing of HTTP, and steps are counted, never timed."""

import threading
import time

import pytest

from quasirnn.serving import work as module
from quasirnn.serving.work import BEGUN, LEAD_SECONDS, SLICE_SECONDS, Closing, Full, Job, Work
from serving.servers import PATIENCE, wait_for


def never() -> float:
    return time.monotonic() + 10 * PATIENCE


class Tap:
    """Jobs that take a step whenever they may, and tell how they were run."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.steps = 0
        self.runs: list[list[object]] = []

    def job(self, item: object = None, steps: int = 1, **options) -> Job:
        def run(items, step):
            self.runs.append(items)
            for _ in range(steps):
                assert self.allowed.acquire(timeout=PATIENCE)
                self.steps += 1
                step()
            return [("done", each) for each in items]

        return Job(item, run, **{"deadline": never()} | options)


@pytest.fixture
def tap():
    return Tap()


@pytest.fixture
def work(tap, monkeypatch):
    """One slot, three places; a job waits for its test, which is not to count as work."""
    monkeypatch.setattr(module, "SLICE_SECONDS", float("inf"))
    monkeypatch.setattr(module, "AGED", 0.0)
    work = Work(1, 3, batch=4)
    yield work
    tap.allowed.release(1000)
    work.close()
    work.join(PATIENCE)


def busy(work: Work, tap: Tap, steps: int = 1, **options) -> Job:
    """A job that has begun and waits to be allowed its steps."""
    job, before = tap.job("busy", steps, **options), len(tap.runs)
    work.submit(job)
    wait_for(lambda: len(tap.runs) > before)
    return job


def result(job: Job) -> object:
    return job.future.result(PATIENCE)


def test_jobs_are_done_in_their_order(work, tap):
    jobs = [busy(work, tap), *(tap.job(number) for number in range(3))]
    for job in jobs[1:]:
        work.submit(job)
    tap.allowed.release(4)
    assert [result(job) for job in jobs] == [("done", "busy"), ("done", 0), ("done", 1), ("done", 2)]
    assert tap.runs == [["busy"], [0], [1], [2]]
    assert (work.queued, work.active) == (0, 0)


def test_no_more_wait_than_may(work, tap):
    busy(work, tap)
    for _ in range(3):
        work.submit(tap.job())
    assert (work.queued, work.active) == (3, 1)
    with pytest.raises(Full):
        work.submit(tap.job())
    assert work.queued == 3


def test_a_free_thread_has_room_for_one_more():
    tap, work = Tap(), Work(3, 1, batch=1)
    wait_for(lambda: work._free == 3)
    for _ in range(4):
        work.submit(tap.job())
    with pytest.raises(Full):
        work.submit(tap.job())
    tap.allowed.release(4)
    work.close()
    work.join(PATIENCE)


def test_a_place_is_free_at_once_when_one_who_waits_leaves(work, tap):
    busy(work, tap)
    waiting = [tap.job() for _ in range(3)]
    for job in waiting:
        work.submit(job)
    work.stop(waiting[1])
    assert work.queued == 2
    assert waiting[1].future.cancelled()
    work.submit(tap.job())


def test_a_job_that_nobody_waits_for_ends_at_its_next_step(work, tap):
    job = busy(work, tap, steps=100)
    tap.allowed.release(3)
    wait_for(lambda: tap.steps == 3)
    work.stop(job)
    tap.allowed.release(1)
    with pytest.raises(TimeoutError):
        result(job)
    assert tap.steps == 4
    assert work.active == 0


def test_a_job_ends_at_its_next_step_when_its_deadline_has_passed(work, tap):
    job = busy(work, tap, steps=100)
    tap.allowed.release(5)
    wait_for(lambda: tap.steps == 5)
    job.deadline = 0
    tap.allowed.release(100)
    with pytest.raises(TimeoutError):
        result(job)
    assert tap.steps == 6


def test_a_job_whose_deadline_passes_while_it_waits_is_never_begun(work, tap):
    first = busy(work, tap)
    late = tap.job("late", deadline=0)
    work.submit(late)
    tap.allowed.release(10)
    with pytest.raises(TimeoutError):
        result(late)
    assert result(first) == ("done", "busy")
    assert tap.runs == [["busy"]]


def test_jobs_of_equal_keys_are_run_together_up_to_the_size_of_a_batch(work, tap):
    first = busy(work, tap)
    jobs = [tap.job("a", key=1, size=2), tap.job("b", key=2), tap.job("c", key=1, size=2)]
    for job in jobs:
        work.submit(job)
    tap.allowed.release(3)
    assert [result(job) for job in jobs] == [("done", "a"), ("done", "b"), ("done", "c")]
    assert tap.runs == [["busy"], ["a", "c"], ["b"]]
    first = busy(work, tap)
    for item, size in (("d", 2), ("e", 3), ("f", 2)):
        work.submit(tap.job(item, key=1, size=size))
    tap.allowed.release(3)
    assert result(first) == ("done", "busy")
    wait_for(lambda: work.active + work.queued == 0)
    assert tap.runs[3:] == [["busy"], ["d", "f"], ["e"]]


def test_one_who_leaves_does_not_stop_the_others_of_a_batch(work, tap):
    busy(work, tap)
    stays, leaves = tap.job("stays", steps=5, key=1), tap.job("leaves", key=1)
    work.submit(stays)
    work.submit(leaves)
    tap.allowed.release(2)
    wait_for(lambda: tap.steps == 2)
    assert work.active == 2
    work.stop(leaves)
    tap.allowed.release(10)
    assert result(stays) == ("done", "stays")


def test_one_that_fails_does_not_take_the_others_of_a_batch_with_it(work, tap):
    def run(items, step):
        if "bad" in items:
            raise RuntimeError("bad")
        return items

    busy(work, tap)
    jobs = [Job(item, run, never(), key=1) for item in ("good", "bad", "fine")]
    for job in jobs:
        work.submit(job)
    tap.allowed.release(1)
    assert (result(jobs[0]), result(jobs[2])) == ("good", "fine")
    with pytest.raises(RuntimeError, match="bad"):
        result(jobs[1])


def test_a_result_that_is_an_error_is_raised(work):
    job = Job(None, lambda items, step: [KeyError("no")], never())
    work.submit(job)
    with pytest.raises(KeyError):
        result(job)


def test_a_short_job_passes_a_long_one_between_its_steps(work, tap):
    long = busy(work, tap, steps=3)
    quick, short, other = Tap(), None, tap.job("other")
    work.submit(other)
    quick.allowed.release(1)
    short = quick.job("short", short=True)
    work.submit(short)
    tap.allowed.release(1)
    assert result(short) == ("done", "short")
    assert not long.future.done()
    assert tap.runs == [["busy"]]
    assert (work.queued, work.active) == (1, 1)
    tap.allowed.release(10)
    assert result(other) == ("done", "other")


def test_what_was_accepted_is_done_and_nothing_else(tap):
    work = Work(2, 8, batch=1)
    jobs = [tap.job(number) for number in range(6)]
    for job in jobs:
        work.submit(job)
    work.close()
    with pytest.raises(Closing):
        work.submit(tap.job())
    tap.allowed.release(6)
    assert [result(job) for job in jobs] == [("done", number) for number in range(6)]
    work.join(PATIENCE)
    assert not any(thread.is_alive() for thread in work._threads)


def test_many_threads_lose_no_job():
    work = Work(8, 10_000, batch=16)
    jobs = [Job(number, lambda items, step: items, never(), key=number % 3) for number in range(3000)]
    for job in jobs:
        work.submit(job)
    assert [result(job) for job in jobs] == list(range(3000))
    assert (work.queued, work.active) == (0, 0)
    work.close()
    work.join(PATIENCE)


class Clock:
    """Time that passes only while a job makes a step, so that what each gets can be counted."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ended: dict[str, float] = {}

    def __call__(self) -> float:
        return self.now

    def job(self, name: str, steps: int, seconds: float = 0.01, deadline: float = 1e6, **options) -> Job:
        def run(items, step):
            for _ in items:
                for _ in range(steps):
                    self.now += seconds
                    step()
            return items

        job = Job(name, run, self.now + deadline, **options)
        job.future.add_done_callback(lambda future: self.ended.setdefault(name, self.now))
        return job

    def end_of(self, name: str) -> float:
        """When a job was done: whoever waits for its result may have it before the callback is called."""
        wait_for(lambda: name in self.ended)
        return self.ended[name]


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def fair(tap, clock):
    """One slot that is held until `tap` lets go, so that all are there when the first begins."""
    work = Work(1, 64, batch=1)
    work.submit(tap.job("first", short=True))
    yield work
    work.close()
    work.join(PATIENCE)


def test_guarantee_server_fair_short_jobs_do_not_starve_a_long_one(fair, tap, clock):
    """30 clients that ask again as soon as they are answered, for as long as the long one takes."""
    long = clock.job("long", 200, client="long")

    def again(number: int) -> None:
        def submit(future: object) -> None:
            if not long.future.done():
                again(number)

        job = clock.job(f"short {number}", 5, short=True, client=number)
        fair.submit(job)
        job.future.add_done_callback(submit)

    for number in range(30):
        again(number)
    fair.submit(long)
    began = clock.now
    tap.allowed.release(1)
    assert result(long) == "long"
    # Alone it takes 2 s; half of the time is the short ones', and their lead.
    assert clock.end_of("long") - began <= 2 * 2.0 + LEAD_SECONDS + 4 * SLICE_SECONDS
    wait_for(lambda: fair.active + fair.queued == 0)


def test_what_a_job_had_while_nobody_waited_is_not_held_against_it(fair, tap, clock):
    """Alone for 2 s, then beside clients that never stop: it still gets half of the time."""

    def run(items, step):
        for number in range(400):
            clock.now += 0.01
            if number == 200:
                for client in range(10):
                    again(client)
            step()
        clock.ended["long"] = clock.now
        return items

    long = Job("long", run, clock.now + 1e6, client="long")

    def again(client: int) -> None:
        job = clock.job(f"short {client}", 5, short=True, client=client)
        fair.submit(job)
        job.future.add_done_callback(lambda future: None if long.future.done() else again(client))

    fair.submit(long)
    began = clock.now
    tap.allowed.release(1)
    assert result(long) == "long"
    assert clock.end_of("long") - began <= 2.0 + 2 * 2.0 + LEAD_SECONDS + 4 * SLICE_SECONDS
    wait_for(lambda: fair.active + fair.queued == 0)


def test_guarantee_server_fair_long_jobs_do_not_hold_up_a_short_one(fair, tap, clock):
    for number in range(8):
        fair.submit(clock.job(f"long {number}", 300, client=number))
    tap.allowed.release(1)
    wait_for(lambda: fair.active > 0)
    waits = []
    for number in range(20):
        asked = clock.now
        job = clock.job(f"short {number}", 1, short=True, client="short")
        fair.submit(job)
        result(job)
        waits.append(clock.end_of(f"short {number}") - asked)
    # The step that was being made, and its own; time goes on between asking and submitting.
    assert sorted(waits)[18] <= 0.06
    wait_for(lambda: fair.active + fair.queued == 0)


def test_guarantee_server_fair_to_a_client_beside_one_with_many_jobs(fair, tap, clock):
    """What takes a tenth of a second is done in a few, although the other has ten jobs of a second waiting."""
    for number in range(10):
        fair.submit(clock.job(f"many {number}", 100, client="many"))
    few = clock.job("few", 10, client="few")
    fair.submit(few)
    began = clock.now
    tap.allowed.release(1)
    assert result(few) == "few"
    assert clock.end_of("few") - began <= 2 * 0.1 + 4 * SLICE_SECONDS
    wait_for(lambda: fair.active + fair.queued == 0)


def test_of_one_clients_jobs_the_one_that_has_had_least_is_next(fair, tap, clock):
    fair.submit(clock.job("long", 1000, client="one"))
    fair.submit(clock.job("quick", 20, client="one"))
    tap.allowed.release(1)
    wait_for(lambda: fair.active + fair.queued == 0)
    assert clock.end_of("quick") - 1000 <= 2 * 0.2 + 2 * SLICE_SECONDS


def test_guarantee_server_fair_new_jobs_of_a_client_do_not_starve_its_old_one(fair, tap, clock):
    """Three that take a fifth of a second are there at any time, for as long as the old one takes, or a minute."""
    old = clock.job("old", 100, client="one")
    began = clock.now

    def again(future: object = None) -> None:
        if not old.future.done() and clock.now < began + 60:
            job = clock.job("new", 20, client="one")
            fair.submit(job)
            job.future.add_done_callback(again)

    fair.submit(old)
    for _ in range(3):
        again()
    tap.allowed.release(1)
    assert result(old) == "old"
    # Alone it takes a second, and a quarter of the time is its own.
    assert clock.end_of("old") - began <= 4 * 1.0 + 4 * SLICE_SECONDS
    wait_for(lambda: fair.active + fair.queued == 0)


def test_only_some_long_jobs_have_begun_at_a_time(fair, tap, clock):
    for number in range(20):
        fair.submit(clock.job(str(number), 100, client=number))
    tap.allowed.release(1)
    most = 0
    while fair.active + fair.queued:
        most = max(most, fair.active)
    assert most <= BEGUN + 1


def test_guarantee_server_fair_one_client_cannot_fill_the_queue(tap):
    work = Work(1, 8, batch=1)
    work.submit(tap.job())
    for _ in range(6):
        work.submit(tap.job(client="greedy"))
    with pytest.raises(Full, match="6 requests of yours wait already"):
        work.submit(tap.job(client="greedy"))
    for number in range(2):
        work.submit(tap.job(client=number))
    with pytest.raises(Full, match="8 requests wait already"):
        work.submit(tap.job(client="another"))
    # The short ones have a queue of their own.
    work.submit(tap.job(client="greedy", short=True))
    assert not work.full
    tap.allowed.release(100)
    work.close()
    work.join(PATIENCE)


def test_guarantee_server_refuses_what_would_not_be_done_in_time(fair, tap, clock):
    """After the first job of a kind its pace is known: 0.1 s a token."""
    tap.allowed.release(1)
    known = clock.job("known", 10, kind="kind", tokens=1)
    fair.submit(known)
    result(known)
    wait_for(lambda: fair.active == 0)
    held = Tap()
    fair.submit(held.job(short=True))
    deadline = 10.0
    taken = 0
    refused = None
    for number in range(60):
        try:
            fair.submit(clock.job(f"{number}", 10, kind="kind", tokens=1, deadline=deadline, client=number))
        except Full as error:
            refused = error
            break
        taken += 1
    # Half of the deadline, and half of the slot is the short ones'.
    assert str(refused) == "requests that take about 5 s wait already"
    assert 20 <= taken <= 30
    held.allowed.release(1)
    wait_for(lambda: fair.active + fair.queued == 0)
    assert all(clock.end_of(f"{number}") - 1000 <= deadline + 1 for number in range(taken))


def test_guarantee_server_fair_a_long_job_does_not_shut_out_one_that_is_soon_done(fair, tap, clock):
    """One that lasts for most of the deadline, and another client's that takes a thirtieth of it: both in time."""
    tap.allowed.release(1)
    for name, steps in (("generation", 100), ("translation", 100)):
        known = clock.job(f"known {name}", steps, kind=name, tokens=steps)
        fair.submit(known)
        result(known)
    wait_for(lambda: fair.active == 0)
    held = Tap()
    fair.submit(held.job(short=True))
    fair.submit(clock.job("generation", 2600, kind="generation", tokens=2600, deadline=30.0, client="long"))
    translation = clock.job("translation", 100, kind="translation", tokens=100, deadline=30.0, client="other")
    fair.submit(translation)
    # Another of the same length would not be done in time, nor one of the first client's behind its own.
    for client in ("third", "long"):
        with pytest.raises(Full, match=r"^requests that take about 5[24] s wait already$"):
            fair.submit(clock.job("late", 2600, kind="generation", tokens=2600, deadline=30.0, client=client))
    began = clock.now
    held.allowed.release(1)
    wait_for(lambda: fair.active + fair.queued == 0)
    # A second of its own, and as much of the other's in turns.
    assert clock.end_of("translation") - began <= 2 * 1.0 + 4 * SLICE_SECONDS
    assert clock.end_of("generation") - began <= 30.0


def test_a_job_that_stands_still_ends_when_nobody_waits_for_it(fair, tap, clock):
    jobs = [clock.job(str(number), 10_000, client=number) for number in range(3)]
    for job in jobs:
        fair.submit(job)
    tap.allowed.release(1)
    wait_for(lambda: fair.active == 3)
    for job in jobs:
        fair.stop(job)
    wait_for(lambda: fair.active + fair.queued == 0)
    assert max(clock.ended.values(), default=0) < 1000 + 3 * 100
