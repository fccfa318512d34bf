"""Every path, with a trained model of its task: what it answers is what the model says."""

import json
import shutil
from importlib.metadata import version

import numpy as np
import pytest

from quasirnn.serving.loaded import Loaded, load_models, read_card
from quasirnn.tasks.registry import all_tasks
from quasirnn.tasks.sentiment import Classification, _class_answer
from serving.conftest import CARD
from serving.servers import answer_on, events, serving
from tasks import tiny_sentiment

TEXTS = ["the film is great", "a dull , dull story", "It 's a story"]


def test_models_tells_what_is_loaded_and_no_path(served, models, runs):
    answer = served.client.get("/models")
    told = answer.json()
    assert (answer.status_code, told["version"]) == (200, version("quasirnn"))
    by_name = {each["name"]: each for each in told["models"]}
    assert list(by_name) == ["qrnn", "lstm", "other", "word", "character", "translator"]
    assert by_name["qrnn"] == {
        "name": "qrnn",
        "task": "sentiment",
        "cell": "qrnn",
        "parameters": by_name["qrnn"]["parameters"],
        "layers": 2,
        "hidden_size": 8,
        "vocabulary_size": by_name["qrnn"]["vocabulary_size"],
        "corpus": "labelled",
        "trained_on": "labelled, 48 texts, 1 epoch.",
        "toy": None,
        "card": True,
        "by_word": True,
        "classes": ["bad", "good"],
        "source": None,
        "target": None,
        "level": None,
        "gates": ["c", "h", "z", "f", "o"],
        "examples": by_name["qrnn"]["examples"],
    }
    assert by_name["lstm"]["gates"] is None
    assert by_name["other"]["gates"] == ["c", "h", "z", "f", "o", "i"]
    assert (by_name["word"]["level"], by_name["character"]["level"]) == ("word", "character")
    assert by_name["character"]["trained_on"].endswith(" characters, 2 steps.")
    assert (by_name["translator"]["source"], by_name["translator"]["target"]) == ("de", "en")
    assert [each["card"] for each in told["models"]] == [True, False, False, False, False, False]
    # Of sentences that the translator gets wrong, and of prompts with words that it does not know, none is offered.
    assert by_name["translator"]["examples"] == []
    *prompts, nothing = by_name["word"]["examples"]
    known = models.find("language-model", "word").model.vocabulary
    assert nothing == ""
    assert all(not known.unknown_tokens(prompt) for prompt in prompts)
    assert by_name["qrnn"]["examples"]
    assert all(each["parameters"] > 0 for each in told["models"])
    assert str(runs.parent) not in answer.text


@pytest.mark.parametrize("splits", [[], None, "train", {"train": []}, {"train": {"texts": "many"}}], ids=str)
def test_a_run_that_recorded_nothing_of_its_splits_is_served(runs, tmp_path, splits):
    """What is told of the training is for people: a run without it can be used."""
    run = shutil.copytree(runs / "qrnn", tmp_path / "run")
    training = json.loads((run / "training.json").read_text())
    training["corpus"]["splits"] = splits
    (run / "training.json").write_text(json.dumps(training))
    with serving(*load_models([run]).loaded) as server:
        told = server.client.get("/models").json()["models"][0]
        assert told["trained_on"] == f"{training['corpus']['name']}, 1 epoch."
        assert server.post("/classify", {"texts": ["a film"]}).status_code == 200


def test_health(served):
    assert served.client.get("/health/live").json() == {"live": True}
    assert served.ready() == {"ready": True, "queued": 0, "active": 0, "capacity": 32}


@pytest.mark.parametrize("name", ["qrnn", "lstm", None])
def test_classify(served, models, name):
    answer = served.post("/classify", {"texts": TEXTS} | ({} if name is None else {"model": name}))
    assert answer.status_code == 200
    told = answer.json()
    assert told["model"] == (name or "qrnn")
    model = models.find("sentiment", name).model
    for text, result in zip(TEXTS, told["results"], strict=True):
        expected = model.classify(text)
        assert result["label"] == expected.label
        assert result["probability"] == pytest.approx(expected.probability, abs=1e-5)
        assert result["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)


@pytest.mark.parametrize("name", ["qrnn", "lstm"])
def test_a_text_that_goes_on_is_read_as_the_whole_of_it(served, models, name):
    pieces = ["the film", "is", "", " \n", "great , and", "dull"]
    state, words, counts = None, [], []
    for piece in pieces:
        told = served.post("/classify-stream", {"model": name, "text": piece, "state": state}).json()
        assert told["model"] == name
        if not piece.strip():
            assert (told["words"], told["state"]) == ([], state)
        state = told["state"]
        words += told["words"]
        counts.append(told["count"])
    whole = models.find("sentiment", name).model.words(" ".join(pieces))
    assert [each["word"] for each in words] == [each.word for each in whole]
    assert counts == [2, 3, 3, 3, 6, 7]
    for each, expected in zip(words, whole, strict=True):
        assert each["label"] == expected.so_far.label
        assert each["probabilities"] == pytest.approx(expected.so_far.probabilities, abs=1e-5)


def test_a_blank_beginning_has_a_state_too(served):
    first = served.post("/classify-stream", {"text": " "}).json()
    assert (first["words"], first["count"]) == ([], 0)
    after = served.post("/classify-stream", {"text": "great", "state": first["state"]}).json()
    assert after["words"] == served.post("/classify-stream", {"text": "great", "state": None}).json()["words"]


def test_what_is_behind_the_longest_text_of_the_training_is_not_read(served):
    first = served.post("/classify-stream", {"model": "other", "text": "film " * 19}).json()
    second = served.post("/classify-stream", {"model": "other", "text": "film great", "state": first["state"]}).json()
    third = served.post("/classify-stream", {"model": "other", "text": "film", "state": second["state"]}).json()
    assert [len(each["words"]) for each in (first, second, third)] == [19, 1, 0]
    assert third["state"] == second["state"]


@pytest.mark.parametrize("what", ["c", "h", "z", "f", "o", "i"])
def test_states(served, models, what):
    content = {"model": "other", "text": TEXTS[0], "layer": 1, "what": what, "label": "bad"}
    told = served.post("/states", content).json()
    expected = models.find("sentiment", "other").model.states(TEXTS[0], 1, what, "bad")
    assert told["words"] == expected.words == TEXTS[0].split()
    assert (len(told["values"]), len(told["values"][0])) == (4, 8)
    assert np.array(told["values"]) == pytest.approx(expected.values, abs=1e-4)
    assert told["forget"] == pytest.approx(expected.forget.tolist(), abs=1e-4)
    assert told["probability"] == pytest.approx(expected.probability.tolist(), abs=1e-5)
    assert (told["model"], told["label"], told["layer"], told["layers"]) == ("other", "bad", 1, 2)


def test_states_without_layer_and_label(served):
    told = served.post("/states", {"text": TEXTS[0], "what": "c", "layer": None, "label": None}).json()
    assert (told["label"], told["layer"]) == ("good", 2)


@pytest.mark.parametrize("name", ["word", "character"])
def test_generate(served, models, name):
    content = {
        "model": name,
        "prompt": "the cat",
        "length": 12,
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "seed": 3,
    }
    answer = served.post("/generate", content)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *pieces, end = events(answer.text)
    assert {event for event, _ in pieces} == {"piece"}
    model = models.find("language-model", name).model
    expected = model.generate("the cat", 12, temperature=0.7, top_k=5, top_p=0.9, seed=3)
    assert "the cat" + "".join(data["text"] for _, data in pieces) == expected
    assert (end[0], end[1]["tokens"], end[1]["reason"]) == ("end", 12, "length")
    assert end[1]["seconds"] >= 0


def test_generate_from_nothing(served):
    assert events(served.post("/generate", {"prompt": "", "length": 3, "temperature": 0}).text)[-1][0] == "end"


def test_translate(served, models):
    told = served.post("/translate", {"text": "c d e", "beam": 4, "n_best": 3, "alpha": 0.5, "attention": True}).json()
    expected = models.find("translation", None).model.n_best("c d e", 3, beam=4, alpha=0.5, attention=True)
    assert (told["model"], told["source"]) == ("translator", list("c d e"))
    assert [each["text"] for each in told["translations"]] == [each.text for each in expected]
    for each, wanted in zip(told["translations"], expected, strict=True):
        assert each["score"] == pytest.approx(wanted.score, rel=1e-4)
        assert each["log_probability"] == pytest.approx(wanted.log_probability, rel=1e-4)
        assert each["finished"] == wanted.finished
        assert each["characters"] == list(wanted.text) + [""] * wanted.finished
        assert np.array(each["attention"]) == pytest.approx(wanted.attention.numpy(), abs=1e-3)
        assert len(each["attention"]) == len(each["characters"])


def test_translate_alone(served):
    (best,) = served.post("/translate", {"text": "c"}).json()["translations"]
    assert best["attention"] is None


def test_the_page_and_its_files(served):
    answer = served.client.get("/")
    assert (answer.status_code, answer.content) == (200, b"<p>page")
    assert served.client.get("/docs").content == b"<p>api"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert served.client.get("/page/a.js").content == b"1"


@pytest.mark.parametrize(
    "path",
    ["/page/b.js", "/page/", "/page/..", "/page/%2e%2e%2fapp.py", "/page/../app.py", "/page/a.js%00", "//etc/passwd"],
)
def test_only_the_files_of_the_page_are_there(served, path):
    asked = served.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    status, body = answer_on(asked)
    assert status == 404
    assert json.loads(body)["error"]


def test_without_the_page_the_server_says_so(models):
    with serving(*models.loaded) as server:
        answer = server.client.get("/")
    assert (answer.status_code, answer.json()) == (
        404,
        {"error": "the web page is not in this installation; the API is, see /openapi.json."},
    )


@pytest.mark.parametrize("path", ["/", "/docs", "/models", "/nothing"])
def test_headers(served, path):
    headers = served.client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'; frame-ancestors 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == ("no-cache" if path in ("/", "/docs") else "no-store")
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_the_openapi_document_has_all_paths(served):
    told = served.client.get("/openapi.json").json()
    posts = ("/classify", "/classify-stream", "/states", "/generate", "/translate")
    assert set(told["paths"]) == {"/metrics", "/models", "/card/{name}", "/health/live", "/health/ready", *posts}
    for path in posts:
        post = told["paths"][path]["post"]
        schema = _resolved(told, post["requestBody"]["content"]["application/json"]["schema"])
        assert schema["additionalProperties"] is False
        assert "model" in schema["properties"]
        errors = {status: answer for status, answer in post["responses"].items() if status != "200"}
        assert list(errors) == ["400", "404", "408", "413", "415", "421", "422", "500", "503", "504"]
        for answer in errors.values():
            assert answer["description"].endswith(".")
            schema = _resolved(told, answer["content"]["application/json"]["schema"])
            assert (list(schema["properties"]), schema["required"]) == (["error", "field"], ["error"])
        kind = "text/event-stream" if path == "/generate" else "application/json"
        assert list(post["responses"]["200"]["content"]) == [kind]
    for path in set(told["paths"]) - set(posts):
        answers = told["paths"][path]["get"]["responses"]
        assert {"200", "400", "408", "413", "421", "500"} <= set(answers)
        kinds = {status: list(answer["content"]) for status, answer in answers.items()}
        others = {"/metrics": "text/plain", "/card/{name}": "text/markdown"}
        assert kinds.pop("200") == [others.get(path, "application/json")]
        assert set(map(tuple, kinds.values())) == {("application/json",)}
    assert "/docs" not in told["paths"]
    assert list(told["paths"]["/card/{name}"]["get"]["responses"]) == ["200", "400", "408", "413", "421", "500", "404"]


def _resolved(document: dict, schema: dict) -> dict:
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


def test_head_is_there_wherever_get_is(served):
    for path in (
        "/",
        "/docs",
        "/page/a.js",
        "/card/qrnn",
        "/models",
        "/health/live",
        "/health/ready",
        "/openapi.json",
        "/nowhere",
    ):
        get, head = served.client.get(path), served.client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/classify", {"texts": ["a film", "the music"]}),
        ("/classify-stream", {"text": "a film"}),
        ("/states", {"text": "a film"}),
        ("/translate", {"text": "c d", "beam": 2, "n_best": 2, "attention": True}),
    ],
)
def test_answers_are_as_the_document_says(served, path, content):
    document = served.client.get("/openapi.json").json()
    responses = document["paths"][path]["post"]["responses"]
    schema = responses["200"]["content"]["application/json"]["schema"]
    fields = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    answer = served.post(path, content).json()
    assert set(fields["required"]) <= set(answer) <= set(fields["properties"])
    endpoint = next(each for task in all_tasks().values() for each in task.endpoints if each.path == path)
    assert endpoint.response.model_validate(answer)
    assert {"400", "404", "408", "413", "415", "421", "422", "500", "503", "504"} <= set(responses)


def test_the_events_are_as_the_document_says(served):
    document = served.client.get("/openapi.json").json()
    told = document["paths"]["/generate"]["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    for name, data in events(served.post("/generate", {"length": 3}).text):
        assert set(told["x-events"][name]["required"]) <= set(data)


def test_guarantee_server_answers_are_bounded():
    """1,000 classes after each of 2,500 words: the likeliest, and the sum of the others."""
    probabilities = {f"class {number}": (number + 1) / 500_500 for number in range(1000)}
    result = Classification("class 999", probabilities["class 999"], probabilities)
    values = _class_answer(result, 2500)
    assert next(iter(values["probabilities"])) == "class 999"
    assert len(values["probabilities"]) < 20
    assert sum(values["probabilities"].values()) + values["rest"] == pytest.approx(1)
    assert 2500 * len(json.dumps(values)) < 3 * 2**20
    # Few of them are all told.
    assert _class_answer(result, 1)["probabilities"] == probabilities
    assert "rest" not in _class_answer(result, 1)


# Model cards


def test_a_model_card(served):
    answer = served.client.get("/card/qrnn")
    assert (answer.status_code, answer.text) == (200, CARD)
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"


@pytest.mark.parametrize("name", ["lstm", "nobody", "..%2fqrnn", "%2e%2e", "qrnn%00", "qrnn%2fREADME.md", "\u00fc"])
def test_no_such_card(served, name):
    answer = served.client.get(f"/card/{name}")
    assert (answer.status_code, list(answer.json())) == (404, ["error"])
    if name == "lstm":
        assert answer.json()["error"] == "there is no model card of 'lstm': there are those of qrnn."


def test_no_model_has_a_card(models):
    with serving(models.find("sentiment", "lstm")) as server:
        answer = server.client.get("/card/lstm")
    assert answer.json()["error"] == "there is no model card of 'lstm': none of the models has a README.md."


def test_a_name_in_the_address_of_its_card(models):
    model = models.find("sentiment", "qrnn").model
    with serving(Loaded("50% of \u00e4?#", model, "a card")) as server:
        assert server.client.get("/card/50%25%20of%20%C3%A4%3F%23").text == "a card"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a" * 65_537, "has 65,537 bytes, more than 65,536"),
        (b"a\xff", "not UTF-8"),
        (None, "not a file"),
        ("", "a symbolic link"),
    ],
)
def test_a_card_that_is_not_shown(tmp_path, caplog, content, why):
    file = tmp_path / "README.md"
    if content is None:
        file.mkdir()
    elif content == "":
        (tmp_path / "secret").write_text("secret")
        file.symlink_to(tmp_path / "secret")
    else:
        file.write_bytes(content)
    assert read_card(tmp_path) is None
    assert why in caplog.text


def test_a_card_of_the_greatest_size_is_read(tmp_path, caplog):
    (tmp_path / "README.md").write_bytes(b"a" * 65_536)
    assert read_card(tmp_path) == "a" * 65_536
    assert read_card(tmp_path / "nowhere") is None
    assert not caplog.text


# What a model does not know


def test_unknown_words_are_told(served):
    text = "the frobnicated film is qwertz , frobnicated"
    (result,) = served.post("/classify", {"texts": [text]}).json()["results"]
    assert result["unknown"] == ["frobnicated", "qwertz"]
    words = served.post("/classify-stream", {"text": text}).json()["words"]
    expected = [word in ("frobnicated", "qwertz") for word in text.split()]
    assert [each["unknown"] for each in words] == expected
    assert served.post("/states", {"text": text}).json()["unknown"] == expected


def test_unknown_characters_are_told(served):
    assert served.post("/translate", {"text": "c \u732b d \u732b"}).json()["unknown"] == ["\u732b"]
    assert served.post("/translate", {"text": "c d"}).json()["unknown"] == []


def test_unknown_words_of_a_prompt_are_told(served):
    end = events(served.post("/generate", {"model": "word", "prompt": "the qwertz", "length": 2}).text)[-1]
    assert end[1]["unknown"] == ["qwertz"]


# The documentation


def test_every_field_is_described_and_every_body_has_an_example_that_is_answered(served):
    document = served.client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], path
            (tag,) = operation["tags"]
            assert tag == "server" if method == "get" else tag in all_tasks()
            if method == "post":
                body = operation["requestBody"]["content"]["application/json"]
                fields = _resolved(document, body["schema"])["properties"]
                assert [name for name, field in fields.items() if not field.get("description")] == []
                assert served.post(path, body["example"]).status_code == 200
    for name, schema in document["components"]["schemas"].items():
        bare = [field for field, about in schema.get("properties", {}).items() if not about.get("description")]
        assert bare == [], name


def test_a_classifier_that_reads_in_both_directions_says_so(tmp_path):
    labelled = tiny_sentiment.write_labelled(tmp_path / "labelled")
    tiny_sentiment.train_tiny(tmp_path / "both", labelled, "max_steps=1", "bidirectional=true")
    with serving(*load_models([tmp_path / "both"]).loaded) as server:
        (told,) = server.client.get("/models").json()["models"]
        assert (told["by_word"], told["gates"]) == (False, None)
        assert server.post("/classify", {"texts": TEXTS}).status_code == 200
        assert server.post("/classify-stream", {"text": TEXTS[0]}).status_code == 422
