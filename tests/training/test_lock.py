"""One training per run folder, and none that goes on in a folder that is gone."""

import errno
import fcntl
import os
import shutil
import signal

import pytest

from quasirnn.errors import RunError, WriteError
from quasirnn.training import Observer, RunLock
from training import program
from training.tiny import hashes, run

HELD = r"^{folder}: process {pid} is training in this folder\. Wait for it, stop it .*, or use another folder\.$"


def held(folder, pid):
    return pytest.raises(RunError, match=HELD.format(folder=folder, pid=pid))


@pytest.mark.slow
def test_guarantee_stops_cleanly_one_training_per_run_folder(tmp_path):
    """A second training is refused with the process that has the folder; the first one ends as if it were alone."""
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    run(whole)
    process = program.start(shared, pause=0.1)
    program.wait_for(program.reached(shared, 1), process, shared)
    for resume in (True, False):
        with held(shared, process.pid):
            run(shared, resume=resume)
    assert process.wait() == 0, program.output(shared)
    assert hashes(shared) == hashes(whole)
    assert not (shared / ".lock").exists()


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_released(tmp_path):
    process = program.start(tmp_path, pause=0.1)
    program.wait_for(program.reached(tmp_path, 4), process, tmp_path)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert (tmp_path / ".lock").read_text() == f"{process.pid}\n"
    assert run(tmp_path, resume=True).reason == "finished"


def test_a_caller_may_hold_the_lock_itself(tmp_path):
    """And write to the folder before the training starts."""
    with RunLock(tmp_path) as lock:
        with held(tmp_path, os.getpid()):
            run(tmp_path)
        assert run(tmp_path, lock=lock).reason == "finished"
        with held(tmp_path, os.getpid()):
            RunLock(tmp_path).acquire()
    assert not (tmp_path / ".lock").exists()


def test_a_lock_that_its_holder_removed_meanwhile_is_taken_again(tmp_path, monkeypatch):
    """The file is opened, then the holder lets go and removes it, then the lock on it is granted."""
    first, second, third = (RunLock(tmp_path) for _ in range(3))
    first.acquire()
    flock = fcntl.flock

    def after_release(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", after_release)
    second.acquire()
    with held(tmp_path, os.getpid()):
        third.acquire()
    second.check()
    second.release()


def remove(folder):
    shutil.rmtree(folder)


def replace(folder):
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize("change", [remove, replace])
@pytest.mark.parametrize("number", [1, 4])
def test_guarantee_failing_loudly_when_the_run_folder_vanishes(tmp_path, change, number):
    """Before the first checkpoint, or between the last step of an epoch and its validation: nothing is made anew."""
    folder = tmp_path / "run"

    def change_it(epoch, batch):
        if (epoch, batch) == (0, number):
            change(folder)

    with pytest.raises(WriteError, match=r"^.*/run or its \.lock was removed or replaced during training: stopped"):
        run(folder, before_batch=change_it)
    assert not folder.exists() or not os.listdir(folder)


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(other)
    with pytest.raises(WriteError, match=r"cannot write .*/run: Too many levels of symbolic links"):
        run(tmp_path / "run")
    assert other.read_text() == "precious"


def test_a_file_system_without_locks_is_noted(tmp_path, monkeypatch):
    def unsupported(descriptor, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    class Notes(Observer):
        notes: list[str] = []  # noqa: RUF012

        def note(self, text):
            self.notes.append(text)

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert run(tmp_path, observer=Notes()).reason == "finished"
    assert Notes.notes == [f"{tmp_path}: this file system has no locks; do not start a second training there"]
