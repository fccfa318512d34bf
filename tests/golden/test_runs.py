"""Run folders that an earlier version has saved: they load, evaluate, answer and go on as they did then."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

import quasirnn as package
from golden.cases import EVALUATIONS, QUESTIONS, RUNS
from golden.command import RUNS as FOLDER
from golden.command import (
    WEIGHTS,
    asked,
    assert_same,
    assert_same_weights,
    evaluated,
    hashes,
    metrics,
    quasirnn,
)
from golden.models import outputs

each_run = pytest.mark.parametrize("name", RUNS)


@each_run
def test_guarantee_runs_survive_new_versions_resumed_to_the_same_bits(name, values, same_machine):
    run, expected = Path("resumed") / name, values["runs"][name]
    shutil.copytree(FOLDER / name, run)
    before, recorded = hashes(run), len(metrics(run))
    quasirnn("train", RUNS[name].task, "--out", str(run), "--resume")
    assert before != expected["sha256"]
    if same_machine:
        # Those of a run that nothing has stopped: best and last weights, optimizer, random state.
        assert hashes(run) == expected["sha256"]
    else:
        assert_same_weights(load_file(run / "model.safetensors"), load_file(WEIGHTS / f"{name}.safetensors"))
    # What was recorded before the stop stays as it was; in eval zoneout was not yet its expectation then.
    assert len(metrics(run)) == len(expected["metrics"]) > recorded
    assert_same(metrics(run)[recorded:], expected["metrics"][recorded:], 1e-4 if same_machine else 1e-2)


def assert_answered_as_recorded(name, recorded, arguments, ask):
    assert [each["words"] for each in recorded] == arguments[RUNS[name].task]
    for each in recorded:
        assert_same(ask(FOLDER / name, each["words"]), each["answer"], place=" ".join(each["words"]))


@each_run
def test_evaluated_to_the_same_figures(name, values, in_workshop):
    assert_answered_as_recorded(name, values["runs"][name]["evaluate"], EVALUATIONS, evaluated)


@each_run
def test_answers_as_before(name, values):
    assert_answered_as_recorded(name, values["runs"][name]["questions"], QUESTIONS, asked)


@each_run
def test_loaded_in_python(name, values):
    """The object that `quasirnn.load` gives, by what the command line says."""
    model, questions = package.load(FOLDER / name), values["runs"][name]["questions"]
    item = questions[0]["answer"]["items"][0]
    assert model.task == RUNS[name].task
    if model.task == "sentiment":
        assert_same(vars(model.classify(item["text"])), without_text(item))
    elif model.task == "language-model":
        score = model.score(item["text"])
        assert_same(vars(score) | {"perplexity": score.perplexity}, without_text(item))
        assert model.generate("the company", 30, seed=1, top_p=0.9).splitlines() == questions[1]["answer"]
    else:
        best = model.translate(item["text"])
        assert_same(
            {name: getattr(best, name) for name in ("text", "score", "log_probability", "finished")},
            item["translations"][0],
        )


@each_run
def test_the_same_outputs_for_ids(name, values):
    """The models of `quasirnn.models`, which know nothing of text."""
    assert_same(outputs(FOLDER / name, RUNS[name].task), values["runs"][name]["outputs"])


def without_text(item: dict) -> dict:
    return {name: value for name, value in item.items() if name != "text"}
