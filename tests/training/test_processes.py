"""Two processes as under torchrun: they stop at the same step, resume exactly, and learn what one process learns."""

import json
import signal

import pytest
from torch import distributed

from processes import run_together
from quasirnn.errors import CheckpointError
from training import program, scenarios
from training.tiny import hashes, newest, run, series

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_gloo_available(), reason="this torch has no gloo"),
    # The processes are started once for all of these.
    pytest.mark.xdist_group("processes"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the scenarios were played, a folder each. That they ended at all shows that none waited for the other."""
    folder = tmp_path_factory.mktemp("scenarios")
    assert run_together(scenarios.main, ["scenarios", folder], folder / "output.txt") == [0, 0], program.output(folder)
    return folder


def results(folder, scenario):
    """What the first and the second process said of a scenario."""
    lines = [line for line in program.output(folder).splitlines() if line.startswith("{")]
    found = {line["rank"]: line["result"] for line in map(json.loads, lines) if line["scenario"] == scenario}
    return found[0], found[1]


@pytest.mark.full
def test_guarantee_stops_cleanly_on_all_processes_and_resumes_exactly(tmp_path, folder):
    """SIGTERM to the launcher, which passes it on. By default, one of the processes gets it."""
    process = program.start(tmp_path, processes=2, pause=0.05)
    program.wait_for(program.reached(tmp_path, 2), process, tmp_path)
    process.send_signal(signal.SIGTERM)
    # The launcher's own exit code tells of the signal.
    assert process.wait() != 0
    first, second = (json.loads(line) for line in program.output(tmp_path).splitlines() if line.startswith("{"))
    assert first == second, program.output(tmp_path)
    assert first["reason"] == "signal"
    assert 2 <= first["step"] < 10
    assert newest(tmp_path).name == f"step-{first['step']:09d}"

    assert program.start(tmp_path, processes=2).wait() == 0, program.output(tmp_path)
    assert hashes(tmp_path) == hashes(folder / "whole")
    assert "rank-1.safetensors" in hashes(tmp_path)
    assert series(tmp_path) == series(folder / "whole")


def test_guarantee_stops_cleanly_when_one_process_gets_the_signal(folder):
    result = "signal 15 at step 7, then finished"
    assert results(folder, "signal_to_the_second") == (result, result)
    assert hashes(folder / "signal_to_the_second") == hashes(folder / "whole")


def test_two_processes_draw_from_streams_of_their_own(folder):
    assert hashes(folder / "whole")["rank-0.safetensors"] != hashes(folder / "whole")["rank-1.safetensors"]


def test_two_processes_and_one_with_the_same_global_batch_have_the_same_loss(tmp_path, folder):
    run(tmp_path, drop=0.0)
    runs = (folder / "without_dropout", tmp_path)
    two, one = ([record["loss"] for record in series(each) if "loss" in record] for each in runs)
    assert len(two) == 12
    # Measured: 1.1e-7, the rounding of float32.
    assert two == pytest.approx(one, rel=1e-6)


def test_guarantee_bad_numbers_stop_all_processes(folder):
    first, second = results(folder, "nan_on_the_second")
    assert first == second
    assert first.startswith("BadLoss: step 1, epoch 1: the loss is nan; the weights were not updated")
    assert not (folder / "nan_on_the_second" / "checkpoint").exists()


def test_guarantee_failing_loudly_on_one_process_stops_all(folder):
    """The checkpoint before is whole."""
    first, second = results(folder, "no_space_on_the_second")
    assert first.startswith("RankFailed: writing ")
    assert "No space left on device (ENOSPC); earlier checkpoints are unchanged" in second
    checkpoints = sorted((folder / "no_space_on_the_second" / "checkpoint").iterdir())
    assert [checkpoint.name for checkpoint in checkpoints] == ["step-000000003", "step-000000005"]


def test_guarantee_failing_loudly_when_records_cannot_be_written(folder):
    first, second = results(folder, "no_space_for_records")
    assert "metrics.jsonl: No space left on device (ENOSPC)" in first
    assert second.startswith("RankFailed: writing to ")


def test_an_error_in_the_validation_reaches_all(folder):
    first, second = results(folder, "error_in_the_validation")
    assert first.startswith("KeyError: ")
    assert second == "RankFailed: validation failed on another process; see its message"


def test_another_number_of_processes_is_an_error_of_one_line(folder):
    with pytest.raises(CheckpointError, match=r"was written by 2 process\(es\), this run has 1: resume with 2"):
        run(folder / "whole", resume=True)
