"""The timing engine: contestants take turns in one process.

In a round every contestant has one turn, in random order; a turn is a few passes in a row after one that is not
counted, so that caches hold the contestant's own data. Other work on the machine can only make a pass slower, so the
fastest pass is nearest to the cost of the code. The order is random so that no contestant always follows the same one.
"""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

Pass = Callable[[], object]

# A pass longer than this does not depend on what is in the cache: no uncounted pass before it.
LONG = 0.02


@dataclass(frozen=True)
class Budget:
    """How long to measure one group of contestants."""

    seconds: float  # no new round after this
    min_rounds: int = 4  # even if that takes longer, up to `most_seconds`
    max_rounds: int = 40
    turn_seconds: float = 0.05  # a contestant's passes in one turn, roughly
    min_lap_seconds: float = 0.0  # shorter passes are timed several together; for a GPU
    most_seconds: float | None = None  # no new round after this in any case; one is always finished


@dataclass
class Samples:
    """Seconds per pass of one contestant, as measured lap by lap; a lap is one pass, or several timed together."""

    laps: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.laps)

    @property
    def median(self) -> float:
        return statistics.median(self.laps)

    @property
    def p99(self) -> float:
        """The smallest lap that at least 99 % of all do not exceed."""
        return sorted(self.laps)[math.ceil(0.99 * len(self.laps)) - 1]

    def summary(self) -> dict[str, float]:
        return {"best": self.best, "median": self.median, "p99": self.p99, "laps": len(self.laps)}


@dataclass(frozen=True)
class Stopwatch:
    """Times passes with a clock; on a GPU it also waits until the work is done."""

    clock: Callable[[], float] = time.perf_counter
    synchronize: Callable[[], object] = lambda: None

    def seconds(self, one_pass: Pass, passes: int = 1) -> float:
        """Seconds per pass."""
        self.synchronize()
        start = self.clock()
        for _ in range(passes):
            one_pass()
        self.synchronize()
        return (self.clock() - start) / passes


def take_turns(
    contestants: Mapping[str, Pass],
    budget: Budget,
    *,
    seed: int = 1,
    stopwatch: Stopwatch | None = None,
    equal_laps: bool = True,
) -> dict[str, Samples]:
    """Time all contestants, interleaved.

    Args:
        contestants: what to call, by name.
        budget: when to stop.
        seed: of the order within each round.
        stopwatch: how to tell the time.
        equal_laps: every contestant has the same number of laps, so that no one has more attempts at its best lap
            than another. False gives each the same time instead.
    Returns:
        The samples of each contestant, by name.
    """
    stopwatch = stopwatch or Stopwatch()
    order = list(contestants)
    shuffle = random.Random(seed).shuffle
    expected = {name: _warm_up(contestants[name], stopwatch) for name in order}
    samples = {name: Samples() for name in order}
    with _no_garbage_collection():
        start = stopwatch.clock()
        for finished in range(budget.max_rounds):
            spent = stopwatch.clock() - start
            limit = budget.most_seconds if finished < budget.min_rounds else budget.seconds
            if finished >= 1 and limit is not None and spent >= limit:
                break
            mean = statistics.fmean(expected.values())
            shuffle(order)
            for name in order:
                duration = mean if equal_laps else expected[name]
                passes = max(1, math.ceil(budget.min_lap_seconds / duration))
                laps = max(1, round(budget.turn_seconds / (duration * passes)))
                if expected[name] < LONG:
                    contestants[name]()
                samples[name].laps += [stopwatch.seconds(contestants[name], passes) for _ in range(laps)]
            # The first guess may have been disturbed.
            expected = {name: samples[name].best for name in order}
    return samples


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A confidence interval of at least 95 % for the median, by ranks: no distribution is assumed (the sign test).

    Fewer than six values are not enough; their whole range is returned.

    >>> median_interval(range(1, 101))
    (40, 61)
    """
    ordered, n = sorted(values), len(values)
    rank, tail = 0, 1  # 2 ** n times the chance that at most `rank` values lie below
    while 40 * tail <= 2**n:
        rank += 1
        tail += math.comb(n, rank)
    outer = max(0, rank - 1)
    return ordered[outer], ordered[-1 - outer]


def _warm_up(one_pass: Pass, stopwatch: Stopwatch) -> float:
    """Roughly the seconds of one pass. The first one also starts thread pools and fills caches."""
    seconds = stopwatch.seconds(one_pass)
    for _ in range(2):
        if seconds < LONG:
            seconds = min(seconds, stopwatch.seconds(one_pass))
    return max(seconds, 1e-9)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """As in `timeit`: a collection would count for whichever contestant is running."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
