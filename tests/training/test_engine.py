"""The loop: when it ends, what it refuses to do, and what it tells."""

import math
import sys

import pytest
import torch
from accelerate.state import AcceleratorState
from torch import nn

from quasirnn.training import BadLoss, Observer, Plan, World, WriteError, read_metrics, run_log, train
from quasirnn.training.update import adamw, sgd
from training.tiny import PLAN, TinyLearner, hashes, newest, run, series


def events(folder, event):
    return [record for record in read_metrics(folder / "metrics.jsonl") if record["event"] == event]


def weights(learner):
    return [p.detach().clone() for p in learner.model.parameters()]


class Sum(nn.Module):
    """Loss = w * x, so that gradients are what the batches hold."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0]))

    def forward(self, x):
        return self.w * x


class Plain:
    best_by, higher_is_better = "w", True

    def __init__(self, batches):
        self.model, self.data, self.steps_per_epoch = Sum(), batches, len(batches)

    def batches(self, epoch, start):
        return iter(torch.tensor(batch) for batch in self.data[start:])

    def loss(self, model, batch, carried):
        return model(batch).sum(), len(batch), None

    def validate(self, model, tick):
        return {"w": model.w.item()}

    def save_best(self, model):
        pass


def test_the_gradient_is_that_of_the_mean_times_the_scale(tmp_path):
    learner = Plain([[1.0, 2.0, 6.0]])
    train(learner, sgd(learner.model, 0.1), Plan(epochs=1, loss_scale=2.0, log_every=1), tmp_path)
    assert learner.model.w.item() == pytest.approx(1 - 0.1 * 2 * 3)
    # What is recorded is the mean, not scaled.
    assert events(tmp_path, "train")[0]["loss"] == pytest.approx(3.0)


def test_l2_comes_before_clipping(tmp_path):
    learner = Plain([[3.0]])
    plan = Plan(epochs=1, l2=5.0, clip_norm=2.0, log_every=1)
    train(learner, sgd(learner.model, 0.1), plan, tmp_path)
    # The gradient 3 + 5 * 1 = 8 is clipped to 2; clipped first, it would have been 2 + 5.
    assert learner.model.w.item() == pytest.approx(1 - 0.1 * 2)
    assert events(tmp_path, "train")[0]["gradient_norm"] == pytest.approx(8.0)


def test_a_gradient_below_the_limit_is_not_scaled(tmp_path):
    learner = Plain([[3.0]])
    train(learner, sgd(learner.model, 0.1), Plan(epochs=1, clip_norm=4.0), tmp_path)
    assert learner.model.w.item() == pytest.approx(1 - 0.3)


def test_what_is_carried_ends_with_its_epoch(tmp_path):
    carried_in = []

    class Carrying(Plain):
        def loss(self, model, batch, carried):
            carried_in.append(None if carried is None else carried[0].item())
            return model(batch).sum(), len(batch), (batch.sum(),)

    learner = Carrying([[1.0], [2.0], [3.0]])
    train(learner, sgd(learner.model, 0.1), Plan(epochs=2), tmp_path)
    assert carried_in == [None, 1.0, 2.0] * 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_guarantee_bad_numbers_stop_before_the_update(tmp_path, bad):
    learner = TinyLearner(tmp_path)
    plain = learner.loss

    def loss(model, batch, carried):
        total, count, carried = plain(model, batch, carried)
        return (total * bad if learner.validations and model.training else total), count, carried

    learner.loss = loss
    snapshot = []

    class Keep(Observer):
        def progress(self, progress):
            snapshot[:] = weights(learner)

    with pytest.raises(BadLoss) as caught:
        run(tmp_path, learner=learner, observer=Keep())
    text = str(caught.value)
    assert text.startswith(
        f"step 6, epoch 2: the loss is {bad}" if not math.isnan(bad) else "step 6, epoch 2: the loss is nan"
    )
    assert "the weights were not updated and the checkpoint of step 5 is intact. Try a smaller learning rate" in text
    assert "\n" not in text
    assert all(torch.equal(a, b) for a, b in zip(weights(learner), snapshot, strict=True))
    assert newest(tmp_path).name == "step-000000005"
    assert events(tmp_path, "stop")[-1]["reason"] == f"the loss is {bad}"
    # Nothing was overwritten: the checkpoint goes on as if nothing had been.
    whole = tmp_path / "whole"
    run(whole)
    run(tmp_path, resume=True)
    assert hashes(tmp_path) == hashes(whole)


def test_guarantee_bad_numbers_stop_at_a_gradient_that_is_not_finite(tmp_path):
    learner = Plain([[1.0], [math.inf]])

    def loss(model, batch, carried):
        # An infinite slope at a finite value.
        return (
            (model(torch.tensor([1.0])) - model.w.detach()).clamp(min=0).sqrt().sum()
            if batch.isinf()
            else model(batch).sum(),
            1,
            None,
        )

    learner.loss = loss
    with pytest.raises(
        BadLoss, match=r"^step 2, epoch 1: the gradient norm is (nan|inf); .* no checkpoint was written yet"
    ):
        train(learner, sgd(learner.model, 0.1), Plan(epochs=1, clip_norm=1.0), tmp_path)
    assert learner.model.w.item() == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("batches", "intact"),
    [([1e38], "no checkpoint was written yet"), ([0.0, 1e38, 0.0], "the checkpoint of step 1 is intact")],
    ids=["before a validation", "before a checkpoint"],
)
def test_guarantee_bad_numbers_stop_before_weights_that_overflowed_are_used(tmp_path, batches, intact):
    """Loss and gradient of the last step are finite; times the learning rate they are too large for the weights."""
    learner = Plain([[number] for number in batches])
    learner.validate = lambda model, tick: pytest.fail("validated")
    with pytest.raises(
        BadLoss, match=r"^step \d, epoch 1: the weights are no longer finite .* not saved and .*" + intact
    ):
        train(learner, sgd(learner.model, 10.0), Plan(epochs=1, checkpoint_every=1), tmp_path)
    assert events(tmp_path, "stop")[-1]["reason"] == "the weights are not finite"


def test_it_stops_early_and_keeps_the_best(tmp_path):
    learner = TinyLearner(tmp_path, figures=[3.0, 2.0, 2.5, 2.0, 1.0])
    outcome = run(tmp_path, learner=learner, plan=Plan(**PLAN | {"epochs": 9, "patience": 2}))
    assert (outcome.reason, outcome.epoch, outcome.best, outcome.best_step) == ("stopped early", 4, 2.0, 10)
    assert [record["better"] for record in events(tmp_path, "valid")] == [True, True, False, False]
    # Resumed, it does nothing; with more patience, it goes on.
    again = run(tmp_path, plan=Plan(**PLAN | {"epochs": 9, "patience": 2}), resume=True)
    assert (again.reason, again.steps_made) == ("stopped early", 0)
    longer = run(tmp_path, plan=Plan(**PLAN | {"epochs": 5, "patience": 3}), resume=True)
    assert (longer.reason, longer.steps_made) == ("finished", 5)


def test_higher_may_be_better_and_nan_never_is(tmp_path):
    learner = TinyLearner(tmp_path, figures=[math.nan, 1.0, math.inf, 2.0, 1.5])
    learner.higher_is_better = True
    outcome = run(tmp_path, learner=learner, plan=Plan(**PLAN | {"epochs": 5}))
    assert (outcome.best, outcome.best_step) == (2.0, 20)
    assert [record["loss"] for record in events(tmp_path, "valid")] == [None, 1.0, None, 2.0, 1.5]


def test_the_end_in_the_middle_of_an_epoch_is_validated(tmp_path):
    outcome = run(tmp_path, plan=Plan(**PLAN | {"max_steps": 7}))
    assert (outcome.reason, outcome.step, outcome.epoch) == ("finished", 7, 1)
    assert [record["step"] for record in events(tmp_path, "valid")] == [5, 7]
    assert newest(tmp_path).name == "step-000000007"


def test_minutes_count_across_resumes(tmp_path, monkeypatch):
    """A clock that a batch moves on by a minute, and a validation not at all."""
    now = [100.0]
    monkeypatch.setattr(run_log.time, "monotonic", lambda: now[0])

    def minute(epoch, number):
        now[0] += 60

    def go(**changes):
        return run(tmp_path, plan=Plan(**PLAN | changes), resume=True, before_batch=minute)

    first = go(max_steps=2)
    assert (first.reason, first.minutes) == ("finished", 2)
    now[0] += 1000  # between two runs no time is counted
    second = go(max_minutes=4)
    assert (second.reason, second.step, second.minutes) == ("out of time", 4, 4)
    assert events(tmp_path, "valid")[-1]["step"] == 4
    third = go(max_minutes=4)
    assert (third.reason, third.steps_made, third.minutes) == ("out of time", 0, 4)
    fourth = go(max_minutes=100)
    assert (fourth.reason, fourth.step, fourth.minutes) == ("finished", 10, 10)


def test_validation_and_records_do_not_disturb_training(tmp_path):
    """More checkpoints, other records: the same weights."""
    run(tmp_path / "a", plan=Plan(**PLAN | {"checkpoint_every": 1, "log_every": 1}))
    run(tmp_path / "b", plan=Plan(**PLAN | {"checkpoint_every": None, "log_every": 4}))
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    losses = [record["loss"] for record in events(tmp_path / "a", "train")]
    assert [record["loss"] for record in events(tmp_path / "b", "train")] == pytest.approx(
        [sum(losses[:4]) / 4, sum(losses[4:8]) / 4]
    )


def test_records_of_several_steps_survive_a_resume(tmp_path):
    """A mean over four steps, two of them before the checkpoint and two after it."""
    plan = Plan(**PLAN | {"log_every": 4})
    run(tmp_path / "whole", plan=plan)
    run(tmp_path / "cut", plan=Plan(**PLAN | {"log_every": 4, "max_steps": 6}))
    run(tmp_path / "cut", plan=plan, resume=True)
    assert [r for r in series(tmp_path / "cut") if r["event"] == "train"] == [
        r for r in series(tmp_path / "whole") if r["event"] == "train"
    ]


def test_the_observer_hears_of_every_step_and_nothing_is_printed(tmp_path, capfd):
    class Listener(Observer):
        def __init__(self):
            self.heard, self.records, self.notes = [], [], []

        def progress(self, progress):
            self.heard.append(progress)

        def record(self, record):
            self.records.append(record)

        def note(self, text):
            self.notes.append(text)

    listener = Listener()
    run(tmp_path, observer=listener)
    steps = [progress for progress in listener.heard if progress.phase == "train"]
    assert [progress.step for progress in steps] == list(range(1, 11))
    assert [(p.epoch, p.position) for p in steps][4:6] == [(1, 5), (2, 1)]
    assert (steps[0].total_steps, steps[0].epochs, steps[0].steps_per_epoch) == (10, 2, 5)
    assert steps[-1].seconds_left == 0
    assert all(progress.items_per_second > 0 for progress in steps)
    assert steps[0].loss == pytest.approx(listener.records[1]["loss"])
    validations = [progress for progress in listener.heard if progress.phase == "valid"]
    assert [(p.epoch, p.done, p.of) for p in validations] == [(1, 0, 2), (1, 1, 2), (2, 0, 2), (2, 1, 2)]
    assert [record["event"] for record in listener.records if record["event"] != "train"] == [
        "start",
        "valid",
        "valid",
        "stop",
    ]

    for file in newest(tmp_path).glob("model*"):
        file.unlink()
    listener = Listener()
    run(tmp_path, observer=listener, resume=True)
    (note,) = listener.notes
    assert note.endswith("model.safetensors: no such file; resuming from step-000000009")
    assert capfd.readouterr() == ("", "")


def test_too_few_batches_are_told(tmp_path):
    learner = TinyLearner(tmp_path)
    learner.batches = lambda epoch, start: iter([learner.window(0, 0)])
    with pytest.raises(
        ValueError, match=r"TinyLearner.batches\(epoch=0, start=0\) gave 1 batches; steps_per_epoch = 5"
    ):
        run(tmp_path, learner=learner)


def test_a_missing_figure_is_told(tmp_path):
    learner = TinyLearner(tmp_path)
    learner.best_by = "accuracy"
    with pytest.raises(KeyError, match=r"validate returned .*'loss', 'perplexity'.*, but best_by is 'accuracy'"):
        run(tmp_path, learner=learner)


def test_guarantee_failing_loudly_when_the_best_model_cannot_be_written(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(WriteError, match=r"cannot write .*/model.safetensors: Is a directory \(EISDIR\)"):
        run(tmp_path)
    assert newest(tmp_path).name == "step-000000003"


def test_guarantee_failing_loudly_when_a_file_is_in_the_folders_place(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(WriteError, match=r"cannot write .*/run: File exists \(EEXIST\)"):
        run(tmp_path / "run")


def test_guarantee_failing_loudly_when_records_cannot_be_written(tmp_path, monkeypatch):
    opened = run_log.Metrics.__init__

    def on_a_full_disk(self, path):
        opened(self, path)
        self._file.close()
        self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115

    monkeypatch.setattr(run_log.Metrics, "__init__", on_a_full_disk)
    with pytest.raises(WriteError, match=r"cannot write .*/metrics.jsonl: No space left on device"):
        run(tmp_path)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("max_steps", 0),
        ("max_minutes", 0),
        ("clip_norm", math.inf),
        ("l2", -1),
        ("loss_scale", math.nan),
    ],
)
def test_a_plan_of_nonsense_is_refused(name, value):
    with pytest.raises(ValueError, match=f"Plan: {name} must be"):
        Plan(**{"epochs": 1, name: value})


def test_without_accelerate_the_line_to_install_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match=r"pip install 'quasirnn\[train\]'"):
        World()


def test_half_precision_needs_a_gpu():
    with pytest.raises(ValueError, match='mixed_precision="fp16" needs a GPU'):
        World("fp16", cpu=True)
    with pytest.raises(ValueError, match='must be "no", "bf16" or "fp16"'):
        World("fp8")


@pytest.fixture
def fresh_accelerate():
    """Accelerate allows one precision per process, unless it is made to forget."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def check_precision(tmp_path, world, dtype, scaler=lambda: None):
    """It is used in the forward pass, an interrupted run ends like a whole one, and the model is left as it came."""
    seen = set()

    def go(folder, resume=False, **changes):
        learner = TinyLearner(folder)
        learner.model.decoder.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
        world.accelerator.scaler = scaler()
        plan = Plan(**PLAN | changes)
        train(learner, adamw(learner.model), plan, folder, world=world, resume=resume)
        assert "forward" not in vars(learner.model)
        return weights(learner)

    whole = go(tmp_path / "whole")
    go(tmp_path / "cut", max_steps=3)
    resumed = go(tmp_path / "cut", resume=True)
    assert seen == {dtype}
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))
    assert hashes(tmp_path / "whole") == hashes(tmp_path / "cut")


@pytest.mark.usefixtures("fresh_accelerate")
def test_bf16_trains_and_resumes_exactly(tmp_path):
    check_precision(tmp_path, World("bf16", cpu=True), torch.bfloat16)


@pytest.mark.usefixtures("fresh_accelerate")
def test_fp16_skips_what_overflows_and_resumes_exactly(tmp_path):
    """With the scaler of a CPU in place of a GPU's; its first scale overflows for some steps."""
    world = World(cpu=True)
    accelerator = world.accelerator
    accelerator.state._mixed_precision, accelerator.native_amp = "fp16", True
    check_precision(
        tmp_path, world, torch.float16, lambda: torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=2)
    )
    norms = [record["gradient_norm"] for record in events(tmp_path / "whole", "train")]
    assert norms[0] is None
    assert any(norms)
