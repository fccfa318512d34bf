"""The engine's bookkeeping, with a clock that only moves when a contestant works. Nothing here asserts wall time."""

from itertools import groupby

import pytest

from quasirnn.benchmarks.timing import Budget, Samples, Stopwatch, median_interval, take_turns


class World:
    """Contestants that take as long as they are told, and a record of who ran when."""

    def __init__(self):
        self.now = 0.0
        self.ran = []

    def contestant(self, name, *seconds):
        """Takes the given times in turn; the last one from then on."""
        left = list(seconds)

        def one_pass():
            self.ran.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return one_pass

    def stopwatch(self, **options):
        return Stopwatch(clock=lambda: self.now, **options)


def test_contestants_take_turns_in_changing_order():
    world = World()
    contestants = {name: world.contestant(name, 1.0) for name in "abc"}
    budget = Budget(seconds=0.0, min_rounds=20)
    take_turns(contestants, budget, seed=3, stopwatch=world.stopwatch())
    assert "".join(world.ran[:3]) == "abc"  # the warm-up
    rounds = ["".join(world.ran[n : n + 3]) for n in range(3, len(world.ran), 3)]
    assert len(rounds) == 20
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len(set(rounds)) > 3

    again = World()
    take_turns({n: again.contestant(n, 1.0) for n in "abc"}, budget, seed=3, stopwatch=again.stopwatch())
    assert again.ran == world.ran


def test_best_median_and_p99():
    world = World()
    seconds = [1.0, 5.0, 3.0, 4.0, 2.0]
    # The first pass is a warm-up and not counted.
    samples = take_turns(
        {"a": world.contestant("a", 9.0, *seconds)},
        Budget(seconds=0.0, min_rounds=5, turn_seconds=0.0),
        stopwatch=world.stopwatch(),
    )["a"]
    assert samples.laps == pytest.approx(seconds)
    assert (samples.best, samples.median, samples.p99) == pytest.approx((1.0, 3.0, 5.0))
    assert Samples([float(n) for n in range(1, 201)]).p99 == 198.0
    assert Samples([2.0]).summary() == {"best": 2.0, "median": 2.0, "p99": 2.0, "laps": 1}


def test_rounds_end_with_the_budget():
    for budget, rounds in [
        (Budget(seconds=10.0, min_rounds=2), 10),
        (Budget(seconds=0.0, min_rounds=7), 7),
        (Budget(seconds=1e9, max_rounds=6), 6),
        (Budget(seconds=0.0, min_rounds=100, most_seconds=3.0), 3),
        (Budget(seconds=0.0, min_rounds=100, most_seconds=0.0), 1),
    ]:
        world = World()
        samples = take_turns({"a": world.contestant("a", 1.0)}, budget, stopwatch=world.stopwatch())
        assert len(samples["a"].laps) == rounds


def test_short_passes_run_several_to_a_turn_after_one_that_is_not_counted():
    world = World()
    contestants = {"fast": world.contestant("fast", 0.001), "slow": world.contestant("slow", 0.003)}
    budget = Budget(seconds=0.0, min_rounds=1, turn_seconds=0.02)
    samples = take_turns(contestants, budget, stopwatch=world.stopwatch())
    # 2 ms on average: ten to a turn, the same for both, however fast.
    assert [len(samples[name].laps) for name in ("fast", "slow")] == [10, 10]
    turns = [(name, len(list(group))) for name, group in groupby(world.ran[6:])]
    assert sorted(turns) == [("fast", 11), ("slow", 11)]

    world = World()
    contestants = {"fast": world.contestant("fast", 0.001), "slow": world.contestant("slow", 0.01)}
    samples = take_turns(contestants, budget, stopwatch=world.stopwatch(), equal_laps=False)
    assert {name: len(each.laps) for name, each in samples.items()} == {"fast": 20, "slow": 2}


def test_a_disturbed_first_guess_is_mended():
    world = World()
    # The warm-up says 10 s; it is 1 ms.
    contestants = {"a": world.contestant("a", 10.0, 0.001)}
    samples = take_turns(contestants, Budget(0.0, min_rounds=2, turn_seconds=0.01), stopwatch=world.stopwatch())
    assert len(samples["a"].laps) == 1 + 10


def test_on_a_gpu_several_passes_are_timed_together_and_waited_for():
    world = World()
    waits = []
    stopwatch = world.stopwatch(synchronize=lambda: waits.append(len(world.ran)))
    budget = Budget(seconds=0.0, min_rounds=1, turn_seconds=0.02, min_lap_seconds=0.005)
    samples = take_turns({"a": world.contestant("a", 0.001)}, budget, stopwatch=stopwatch)
    assert samples["a"].laps == pytest.approx([0.001] * 4)
    # Three warm-ups and one more before the first of the four laps.
    assert waits[-8:] == [4, 9, 9, 14, 14, 19, 19, 24]


def test_the_interval_of_a_median():
    """Ranks as the tables of the sign test have them."""
    assert median_interval(range(1, 21)) == (6, 15)
    assert median_interval(range(1, 201)) == (86, 115)
    assert median_interval([5.0, 1.0, 3.0]) == (1.0, 5.0)
    assert median_interval([3.0]) == (3.0, 3.0)
