"""Exact resume: whatever ends a run, at whatever moment, the resumed one ends with the bits of an uninterrupted one."""

import json
import os
import random
import signal
from pathlib import Path

import pytest

from quasirnn.training import Plan
from quasirnn.training.processes import SIGNALS
from quasirnn.training.run_log import read_metrics
from training import program
from training.disk import Crash, Disk
from training.tiny import PLAN, TinyLearner, hashes, newest, run, series


def check_resumes(folder: Path, number: int, checkpoint_every: int) -> None:
    """Each resume began at a checkpoint past zero and repeated at most the steps between two checkpoints."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    resumes = [n for n, record in enumerate(records) if record["event"] == "resume"]
    assert len(resumes) == number
    for n in resumes:
        before = max(record["step"] for record in records[:n])
        assert 0 < records[n]["step"] <= before
        assert before - records[n]["step"] <= checkpoint_every


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.full)])
def test_guarantee_exact_resume_after_being_killed(tmp_path, kills):
    """SIGKILL at random moments: `kills` times in one run, and once more for good."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    epochs, steps_per_epoch = kills, 8
    run(whole, plan=Plan(**PLAN | {"epochs": epochs}), steps_per_epoch=steps_per_epoch)

    moment = random.Random()  # not seeded: over time, all moments are tried
    last = epochs * steps_per_epoch
    # In order, and after the first checkpoint; the last steps are left to the process that finishes.
    targets = sorted(moment.sample(range(4, last - 1), kills))
    for target in targets:
        reached = program.reached(killed, target)
        process = program.start(killed, epochs=epochs, steps_per_epoch=steps_per_epoch, pause=0.03)
        program.wait_for(reached, process, killed)
        # Anywhere in the next step, which takes a pause of 0.03 s and writes.
        with pytest.raises(program.subprocess.TimeoutExpired):
            process.wait(moment.uniform(0, 0.04))
        process.kill()
        assert process.wait() == -signal.SIGKILL, program.output(killed)
    process = program.start(killed, epochs=epochs, steps_per_epoch=steps_per_epoch)
    assert process.wait() == 0, program.output(killed)

    assert hashes(killed) == hashes(whole), f"killed at {targets}"
    assert series(killed) == series(whole)
    check_resumes(killed, number=kills, checkpoint_every=3)


@pytest.mark.usefixtures("quick")
def test_guarantee_crash_safe_training_killed_at_every_write(tmp_path, monkeypatch):
    """Before each sync, rename or removal in turn: what was written loads, and the run ends as if nothing had been."""
    whole, few = tmp_path / "whole", {"plan": Plan(**PLAN | {"checkpoint_every": 1}), "steps_per_epoch": 2}
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        run(whole, **few)
    assert disk.changes > 50
    expected = hashes(whole), series(whole)
    for crash_at in range(1, disk.changes + 1):
        folder = tmp_path / f"crashed-{crash_at}"
        with monkeypatch.context() as patch:
            Disk(patch, crash_at)
            with pytest.raises(Crash):
                run(folder, **few)
        assert run(folder, resume=True, **few).reason == "finished"
        assert (hashes(folder), series(folder)) == expected, f"change {crash_at} of {disk.changes}"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("position", range(10))
def test_guarantee_stops_cleanly_and_resumes_at_any_step(tmp_path, position):
    sent = SIGNALS[position % 3]

    def signal_at(epoch, number):
        if epoch * 5 + number == position:
            os.kill(os.getpid(), sent)

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(whole)
    outcome = run(stopped, before_batch=signal_at)
    # The signal comes with a batch; that step is still made.
    assert (outcome.reason, outcome.signal, outcome.step) == ("signal", sent, position + 1)
    assert newest(stopped).name == f"step-{position + 1:09d}"
    resumed = run(stopped, resume=True)
    assert (resumed.reason, resumed.signal) == ("finished", None)
    assert hashes(stopped) == hashes(whole)
    assert series(stopped) == series(whole)


def test_a_signal_in_a_validation_ends_it_and_the_resumed_run_validates_again(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(whole)

    class Interrupted(TinyLearner):
        def validate(self, model, tick):
            os.kill(os.getpid(), signal.SIGINT)
            return super().validate(model, tick)

    for steps_made in (5, 0):
        outcome = run(stopped, learner=Interrupted(stopped), resume=True)
        assert (outcome.reason, outcome.step, outcome.steps_made) == ("signal", 5, steps_made)
        assert (outcome.signal, outcome.best) == (signal.SIGINT, None)
        assert not (stopped / "model.safetensors").exists()
    assert run(stopped, resume=True).reason == "finished"
    assert hashes(stopped) == hashes(whole)
    assert series(stopped) == series(whole)


def test_a_finished_run_is_left_alone(tmp_path):
    run(tmp_path)
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.rglob("*") if file.is_file()}
    outcome = run(tmp_path, resume=True)
    assert (outcome.reason, outcome.steps_made, outcome.resumed_at) == ("finished", 0, 10)
    assert {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in tmp_path.rglob("*") if f.is_file()} == before


@pytest.mark.parametrize("short", [{"epochs": 1}, {"max_steps": 7}, {"max_steps": 5}])
def test_a_longer_plan_goes_on(tmp_path, short):
    whole, continued = tmp_path / "whole", tmp_path / "continued"
    long = Plan(**PLAN | {"epochs": 3})
    run(whole, plan=long)
    assert run(continued, plan=Plan(**PLAN | short)).reason == "finished"
    outcome = run(continued, plan=long, resume=True)
    assert (outcome.step, outcome.resumed_at) == (15, short.get("max_steps", 5))
    assert hashes(continued) == hashes(whole)


def test_resuming_where_nothing_is_yet_starts(tmp_path):
    outcome = run(tmp_path / "new", resume=True)
    assert (outcome.resumed_at, outcome.steps_made) == (None, 10)
    assert read_metrics(tmp_path / "new" / "metrics.jsonl")[0]["event"] == "start"
