"""The mean of the last weights: what is validated and kept, and that a resumed run continues it."""

import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from quasirnn.errors import CheckpointError
from quasirnn.training import Plan
from training.tiny import PLAN, TinyLearner, hashes, newest, run, series

AVERAGED = Plan(**PLAN | {"average": 0.4})  # the last 4 of 10 steps


class Recorder(TinyLearner):
    """Keeps the weights after each step, and those that it is given to validate."""

    def __init__(self, folder, **options):
        super().__init__(folder, **options)
        self.after, self.validated = [], []

    def loss(self, model, batch, carried):
        if model.training:
            self.after.append(self.model.embedding.weight.detach().clone())
        return super().loss(model, batch, carried)

    def validate(self, model, tick):
        self.validated.append(model.embedding.weight.detach().clone())
        return super().validate(model, tick)


def test_the_mean_of_the_last_steps_is_validated_and_training_goes_on_with_its_own_weights(tmp_path):
    plain, averaged = Recorder(tmp_path / "plain"), Recorder(tmp_path / "averaged")
    run(tmp_path / "plain", learner=plain)
    run(tmp_path / "averaged", learner=averaged, plan=AVERAGED)

    assert all(map(torch.equal, plain.after, averaged.after))
    last = load_file(newest(tmp_path / "averaged") / "model.safetensors")
    # Before each step, so number n is that after n steps; the last is in the checkpoint.
    mean = torch.stack([*averaged.after[7:], last["embedding.weight"]]).mean(0)
    assert torch.equal(averaged.validated[0], plain.validated[0])
    torch.testing.assert_close(averaged.validated[1], mean)
    torch.testing.assert_close(last["average.embedding.weight"], mean)
    assert last["average.count"] == 4
    assert not torch.equal(mean, last["embedding.weight"])


@pytest.mark.parametrize("position", [5, 7, 8])
def test_a_resumed_run_continues_the_mean(tmp_path, position):
    def signal_at(epoch, number):
        if epoch * 5 + number == position:
            os.kill(os.getpid(), signal.SIGTERM)

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(whole, plan=AVERAGED)
    run(stopped, plan=AVERAGED, before_batch=signal_at)
    run(stopped, plan=AVERAGED, resume=True)
    assert hashes(stopped) == hashes(whole)
    assert series(stopped) == series(whole)


def test_a_checkpoint_without_a_mean_is_refused_where_one_is_asked_for(tmp_path):
    run(tmp_path, plan=Plan(**PLAN | {"max_steps": 5}))
    with pytest.raises(CheckpointError, match=r"model: average\.count.* missing"):
        run(tmp_path, plan=AVERAGED, resume=True)


@pytest.mark.parametrize("average", [-0.1, 1.5, float("nan")])
def test_a_share_outside_0_to_1_is_refused(average):
    with pytest.raises(ValueError, match="average must be from 0 to 1"):
        Plan(epochs=1, average=average)
