"""What is refused, with which status, and in which words. And what is not."""

import json

import pytest
from pydantic import ValidationError

from quasirnn.serving.api import BODY_BYTES, describe
from quasirnn.tasks.registry import all_tasks
from serving.servers import request_of

CLASSIFY = {"texts": ["a film"]}
GENERATE = {"prompt": "the", "length": 2}
TRANSLATE = {"text": "c d", "beam": 1}
STREAM = {"text": "a film"}
STATES = {"text": "a film", "what": "c"}


@pytest.mark.parametrize(
    ("path", "content", "error"),
    [
        ("/classify", {}, "texts: is missing."),
        ("/classify", [], "the body must be a JSON object."),
        ("/classify", "texts", "the body must be a JSON object."),
        ("/classify", None, "the body must be a JSON object."),
        ("/classify", 0, "the body must be a JSON object."),
        ("/classify", {"texts": []}, "texts: at least 1, got 0."),
        ("/classify", {"texts": "a film"}, "texts: must be a list of texts, got 'a film'."),
        ("/classify", {"texts": ["a", 5]}, "texts[1]: must be a text, got 5."),
        ("/classify", {"texts": ["a", None]}, "texts[1]: must be a text, got None."),
        ("/classify", {"texts": ["a", ""]}, "texts[1]: at least 1 character, got 0."),
        ("/classify", {"texts": ["a", " \n"]}, "texts[1]: is blank; there is nothing to read."),
        ("/classify", {"texts": ["<br />"]}, "texts[0]: is blank; there is nothing to read."),
        ("/classify", CLASSIFY | {"colour": 1}, "'colour': no such field; there are model, texts."),
        ("/classify", {"colour": 1}, "'colour': no such field; there are model, texts."),
        ("/classify", CLASSIFY | {"": 1}, "'': no such field; there are model, texts."),
        ("/classify", CLASSIFY | {"model": 1}, "model: must be a text, got 1."),
        ("/classify", {"texts": ["\ud800"]}, "texts[0]: holds half of a surrogate pair, which is no character."),
        ("/classify", CLASSIFY | {"model": "\udfff"}, "model: holds half of a surrogate pair, which is no character."),
        ("/classify-stream", {"state": None}, "text: is missing."),
        ("/classify-stream", STREAM | {"state": 5}, "state: must be a text, got 5."),
        ("/states", STATES | {"text": " "}, "text: is blank; there is nothing to read."),
        ("/states", STATES | {"what": "q"}, "what: must be one of c, h, z, f, o or i, got 'q'."),
        ("/states", STATES | {"what": "i"}, "what: the model has c, h, z, f, o, got i."),
        ("/states", STATES | {"layer": 0}, "layer: at least 1, got 0."),
        ("/states", STATES | {"layer": 3}, "layer: at most 2, got 3."),
        ("/states", STATES | {"layer": 10**300}, "layer: at most 2, got a huge number."),
        ("/states", STATES | {"layer": 1.5}, "layer: must be a whole number, got 1.5."),
        ("/states", STATES | {"layer": True}, "layer: must be a whole number, got True."),
        ("/states", STATES | {"label": "neutral"}, "label: must be one of bad, good, got 'neutral'."),
        (
            "/states",
            STATES | {"model": "lstm"},
            "model: only the cells and gates of a QRNN that reads forwards can be shown.",
        ),
        ("/generate", GENERATE | {"length": "2"}, "length: must be a whole number, got '2'."),
        ("/generate", GENERATE | {"length": 0}, "length: at least 1, got 0."),
        ("/generate", GENERATE | {"length": 1e300}, "length: at most 2,000, got a huge number."),
        ("/generate", GENERATE | {"length": 10**300}, "length: at most 2,000, got a huge number."),
        ("/generate", GENERATE | {"temperature": 10**300}, "temperature: at most 5, got a huge number."),
        ("/generate", GENERATE | {"temperature": -(10**400)}, "temperature: must be a number, got a huge number."),
        ("/generate", GENERATE | {"length": 2.5}, "length: must be a whole number, got 2.5."),
        ("/generate", GENERATE | {"temperature": -0.1}, "temperature: at least 0, got -0.1."),
        ("/generate", GENERATE | {"temperature": "1"}, "temperature: must be a number, got '1'."),
        ("/generate", GENERATE | {"temperature": True}, "temperature: must be a number, got True."),
        ("/generate", GENERATE | {"top_k": 0}, "top_k: at least 1, got 0."),
        ("/generate", GENERATE | {"top_p": 0}, "top_p: more than 0, got 0."),
        ("/generate", GENERATE | {"top_p": 1.01}, "top_p: at most 1, got 1.01."),
        ("/generate", GENERATE | {"seed": -1}, "seed: at least 0, got -1."),
        ("/translate", TRANSLATE | {"text": " "}, "text: is blank; there is nothing to translate."),
        ("/translate", TRANSLATE | {"text": ""}, "text: at least 1 character, got 0."),
        ("/translate", TRANSLATE | {"beam": 0}, "beam: at least 1, got 0."),
        ("/translate", TRANSLATE | {"beam": 2, "n_best": 3}, "n_best: at most 2, as beam is, got 3."),
        ("/translate", TRANSLATE | {"n_best": 0}, "n_best: at least 1, got 0."),
        ("/translate", TRANSLATE | {"alpha": -1}, "alpha: at least 0, got -1."),
        ("/translate", TRANSLATE | {"attention": 1}, "attention: must be true or false, got 1."),
    ],
)
def test_422_names_the_field_and_what_is_wrong(served, path, content, error):
    answer = served.post(path, content)
    assert (answer.status_code, answer.json()["error"]) == (422, error)
    assert set(answer.json()) == {"error", "field"}
    assert answer.json()["field"] in error


def test_a_number_that_json_cannot_hold_is_no_number(served):
    body = json.dumps(GENERATE)[:-1] + ', "temperature": 1e999}'
    answer = served.post("/generate", body.encode())
    assert (answer.status_code, answer.json()["field"]) == (422, "temperature")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is not JSON: Expecting value"),
        (b"texts=a", "the body is not JSON: Expecting value"),
        (b'{"texts": ["a"]', "the body is not JSON: Expecting ',' delimiter"),
        (b'{"texts": ["a"]} x', "the body is not JSON: Extra data"),
        (b'{"texts": [NaN]}', "the body is not JSON: NaN is no number there."),
        (b'{"texts": [-Infinity]}', "the body is not JSON: -Infinity is no number there."),
        (b'{"texts": ["\xff"]}', "the body is not UTF-8: byte 13 cannot be read."),
        (b'\xef\xbb\xbf{"texts": ["a"]}', "the body is not JSON: Unexpected UTF-8 BOM"),
        (b'{"texts": ["a\nb"]}', "the body is not JSON: Invalid control character"),
        (b"[" * 100_000, "the body cannot be read: it is nested too deeply."),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "the body cannot be read: it is nested too deeply."),
        (b'{"texts": ' + b"1" * 5000 + b"}", "the body cannot be read: a number in it has too many digits."),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_400_for_what_is_not_json(served, body, error):
    answer = served.post("/classify", body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(error)
    assert "field" not in answer.json()


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"])
def test_415_for_another_content_type(served, kind):
    """So a page of another site cannot ask without the browser asking first, and that is refused."""
    answer = served.post("/classify", CLASSIFY, headers={"content-type": kind})
    assert answer.status_code == 415
    assert answer.json()["error"].startswith("Content-Type: must be application/json")
    assert served.client.options("/classify").status_code == 405


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_by_its_names(served, kind):
    assert served.post("/classify", CLASSIFY, headers={"content-type": kind}).status_code == 200


@pytest.mark.parametrize(
    ("path", "content", "error"),
    [
        (
            "/classify",
            CLASSIFY | {"model": "word"},
            "model: there is no 'word' of sentiment. There are: qrnn (sentiment), ",
        ),
        ("/generate", GENERATE | {"model": "../word"}, "model: there is no '../word' of language-model."),
        ("/translate", TRANSLATE | {"model": "http://a"}, "model: there is no 'http://a' of translation."),
        ("/nothing", {}, "there is no such path; /docs lists them."),
        ("/classify/", CLASSIFY, "there is no such path; /docs lists them."),
    ],
)
def test_404_says_what_there_is(served, path, content, error):
    answer = served.post(path, content)
    assert answer.status_code == 404
    assert answer.json()["error"].startswith(error)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/classify"), ("POST", "/models"), ("PUT", "/"), ("DELETE", "/states")]
)
def test_405(served, method, path):
    answer = served.client.request(method, path)
    assert answer.status_code == 405
    assert answer.json()["error"] == f"{method} is not for this path; /docs lists what is."
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    "text",
    ["\0", "a\0b", "\u2028\x85", "🎻 film", "\x1b[31m", "a" * 3000, "\u202e", "e\u0301" * 40, "..." * 300, "\ufeff a"],
    ids=lambda text: ascii(text[:10]),
)
def test_any_text_is_text(served, text):
    """Blank or not, known or not: an answer, or a sentence about the text."""
    for path, content in (
        ("/classify", {"texts": [text]}),
        ("/classify-stream", {"text": text}),
        ("/states", {"text": text[:2000], "what": "f"}),
        ("/generate", {"prompt": text[:2000], "length": 2, "model": "character"}),
        ("/generate", {"prompt": text[:2000], "length": 2}),
        ("/translate", {"text": text[:100], "beam": 1}),
    ):
        answer = served.post(path, content)
        assert answer.status_code == 200 or "is blank" in answer.json()["error"], (path, answer.text)
        assert answer.status_code in (200, 422)


def test_a_field_that_is_given_twice_is_refused(served):
    for body in (b'{"texts": 1, "texts": ["a"]}', b'{"texts": ["a"], "texts": 1}', b'{"texts": [{"a": 1, "a": 2}]}'):
        answer = served.post("/classify", body)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("the body is not sound JSON: '")
        assert answer.json()["error"].endswith("' is there twice.")


def test_a_whole_number_may_be_written_with_a_point(served):
    """JSON has one kind of number, and its schema says that 9.0 is an integer."""
    assert served.post("/generate", GENERATE | {"length": 9.0, "seed": 1.0, "top_k": 2.0}).status_code == 200
    assert served.post("/translate", TRANSLATE | {"beam": 2.0, "n_best": 1.0}).status_code == 200


def test_a_mistake_is_told_in_one_short_line(served):
    for content in ({"texts": {"a" * 1000: 1}}, {"texts": ["a"], "b" * 5000: 1}, {"texts": [[[]] * 1000] * 60}):
        answer = served.post("/classify", content)
        assert answer.status_code == 422
        assert "\n" not in answer.json()["error"]
        assert len(answer.text) < 300


@pytest.mark.parametrize("field", ["\ud800", "\x00", "__class__", "{field}", "ä" * 1000], ids=ascii)
def test_guarantee_server_takes_any_name_of_a_field_for_what_it_is(served, field):
    """Half a surrogate pair is a name in JSON."""
    for content in ({field: 1}, {"texts": ["a"], field: 1}):
        answer = served.post("/classify", content)
        assert (answer.status_code, set(answer.json())) == (422, {"error", "field"})
        assert answer.json()["error"].endswith("no such field; there are model, texts.")


def test_guarantee_server_refuses_thousands_of_unknown_fields_with_one_error():
    """As many as a body has room for: the first is enough."""
    content = {f"f{number}": 0 for number in range(24_500)}
    assert BODY_BYTES * 0.95 < len(json.dumps(content, separators=(",", ":"))) <= BODY_BYTES
    for task in all_tasks().values():
        for endpoint in task.endpoints:
            with pytest.raises(ValidationError) as caught:
                endpoint.request.model_validate(content)
            assert caught.value.error_count() == 1
            assert describe([{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]).field == "f0"


def test_a_body_is_parsed_once(served, monkeypatch):
    parsed = []
    monkeypatch.setattr(
        json, "loads", lambda text, _loads=json.loads, **how: parsed.append(text) or _loads(text, **how)
    )
    with served.raw(request_of("/classify", CLASSIFY)) as asked:
        assert asked.recv(100).startswith(b"HTTP/1.1 200")
    assert parsed == [json.dumps(CLASSIFY)]
