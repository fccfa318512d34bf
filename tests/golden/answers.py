"""A real `quasirnn serve` on the golden runs: what is asked of it, and what counts of its answers."""

import contextlib
import http.client
import json
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden.cases import RUNS
from golden.command import HERE
from golden.command import RUNS as FOLDER
from processes import Forked
from quasirnn.cli.main import main

ANSWERS = HERE / "answers.json"
JSON = {"Content-Type": "application/json"}
# Only keeps a hanging test from hanging for ever.
PATIENCE = 60


def post(path: str, body: Any, **headers: str) -> dict[str, Any]:
    """A request; of a body that is a text, its bytes."""
    return {"method": "POST", "path": path, "body": body, "headers": JSON | headers}


def get(path: str, method: str = "GET", **headers: str) -> dict[str, Any]:
    return {"method": method, "path": path, "body": "", "headers": headers}


# Requests whose answers are compared in full, to rounding.
ANSWERED = {
    "models": get("/models"),
    "live": get("/health/live"),
    "ready": get("/health/ready"),
    "classify": post("/classify", {"texts": ["The film was a joy.", "dull"]}),
    "classify, by name": post("/classify", {"texts": ["Not bad, in 1987"], "model": "sentiment-lstm"}),
    "states": post("/states", {"text": "The film was a joy."}),
    "states of a gate": post("/states", {"text": "not good", "what": "f", "layer": 1, "label": "neg"}),
    "outputs": post("/states", {"text": "not good", "what": "h", "model": "sentiment-qrnn"}),
    "generate": post("/generate", {"prompt": "the company", "length": 12, "temperature": 0.8, "top_p": 0.9, "seed": 1}),
    "generate, top k": post("/generate", {"length": 5, "top_k": 3, "seed": 2, "model": "language-model-lstm"}),
    "generate, likeliest": post("/generate", {"prompt": "mr. ", "length": 4, "temperature": 0}),
    "translate": post("/translate", {"text": "drei fünf"}),
    "translate, all": post(
        "/translate", {"text": "zwei eins", "beam": 4, "n_best": 3, "alpha": 1.0, "attention": True}
    ),
    "translate, by name": post("/translate", {"text": "zwölf", "beam": 1, "model": "translation-lstm"}),
}
# Mistakes: of these, the status, the names of the fields, and the field that is named.
REFUSED = {
    "not JSON": post("/classify", "{"),
    "NaN": post("/generate", '{"temperature": NaN}'),
    "too deep": post("/classify", "[" * 100_000),
    "no such path": get("/nowhere"),
    "no such file of the page": get("/page/nowhere.js"),
    "no such model": post("/classify", {"texts": ["a"], "model": "nobody"}),
    "a model of another task": post("/classify", {"texts": ["a"], "model": "translation-qrnn"}),
    "another method": get("/classify"),
    "delete": get("/models", "DELETE"),
    "too large": post("/classify", json.dumps({"texts": ["a" * 262_144]})),
    "another content type": post("/classify", {"texts": ["a"]}, **{"Content-Type": "text/plain"}),
    "another host": get("/models", Host="example.org"),
    "a list": post("/classify", [1]),
    "missing": post("/classify", {}),
    "unknown field": post("/classify", {"texts": ["a"], "colour": 1}),
    "no texts": post("/classify", {"texts": []}),
    "blank text": post("/classify", {"texts": ["good", " "]}),
    "empty text": post("/classify", {"texts": ["good", ""]}),
    "too many texts": post("/classify", {"texts": ["a"] * 65}),
    "a number for a text": post("/classify", {"texts": ["a", 1]}),
    "half a surrogate pair": post("/classify", '{"texts": ["\\ud800"]}'),
    "a damaged state": post("/classify-stream", {"text": "good", "state": "abc"}),
    "no such layer": post("/states", {"text": "good", "layer": 3}),
    "no such gate": post("/states", {"text": "good", "what": "i"}),
    "no such states": post("/states", {"text": "good", "what": "q"}),
    "no such label": post("/states", {"text": "good", "label": "fair"}),
    "states of an LSTM": post("/states", {"text": "good", "model": "sentiment-lstm"}),
    "a number in quotes": post("/generate", {"length": "5"}),
    "half a token": post("/generate", {"length": 1.5}),
    "too long": post("/generate", {"length": 2001}),
    "top_k past the vocabulary": post("/generate", {"top_k": 100_000}),
    "top_p of nothing": post("/generate", {"top_p": 0}),
    "too hot": post("/generate", {"temperature": 5.1}),
    "negative seed": post("/generate", {"seed": -1}),
    "more than the beam": post("/translate", {"text": "eins", "beam": 2, "n_best": 3}),
    "too wide": post("/translate", {"text": "eins", "beam": 17}),
    "blank": post("/translate", {"text": " \t"}),
    "too long to attend": post("/translate", {"text": "a" * 301, "attention": True}),
    "not a truth value": post("/translate", {"text": "eins", "attention": 1}),
}
# A text that is read piece by piece, each with the state of the answer before.
PIECES = ["The film", " ", "was not", "good at all!"]


@contextlib.contextmanager
def served(*options: str) -> Iterator[int]:
    """The server on all golden runs, in a process of its own; its port."""
    runs = [FOLDER / name for name in RUNS]
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        told.touch()
        process = Forked(main, ["quasirnn", "serve", *runs, "--port", 0, *options], told)
        try:
            while not (address := re.search(r"http://127\.0\.0\.1:(\d+)", told.read_text())):
                assert process.poll() is None, told.read_text()
                time.sleep(0.01)
            yield int(address[1])
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        finally:
            process.kill()


def ask(port: int, request: dict[str, Any]) -> tuple[int, Any]:
    """Status, and the JSON of the answer; of a stream of events, their names and data; of anything else, its type."""
    body = request["body"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(
            request["method"],
            request["path"],
            (body if isinstance(body, str) else json.dumps(body)).encode(),
            request["headers"],
        )
        response = connection.getresponse()
        kind, content = response.headers.get_content_type(), response.read().decode()
    if kind == "application/json":
        return response.status, json.loads(content)
    if kind == "text/event-stream":
        blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in content.strip().split("\n\n")]
        return response.status, [{"event": block["event"], "data": json.loads(block["data"])} for block in blocks]
    return response.status, kind


def answered(port: int, request: dict[str, Any]) -> Any:
    """What is compared of an answer: all but times, and the version that `/models` tells."""
    status, answer = ask(port, request)
    assert status == 200, (status, answer)
    if isinstance(answer, list):
        for event in answer:
            event["data"].pop("seconds", None)
    elif "version" in answer:
        answer["version"] = "any"
    return answer


def refused(port: int, request: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a mistake's answer; its sentence is not."""
    status, answer = ask(port, request)
    return {"status": status, "fields": sorted(answer), "field": answer.get("field")}


def piece_by_piece(port: int) -> list[Any]:
    """The answers to PIECES without their states, which are opaque."""
    answers, state = [], None
    for text in PIECES:
        status, answer = ask(port, post("/classify-stream", {"text": text, "state": state}))
        assert status == 200, answer
        state = answer.pop("state")
        answers.append(answer)
    return answers


def schema(port: int) -> dict[str, Any]:
    """Of `/openapi.json`: the methods of each path, and the fields of its request."""
    _, document = ask(port, get("/openapi.json"))

    def fields(operation: dict[str, Any]) -> list[str]:
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        if "$ref" in body:
            body = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
        return sorted(body.get("properties", {}))

    return {
        path: {method: fields(operation) for method, operation in methods.items()}
        for path, methods in sorted(document["paths"].items())
    }


def record() -> None:
    with served() as port:
        values = {
            "answered": {name: answered(port, request) for name, request in ANSWERED.items()},
            "refused": {name: refused(port, request) for name, request in REFUSED.items()},
            "piece by piece": piece_by_piece(port),
            "schema": schema(port),
        }
    ANSWERS.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")
