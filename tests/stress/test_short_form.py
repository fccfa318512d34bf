"""The server's promises with fewer requests than `make stress` sends; how fast it is does not matter here."""

import asyncio
from pathlib import Path

import pytest

import processes
from quasirnn.cli.main import main
from stress import run
from stress.http_client import parse
from stress.load import figures
from stress.run import Plan, stress
from stress.server_process import ServerProcess
from tasks.tiny_language_model import train_tiny as train_language_model
from tasks.tiny_language_model import write_texts
from tasks.tiny_sentiment import train_tiny as train_sentiment
from tasks.tiny_sentiment import write_labelled
from tasks.tiny_translation import train_tiny as train_translation
from tasks.tiny_translation import write_paired

# tests/serving has fairness.
PLAN = Plan(warm_up=0.1, seconds=0.5, disconnects=20, mutants=150, clients=8, fairness=False)


class Forked(ServerProcess):
    """One that has imported everything."""

    def _start(self):
        return processes.Forked(main, self._command[2:], Path(self._log.name))


@pytest.mark.slow
def test_guarantee_the_server_holds_under_load_disconnects_mutants_and_sigterm(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ServerProcess", Forked)
    train_sentiment(tmp_path / "sentiment", write_labelled(tmp_path / "reviews"), "epochs=1")
    train_language_model(tmp_path / "language-model", write_texts(tmp_path / "texts"), "level=character")
    train_translation(tmp_path / "translation", write_paired(tmp_path / "pairs"), "epochs=1")
    runs = [tmp_path / task for task in ("sentiment", "language-model", "translation")]
    results, broken = asyncio.run(stress(runs, PLAN))
    assert broken == []
    assert results["tasks"] == ["language-model", "sentiment", "translation"]
    assert results["idle_after_load"] is not None
    assert results["idle_after_disconnects"] is not None
    assert sum(results["mutants"].values()) == PLAN.mutants
    assert results["mutants"].keys() >= {"400", "422"}
    assert (results["ending"]["statuses"], results["ending"]["exit_code"]) == ({200: PLAN.clients}, 0)


def test_an_answer_that_is_cut_off_is_none():
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    assert (parse(whole, 0.1, 1.0).status, parse(whole, 0.1, 1.0).body) == (200, b"hi")
    for cut in (whole[:-1], whole[:20], b""):
        assert parse(cut, 0.1, 1.0).status == 0
    stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
    assert (parse(stream, 0.1, 1.0).status, parse(stream + b"0\r\n\r\n", 0.1, 1.0).status) == (0, 200)


def test_figures_of_a_load():
    def answer(status, seconds, ended, more=b""):
        return parse(b"HTTP/1.1 %d X\r\n%s\r\n" % (status, more), seconds, ended)

    answers = [answer(200, 0.2, 11.0), answer(200, 0.4, 13.0), answer(503, 0.01, 11.5, b"Retry-After: 1\r\n")]
    load = figures(answers, 10.0, 2.0, [0.1, 0.2], (5, 6))
    assert (load.statuses, load.rate, load.goodput) == ({200: 2, 503: 1}, 1.5, 0.5)  # the second came after the load
    assert (load.accepted_p99, load.refused_p99, load.retry_after) == (0.4, 0.01, True)
    assert (load.late, load.late_p99) == (0.2, 0.2)
    assert not figures([*answers, answer(503, 0.01, 11.5)], 10.0, 2.0, [0.1], (5, 6)).retry_after
