"""Two processes under torchrun: they stop at the same step, resume exactly, and learn what one process learns."""

import json
import signal

import pytest
from torch import distributed

from training import program
from training.tiny import hashes, newest, run, series

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_gloo_available(), reason="this torch has no gloo"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of two processes."""
    folder = tmp_path_factory.mktemp("whole")
    assert program.start(folder, processes=2).wait() == 0, program.output(folder)
    return folder


def outcomes(folder):
    lines = [line for line in program.output(folder).splitlines() if line.startswith('{"rank"')]
    return sorted((json.loads(line) for line in lines), key=lambda outcome: outcome["rank"])


def test_guarantee_stops_cleanly_on_all_processes_and_resumes_exactly(tmp_path, whole):
    process = program.start(tmp_path, processes=2, pause=0.05)
    program.wait_for(program.reached(tmp_path, 2), process, tmp_path)
    process.send_signal(signal.SIGTERM)
    # The launcher passes the signal on and waits; its own exit code tells of the signal.
    assert process.wait() != 0
    first, second = outcomes(tmp_path)
    assert first["reason"] == second["reason"] == "signal", program.output(tmp_path)
    assert 2 <= first["step"] == second["step"] < 10
    assert newest(tmp_path).name == f"step-{first['step']:09d}"

    assert program.start(tmp_path, processes=2).wait() == 0, program.output(tmp_path)
    assert hashes(tmp_path) == hashes(whole)
    assert "rank-1.safetensors" in hashes(tmp_path)
    assert series(tmp_path) == series(whole)


def test_two_processes_have_random_streams_of_their_own(whole):
    assert hashes(whole)["rank-0.safetensors"] != hashes(whole)["rank-1.safetensors"]


def test_two_processes_and_one_with_the_same_global_batch_have_the_same_loss(tmp_path):
    two, one = tmp_path / "two", tmp_path / "one"
    process = program.start(two, processes=2, drop=0)
    run(one, drop=0.0)
    assert process.wait() == 0, program.output(two)
    losses = [[record["loss"] for record in series(folder) if "loss" in record] for folder in (two, one)]
    assert len(losses[0]) == 12
    assert losses[0] == pytest.approx(losses[1], rel=2e-6)


def test_another_number_of_processes_is_an_error_of_one_line(whole):
    with pytest.raises(RuntimeError, match=r"was written by 2 process\(es\), this run has 1: resume with 2"):
        run(whole, resume=True)


def test_guarantee_failing_loudly_on_one_process_stops_all(tmp_path, whole):
    """The second process cannot write its file: both end, neither waits, and the checkpoint before is whole."""
    process = program.start(tmp_path, processes=2, fail_on_rank=1, fail_at_step=6)
    assert process.wait(timeout=120) == 1
    text = program.output(tmp_path)
    assert "No space left on device" in text
    assert "RankFailed" in text
    assert [folder.name for folder in sorted((tmp_path / "checkpoint").iterdir())] == [
        "step-000000003",
        "step-000000005",
    ]
    assert program.start(tmp_path, processes=2).wait() == 0, program.output(tmp_path)
    assert hashes(tmp_path) == hashes(whole)
