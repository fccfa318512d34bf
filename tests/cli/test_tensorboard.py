"""`train --tensorboard`: event files where TensorBoard is installed, one line with the pip command elsewhere."""

import sys
import types

import pytest

from cli.command import here
from quasirnn.cli import train
from tasks.tiny_language_model import keys, write_texts


@pytest.fixture
def command(tmp_path):
    data = write_texts(tmp_path / "texts")
    return ["train", "language-model", "--data", data, "--out", tmp_path / "run", "--tensorboard"]


class Writer:
    """Stands in for torch's, which is TensorBoard's."""

    made: list["Writer"] = []  # noqa: RUF012

    def __init__(self, folder, purge_step=None):
        self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
        self.made.append(self)

    def add_scalar(self, name, value, step):
        assert isinstance(value, float)
        self.scalars.append((name, step))

    def close(self):
        self.closed = True


@pytest.fixture
def writers(monkeypatch):
    """Those that trainings make, with TensorBoard installed."""
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(train, "has_tensorboard", lambda: True)
    monkeypatch.setattr(Writer, "made", [])
    return Writer.made


def test_records_become_scalars_and_a_resumed_run_continues_them(command, writers, tmp_path):
    result = here(*command, *keys("epochs=9", "max_steps=52"))
    assert result.code == 0, result.stderr
    assert f"TensorBoard: tensorboard --logdir {tmp_path / 'run'}\n" in result.stderr
    assert (
        here("train", "language-model", "--out", tmp_path / "run", "--tensorboard", "--resume", "max_steps=54").code
        == 0
    )
    first, second = writers
    assert first.folder == second.folder == str(tmp_path / "run" / train.EVENT_FOLDER)
    assert (first.purge_step, second.purge_step) == (None, 53)
    assert ("training/loss", 50) in first.scalars
    assert {("validation/perplexity", 52), ("validation/loss", 52)} <= set(first.scalars)
    assert ("validation/perplexity", 54) in second.scalars
    assert first.closed
    assert second.closed


def test_every_seed_has_its_own(command, writers, tmp_path):
    assert here(*command, *keys("max_steps=2"), "--seeds", "1,2").code == 0
    assert [writer.folder for writer in writers] == [
        str(tmp_path / "run" / f"qrnn-{seed}" / train.EVENT_FOLDER) for seed in (1, 2)
    ]


def test_without_tensorboard_nothing_is_trained(command, monkeypatch, tmp_path):
    monkeypatch.setattr(train, "has_tensorboard", lambda: False)
    assert here(*command, *keys()).mistake == "--tensorboard needs TensorBoard: pip install tensorboard"
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not train.has_tensorboard(), reason="TensorBoard is not installed")
def test_tensorboard_reads_them(command, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert here(*command, *keys("max_steps=12")).code == 0
    events = EventAccumulator(str(tmp_path / "run" / train.EVENT_FOLDER)).Reload()
    assert [event.step for event in events.Scalars("validation/perplexity")] == [12]
