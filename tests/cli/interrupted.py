"""Trainings that are killed: when, and where they went on."""

import json
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from cli.command import Process


def steps_saved(run: Path) -> int:
    """The step of the newest checkpoint, 0 if there is none."""
    names = [path.name for path in (run / "checkpoint").glob("step-*")] if (run / "checkpoint").is_dir() else []
    return max((int(name[5:14]) for name in names), default=0)


def kill_at_random_moments(run: Path, output: Path, arguments: Sequence[object], kills: int) -> list[int]:
    """Start `quasirnn ARGUMENTS`, with --resume among them, and end it by SIGKILL, so many times.

    Between two checkpoints or in the middle of one, and early enough that a run of some 400 steps is far from its end.
    Returns the steps after which it was killed.
    """
    moment = random.Random()  # not seeded: over time, all moments are tried
    targets = sorted(moment.sample(range(10, 150), kills))
    for target in targets:
        enough = max(target, steps_saved(run) + 1)
        process = Process(output, *arguments)
        process.wait_for(lambda enough=enough: steps_saved(run) >= enough)
        time.sleep(moment.uniform(0, 0.05))
        process.popen.kill()
        assert process.wait() == -signal.SIGKILL, process.output
    return targets


def resumes(run: Path, checkpoint_every: int) -> list[int]:
    """Where each resume began; at most the steps between two checkpoints before what had been reached."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    begun = []
    for number, record in enumerate(records):
        if record["event"] == "resume":
            reached = max(before["step"] for before in records[:number])
            assert record["step"] > 0
            assert reached - record["step"] <= checkpoint_every
            begun.append(record["step"])
    return begun
