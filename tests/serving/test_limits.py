"""Every limit: what is at it is served, what is one past it is refused. And the documentation knows them."""

import re
from pathlib import Path

import pytest

from quasirnn.serving import api
from quasirnn.tasks import client_state, translation
from quasirnn.tasks.pipeline import NAME_CHARACTERS
from quasirnn.tasks.registry import all_tasks

DOCUMENT = Path(__file__).parents[2] / "docs" / "serving.md"

# Of each limit: a path, its request with a value, a value at the limit, one past it, and how the refusal begins.
CASES = {
    "classify_texts": ("/classify", lambda n: {"texts": ["a"] * n}, 64, 65, "texts: at most 64, got 65."),
    "classify_characters": (
        "/classify",
        lambda n: {"texts": ["film", "a" * n]},
        20_000,
        20_001,
        "texts[1]: at most 20,000 characters, got 20,001.",
    ),
    "stream_characters": (
        "/classify-stream",
        lambda n: {"text": "a " * (n // 2) + "a" * (n % 2)},
        5_000,
        5_001,
        "text: at most 5,000 characters, got 5,001.",
    ),
    "states_characters": (
        "/states",
        lambda n: {"text": "!" * n, "what": "c"},
        2_000,
        2_001,
        "text: at most 2,000 characters, got 2,001.",
    ),
    "prompt_characters": (
        "/generate",
        lambda n: {"prompt": "a " * (n // 2) + "a" * (n % 2), "length": 1},
        2_000,
        2_001,
        "prompt: at most 2,000 characters, got 2,001.",
    ),
    "length": ("/generate", lambda n: {"length": n}, 2_000, 2_001, "length: at most 2,000, got 2001."),
    "temperature": (
        "/generate",
        lambda n: {"length": 1, "temperature": n},
        5,
        5.000001,
        "temperature: at most 5, got 5.000001.",
    ),
    "seed": (
        "/generate",
        lambda n: {"length": 1, "seed": n},
        2**32 - 1,
        2**32,
        "seed: at most 4,294,967,295, got 4294967296.",
    ),
    "translate_characters": (
        "/translate",
        lambda n: {"text": "ü" * n, "beam": 1},  # characters, not bytes
        1_000,
        1_001,
        "text: at most 1,000 characters, got 1,001.",
    ),
    "attention_characters": (
        "/translate",
        lambda n: {"text": "c" * n, "beam": 1, "attention": True},
        300,
        301,
        "text: at most 300 characters with attention, got 301.",
    ),
    "attention_n_best": (
        "/translate",
        lambda n: {"text": "c", "beam": 8, "n_best": n, "attention": True},
        4,
        5,
        "n_best: at most 4 with attention, got 5.",
    ),
    "beam": ("/translate", lambda n: {"text": "c", "beam": n, "n_best": n}, 16, 17, "beam: at most 16, got 17."),
    "alpha": (
        "/translate",
        lambda n: {"text": "c", "beam": 1, "alpha": n},
        2,
        2.000001,
        "alpha: at most 2, got 2.000001.",
    ),
}
LIMITS = dict(api.LIMITS)
for task in all_tasks().values():
    for endpoint in task.endpoints:
        LIMITS |= endpoint.limits
# These are tested where servers are started for them, or below.
ELSEWHERE = {
    "body_bytes",
    "receive_seconds",
    "connections",
    "client_connections",
    "state_characters",
    "name_characters",
}


@pytest.fixture(autouse=True)
def _short_translations(monkeypatch):
    """A model that was hardly trained does not know where to end."""
    monkeypatch.setattr(translation, "MOST_TIMES", 0)
    monkeypatch.setattr(translation, "MOST_MORE", 5)


def test_every_limit_has_its_test():
    assert set(CASES) | ELSEWHERE == set(LIMITS)


@pytest.mark.parametrize("name", CASES)
def test_guarantee_server_limits_every_field(served, name):
    path, content, at, past, error = CASES[name]
    assert at == LIMITS[name]
    assert served.post(path, content(at)).status_code == 200
    answer = served.post(path, content(past))
    assert (answer.status_code, answer.json()["error"]) == (422, error)


def test_top_k_is_bounded_by_the_vocabulary(served, models):
    size = len(models.find("language-model", None).model.vocabulary)
    content = {"prompt": "", "length": 1}
    assert served.post("/generate", content | {"top_k": size}).status_code == 200
    answer = served.post("/generate", content | {"top_k": size + 1})
    assert answer.json()["error"] == f"top_k: at most {size}, the size of the vocabulary, got {size + 1}."


def test_a_state_at_the_limit_is_looked_at_and_one_past_it_is_not(served):
    for more, error in ((0, "state: was cut off or changed"), (1, "state: at most 131,072 characters, got 131,073.")):
        answer = served.post("/classify-stream", {"text": "a", "state": "A" * (client_state.STATE_CHARACTERS + more)})
        assert answer.status_code == 422
        assert answer.json()["error"].startswith(error)


def test_the_name_of_a_model(served):
    for more, status in ((0, 404), (1, 422)):
        content = {"texts": ["a"], "model": "a" * (NAME_CHARACTERS + more)}
        assert served.post("/classify", content).status_code == status


def test_a_body_at_the_limit_and_one_past_it(served):
    body = b'{"texts": ["a film"]}'
    body += b" " * (api.BODY_BYTES - len(body))
    assert served.post("/classify", body).status_code == 200
    answer = served.post("/classify", body + b" ")
    assert (answer.status_code, answer.json()) == (
        413,
        {"error": "the body must have at most 262,144 bytes, got 262,145."},
    )


def test_the_limits_are_told(served):
    assert served.client.get("/models").json()["limits"] == LIMITS | {"queue": 32, "deadline": 60}


def test_the_document_has_all_limits():
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: float(value.replace(",", "")) for name, value in rows} == LIMITS | {
        "queue": 32,
        "deadline": 30,
    }
