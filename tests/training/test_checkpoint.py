"""Checkpoints: what is read is what was written, or it is not read."""

import json
import os
import shutil

import pytest
import torch

from quasirnn.errors import CheckpointError, WriteError
from quasirnn.training import Plan, World
from quasirnn.training.checkpoint import Checkpoints, OptimizerValues, Values, checksum
from quasirnn.training.plan import State
from training.disk import Disk, no_space, read_only
from training.tiny import PLAN, hashes, newest, run, series

MODEL = {"weight": torch.arange(6.0).view(2, 3), "half": torch.ones(2, dtype=torch.bfloat16)}
OPTIMIZER = {"0.step": torch.tensor(3.0)}
OWN = {"random.cpu": torch.arange(9, dtype=torch.uint8)}
SCALER = {"scale": 2.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoint", World(cpu=True))


def save(checkpoints, step):
    return checkpoints.save(values(step), MODEL, OPTIMIZER, OWN)


def values(step):
    state = State(step=step, epoch=1, position=2, best=1e-17, minutes=1 / 3)
    groups = OptimizerValues(state={}, param_groups=[{"lr": 0.1, "fused": None, "params": [0]}])
    return Values(state, steps_per_epoch=5, optimizer=groups, scaler=SCALER, carried=2)


def names(checkpoints):
    return sorted(os.listdir(checkpoints.folder))


def test_what_is_read_is_what_was_written(checkpoints):
    assert checkpoints.load_newest() is None
    save(checkpoints, 7)
    loaded = checkpoints.load_newest()
    assert loaded.values == values(7)
    for mine, stored in ((MODEL, loaded.model), (OPTIMIZER, loaded.optimizer), (OWN, loaded.own)):
        assert mine.keys() == stored.keys()
        assert all(torch.equal(mine[name], stored[name]) and mine[name].dtype == stored[name].dtype for name in mine)
    assert sorted(file.name for file in loaded.path.iterdir()) == [
        "model.safetensors",
        "optimizer.safetensors",
        "rank-0.safetensors",
        "state.json",
    ]


def test_the_one_before_is_kept_and_older_ones_go(checkpoints):
    for step in (3, 6, 9):
        save(checkpoints, step)
    assert names(checkpoints) == ["step-000000006", "step-000000009"]
    assert checkpoints.last_step == 9


def test_the_same_step_again_gets_a_name_of_its_own(checkpoints):
    """As after a validation that a signal had ended."""
    for step in (3, 6, 6):
        save(checkpoints, step)
    assert names(checkpoints) == ["step-000000006", "step-000000006.1"]
    assert checkpoints.load_newest().path.name == "step-000000006.1"
    assert checkpoints.last_step == 6


def truncate(folder):
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(50)


def flip_a_bit(folder):
    data = bytearray((folder / "optimizer.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "optimizer.safetensors").write_bytes(data)


def change_state(change, right_checksum=True):
    """Another content of state.json, with the checksum that belongs to it or without."""

    def damage(folder):
        content = json.loads((folder / "state.json").read_text())
        change(content)
        if right_checksum:
            content["checksum"] = checksum(content)
        (folder / "state.json").write_text(json.dumps(content))

    return damage


def replace_by_pipe(folder):
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


def state_with(**changes):
    return change_state(lambda content: content["state"].update(changes))


def scaler_with(**changes):
    return change_state(lambda content: content["scaler"].update(changes))


DAMAGES = {
    "model.safetensors has 50 bytes instead of": truncate,
    "optimizer.safetensors has changed since it was written": flip_a_bit,
    "model.safetensors: not a file": replace_by_pipe,
    "rank-0.safetensors: no such file": lambda folder: (folder / "rank-0.safetensors").unlink(),
    "state.json: no such file": lambda folder: (folder / "state.json").unlink(),
    "state.json: invalid JSON: Expecting value": lambda folder: (folder / "state.json").write_text(""),
    "state.json: must be one JSON object": lambda folder: (folder / "state.json").write_text("[]"),
    "recursion": lambda folder: (folder / "state.json").write_text("[" * 100_000),
    "can't decode": lambda folder: (folder / "state.json").write_bytes(b'{"\xff'),
    "state.json has changed since it was written": change_state(lambda content: content["state"].update(step=8), False),
    "step: must be an integer, got 'seven'": state_with(step="seven"),
    "step: must be at least 0, got -1": state_with(step=-1),
    "epoch: must be an integer, got True": state_with(epoch=True),
    "minutes: must be a number, got None": state_with(minutes=None),
    "further: no such key": state_with(further=1),
    "state.json: stale missing": change_state(lambda content: content["state"].pop("stale")),
    "carried: missing": change_state(lambda content: content.pop("carried")),
    "carried: must be at least 0, got -1": change_state(lambda content: content.update(carried=-1)),
    "world_size: must be at most 2147483647, got a huge number": change_state(
        lambda content: content.update(world_size=10**400)
    ),
    "world_size: must be at least 1, got 0": change_state(lambda content: content.update(world_size=0)),
    "state.json: rank-0.safetensors missing": change_state(lambda content: content["files"].pop("rank-0.safetensors")),
    "param_groups: must be": change_state(lambda content: content["optimizer"].update(param_groups=[1])),
    "scale: must be at most": scaler_with(scale=1e39),
    "backoff_factor: must be below 1": scaler_with(backoff_factor=1),
    "_growth_tracker: ": scaler_with(_growth_tracker=2**31),
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_guarantee_crash_safe_training_passes_over_a_broken_checkpoint(checkpoints, reason):
    save(checkpoints, 3)
    broken = save(checkpoints, 6)
    DAMAGES[reason](broken)
    loaded = checkpoints.load_newest()
    assert loaded.values.state.step == 3
    (note,) = loaded.notes
    assert note.startswith(f"{broken} cannot be used: ")
    assert reason in note
    assert "\n" not in note

    # When the run comes to that step again, the broken one makes way; the good one stays until then.
    save(checkpoints, 6)
    assert names(checkpoints) == ["step-000000003", "step-000000006"]
    assert checkpoints.load_newest().values.state.step == 6


def test_a_broken_newer_one_goes_with_the_next_save(checkpoints):
    save(checkpoints, 3)
    truncate(save(checkpoints, 6))
    checkpoints.load_newest()
    save(checkpoints, 4)
    assert names(checkpoints) == ["step-000000003", "step-000000004"]


def test_if_all_are_broken_one_line_says_so(checkpoints):
    for step in (3, 6):
        truncate(save(checkpoints, step))
    with pytest.raises(
        CheckpointError, match=r"^no checkpoint to resume from: .*step-000000006 .*; .*step-000000003 .*$"
    ):
        checkpoints.load_newest()


def test_another_format_is_an_error(checkpoints):
    path = save(checkpoints, 3) / "state.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match="has format 2, this version reads format 1"):
        checkpoints.load_newest()


def test_leftovers_of_killed_writes_are_removed(checkpoints):
    save(checkpoints, 3)
    leftover = checkpoints.folder / ".step-000000006.tmp"
    for clean in (checkpoints.load_newest, lambda: save(checkpoints, 6)):
        shutil.copytree(checkpoints.folder / "step-000000003", leftover, dirs_exist_ok=True)
        clean()
        assert not leftover.exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("error", "for_good"), [(no_space, False), (read_only, True)])
def test_guarantee_failing_loudly_every_write_of_a_checkpoint_in_turn(tmp_path, monkeypatch, error, for_good):
    """One line, the checkpoint before intact, and a resumed run that ends like one that never failed."""
    whole, few = tmp_path / "whole", {"plan": Plan(**PLAN | {"epochs": 1, "checkpoint_every": 1}), "steps_per_epoch": 3}
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        run(whole, **few)
    expected = hashes(whole), series(whole)
    removals = 0
    for fail_at in range(1, disk.changes + 1):
        folder = tmp_path / f"failed-{fail_at}"
        with monkeypatch.context() as patch:
            failing = Disk(patch, fail_at, error, for_good)
            try:
                run(folder, **few)
                message = None
            except WriteError as failure:
                message = str(failure)
        if message is None:
            # An old checkpoint that cannot be removed is no reason to stop; it is tried again with the next one.
            # And a folder that already exists need not be made.
            assert set(failing.failed) <= {"rename", "unlink", "rmdir", "mkdir"}
            removals += 1
        else:
            assert message.startswith(f"cannot write {folder}")
            assert error().strerror in message
            assert "\n" not in message
        assert run(folder, resume=True, **few).reason == "finished"
        assert (hashes(folder), series(folder)) == expected, f"change {fail_at} of {disk.changes}"
    assert removals < disk.changes / 2


def test_the_state_of_another_model_or_of_other_data_is_an_error_of_one_line(tmp_path):
    run(tmp_path)
    with pytest.raises(CheckpointError, match=r"does not belong to this run: its epochs have 5 steps, not 6"):
        run(tmp_path, steps_per_epoch=6, resume=True)

    def another_model():
        from training.tiny import TinyLearner

        learner = TinyLearner(tmp_path)
        learner.model.decoder.bias = torch.nn.Parameter(torch.zeros(3))
        return learner

    with pytest.raises(CheckpointError, match=r"decoder.bias has the shape \[11\] in the checkpoint and \[3\] here"):
        run(tmp_path, learner=another_model(), resume=True)


def test_an_earlier_run_is_not_written_over(tmp_path):
    run(tmp_path)
    before = newest(tmp_path).stat()
    with pytest.raises(CheckpointError, match="belongs to an earlier run: resume it, or use another folder"):
        run(tmp_path)
    assert newest(tmp_path).stat() == before


def test_a_broken_newest_checkpoint_is_noted_and_the_run_still_ends_the_same(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(whole)
    run(broken, plan=Plan(**PLAN | {"max_steps": 9}))
    truncate(newest(broken))
    run(broken, resume=True)
    assert hashes(broken) == hashes(whole)
    assert series(broken) == series(whole)
