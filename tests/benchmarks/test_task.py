"""Training steps of a task in turns: that they are the engine's, what is counted, and the summary."""

import types
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.tiny import PLANS
from quasirnn import QRNN
from quasirnn.benchmarks import task as benchmark
from quasirnn.benchmarks.correctness import WrongNumbers
from quasirnn.benchmarks.result import Setting
from quasirnn.benchmarks.timing import Stopwatch
from quasirnn.benchmarks.training_steps import TrainingSteps, configure_cell, multiply_adds
from quasirnn.errors import SettingsError
from quasirnn.models import LanguageModel, Translator
from quasirnn.models.recurrent import recurrent
from quasirnn.tasks.language_model import TASK as LANGUAGE_MODEL
from quasirnn.tasks.settings import Preset, TaskSettings
from quasirnn.tasks.training_run import Request
from quasirnn.training.update import constant, sgd
from tasks.tiny_language_model import KEYS, train_tiny, write_texts

PLAN = PLANS["task"][1]


class Echo(nn.Module):
    """Says back what it hears: no embedding, no carried state, batches that are dictionaries."""

    def __init__(self, cell):
        super().__init__()
        self.rnn = recurrent(cell, 3, 4, 1, dropout=0.0)
        self.readout = nn.Linear(4, 3)


class EchoLearner:
    best_by, higher_is_better, steps_per_epoch = "loss", False, 2

    def __init__(self, model, shift):
        self.model, self.shift, self.asked = model, shift, []

    def batches(self, epoch, start):
        self.asked.append((epoch, start))
        for number in range(start, self.steps_per_epoch):
            generator = torch.Generator().manual_seed(10 * epoch + number + self.shift)
            # The second one is longer: its steps count for themselves.
            yield {"x": torch.randn(2 + number, 2, 3, generator=generator), "names": ["a", "b"]}

    def loss(self, model, batch, carried):
        assert model.training
        assert carried is None
        y = model.readout(model.rnn(batch["x"])[0])
        return (y - batch["x"]).square().sum(), batch["x"].shape[1] * len(batch["x"]), None


class EchoPrepared:
    corpus, notes, vocabulary = {"name": "noise"}, (), None

    def __init__(self, settings, data):
        self.model, self.shift = Echo(settings.cell), 0
        self.rate = settings.learning_rate

    def learner(self, world, run):
        return EchoLearner(self.model, self.shift)

    def optimizer(self):
        return sgd(self.model, self.rate)

    def schedule(self):
        return constant()


ECHO_SETTINGS = TaskSettings(hidden_size=4, num_layers=1, batch_size=2, learning_rate=0.1, epochs=1, zoneout=0.1)
# What the benchmark asks of a task, and no more.
ECHO = types.SimpleNamespace(
    name="echo",
    settings=TaskSettings,
    presets={"demo": Preset("demo", ECHO_SETTINGS, by_cell={"lstm": {"dropout": 0.2}})},
    default_preset=lambda data, overrides: "demo",
    rule=lambda settings, preset: None,
    loss_scale=lambda settings: 1.0,
    prepare=EchoPrepared,
    unit="sounds",
)


@pytest.fixture
def _no_memory(monkeypatch):
    sizes = {"training_bytes": 2, "process_bytes": 3, "method": "none"}
    monkeypatch.setattr(benchmark, "measure_memory", lambda *_: sizes)


def run_echo(task=ECHO, **request):
    seen = []
    result = benchmark.run(PLAN, Setting(), lambda *now: seen.append(now), task=task, request=Request(**request))
    return result, seen


@pytest.mark.usefixtures("_no_memory")
def test_any_task_can_be_timed():
    result, seen = run_echo(overrides=["zoneout=0.3"])
    qrnn, lstm = result.cells
    assert (qrnn["model"], lstm["model"]) == ("QRNN", "nn.LSTM")
    # Five rounds over epochs of two steps; the first one is not counted.
    assert qrnn["steps"]["items"] == lstm["steps"]["items"] == [6, 4, 6, 4]
    assert all(len(cell["steps"]["loss"]) == 4 for cell in result.cells)
    assert result.settings["differences"] == {
        "cell": ["qrnn", "lstm"],
        "kernel_size": [2, None],
        "pooling": ["fo", None],
        "zoneout": [0.3, None],
        "dropout": [0.0, 0.2],
    }
    assert [done for done, _, _ in seen] == [0, 0, 1, *range(2, 8)]
    assert {total for _, total, _ in seen} == {7}
    for cell in result.cells:
        rates = cell["items_per_second"]
        assert 0 < rates["median"] <= rates["best"]
        assert 0 < rates["all"] <= rates["best"]
        assert all(0 < seconds < cell["seconds"][cell["model"]]["p99"] for seconds in cell["parts"].values())
    figures = {figure.what: figure for figure in result.summary}
    ratio = figures["speed, QRNN / nn.LSTM: median of the pairs"]
    ends = [figures[f"speed, QRNN / nn.LSTM: too few for an interval, {end}"].value for end in ("from", "to")]
    assert ends[0] <= ratio.value <= ends[1]
    assert figures["multiply-adds, nn.LSTM / QRNN: recurrent part"].value == (4 * 4 * 7) / (2 * 3 * 3 * 4)


def test_the_ratio_is_that_of_the_pairs():
    """Every second batch takes ten times as long, for both; the QRNN is twice as fast at each."""
    seconds = [1.0, 10.0] * 4
    cells = [
        {
            "steps": {"seconds": [factor * each for each in seconds]},
            "items_per_second": {"all": 8 / factor},
            "multiply_adds": {"recurrent": 2, "whole": 4},
            "memory": {"training_bytes": 3},
        }
        for factor in (1, 2)
    ]
    figures = benchmark.summarise(cells)
    assert [figure.value for figure in figures[:4]] == [2.0, 2.0, 2.0, 2.0]
    assert figures[1].what == "speed, QRNN / nn.LSTM: 95 % interval from"


@pytest.mark.usefixtures("_no_memory")
def test_cells_that_see_different_batches_are_not_compared():
    class Shifted(EchoPrepared):
        def __init__(self, settings, data):
            super().__init__(settings, data)
            self.shift = 5 * (settings.cell == "lstm")

    with pytest.raises(WrongNumbers, match="not train on the same batch in step 1"):
        run_echo(types.SimpleNamespace(**vars(ECHO) | {"prepare": Shifted}))


def test_who_goes_first_alternates():
    order = []

    class Steps:
        model = nn.Linear(2, 2)

        def __init__(self, name):
            self.name = name

        def draw(self):
            return torch.zeros(3)

        def update(self, batch):
            order.append(self.name)
            self.model(torch.zeros(2)).sum().backward()
            return types.SimpleNamespace(items=3, loss=1.0)

    now = iter(range(1000))
    contestants = [benchmark.Contestant(Steps(name), Stopwatch(clock=lambda: next(now))) for name in "ab"]
    for number in range(3):
        benchmark.one_round(contestants, number)
    assert "".join(order) == "ab" + "ba" + "ab"
    lap = contestants[0].laps[0]
    assert 0 < lap.gradient_seconds < lap.seconds


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.ones(2, dtype=torch.int64), False),
        ((torch.ones(2), None), (torch.ones(2), None), True),
        ([torch.ones(2)], (torch.ones(2),), False),
        ({"a": torch.ones(2)}, {"a": torch.zeros(2)}, False),
        ({"a": 1}, {"b": 1}, False),
        (Setting("cpu", 1), Setting("cpu", 1), True),
        (Setting("cpu", 1), Setting("cpu", 2), False),
        (torch.ones(2), 1.0, False),
    ],
)
def test_batches_of_any_kind_are_compared(one, other, equal):
    assert benchmark.same(one, other) is equal


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_the_steps_are_those_of_the_engine(tmp_path, cell):
    """Same losses as a run of `train` that writes one record a step, over the end of an epoch."""
    data = write_texts(tmp_path / "texts")
    train_tiny(tmp_path / "run", data, "epochs=2", "max_steps=20", cell=cell)
    keys = [key for key in KEYS.split() if not key.startswith(("epochs=", "max_steps="))]
    request = Request(data=[str(data)], preset="fast", overrides=[*keys, "epochs=2", "max_steps=20"])
    training = configure_cell(LANGUAGE_MODEL, request, cell, "cpu")
    prepared = LANGUAGE_MODEL.prepare(training.settings, training.data)
    steps = TrainingSteps(LANGUAGE_MODEL, training, prepared, "cpu")
    for _ in range(20):
        steps.update(steps.draw())
    steps.close()
    assert not list(Path().glob("*.safetensors"))
    from safetensors.torch import load_file

    (weights,) = (tmp_path / "run" / "checkpoint").glob("step-*20/model.safetensors")
    saved = load_file(weights)
    mine = prepared.model.state_dict()
    assert all(torch.equal(mine[name], tensor) for name, tensor in saved.items())


def test_keys_of_one_cell_do_not_trouble_the_other():
    request = Request(overrides=["zoneout=0.5", " kernel_size = 3", "hidden_size=7"])
    assert configure_cell(LANGUAGE_MODEL, request, "qrnn", "cpu").settings.kernel_size == 3
    lstm = configure_cell(LANGUAGE_MODEL, request, "lstm", "cpu").settings
    assert (lstm.zoneout, lstm.hidden_size) == (None, 7)
    with pytest.raises(SettingsError, match="zoneout"):
        configure_cell(LANGUAGE_MODEL, Request(overrides=["zoneout=2"]), "qrnn", "cpu")


def test_precomputed_embedding_projections_are_not_counted():
    H, k, V = 5, 3, 9
    qrnn = multiply_adds(Translator(V, hidden_size=H, num_layers=2, kernel_size=(6, k)))
    other = (3 * H * H + 3 * H * H) + 2 * H * H + H * V  # of the encoder's ends, of the attention, of the softmax
    layers = k * H * 3 * H + 2 * H * 3 * H  # the second of the encoder, and of the decoder
    assert qrnn == {"recurrent": layers, "whole": layers + other}
    lstm = multiply_adds(Translator(V, hidden_size=H, num_layers=2, cell="lstm"))
    assert lstm["recurrent"] == 4 * (2 * H) * (4 * H)


def test_multiply_adds_are_counted_by_hand():
    """The paper's language model: 640 units, two layers, width 2, three gates, 10,000 words."""
    H, V = 640, 10_000
    with torch.device("meta"):
        qrnn = LanguageModel(V, hidden_size=H, gate_bias=False)
        lstm = LanguageModel(V, hidden_size=H, cell="lstm")
        tied = LanguageModel(V, hidden_size=H, tied=True)
        both = nn.ModuleList([QRNN(H, H, bidirectional=True), nn.LayerNorm(H)])
    softmax = H * V
    assert multiply_adds(qrnn) == {"recurrent": 2 * (2 * H) * (3 * H), "whole": 2 * (2 * H) * (3 * H) + softmax}
    assert multiply_adds(lstm) == {"recurrent": 2 * (2 * H) * (4 * H), "whole": 2 * (2 * H) * (4 * H) + softmax}
    # Weights that are looked up as well are multiplied all the same.
    assert multiply_adds(tied) == multiply_adds(qrnn)
    assert multiply_adds(both) == {"recurrent": 2 * (2 * H) * (3 * H), "whole": 2 * (2 * H) * (3 * H)}
