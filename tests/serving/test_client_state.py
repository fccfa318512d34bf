"""A state that the client keeps: it comes back as it went, or is refused."""

import base64
import copy
import struct
import zlib

import pytest
import torch

from quasirnn.tasks import client_state
from quasirnn.tasks.client_state import StateError, StateFormat


@pytest.fixture(scope="module")
def model(models):
    return models.find("sentiment", "qrnn").model


@pytest.fixture(scope="module")
def states(model):
    return StateFormat(model)


@pytest.fixture(scope="module")
def reading(model):
    reader = model.reader()
    reader.read("the film is")
    return reader.reading


def forged(text: str, change) -> str:
    """With the right checksum: by one who knows how it is made."""
    data = bytearray(base64.urlsafe_b64decode(text))[:-4]
    data = change(data) or data
    return base64.urlsafe_b64encode(data + struct.pack("<I", zlib.crc32(data))).decode()


def test_a_state_comes_back_bit_by_bit(states, reading):
    packed = states.pack(reading)
    assert len(packed) == states.characters
    back = states.unpack(packed)
    assert back.count == reading.count == 3
    for ours, theirs in zip((*reading.state, reading.total), (*back.state, back.total), strict=True):
        assert torch.equal(ours, theirs)


def test_the_state_before_the_first_word(states):
    assert states.unpack(states.pack(None)) is None


def test_a_state_is_safe_in_an_address(states, reading):
    assert set(states.pack(reading)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")


def test_a_state_is_of_its_model(states, models, reading):
    for name in ("lstm", "other"):
        with pytest.raises(StateError, match="another model"):
            StateFormat(models.find("sentiment", name).model).unpack(states.pack(reading))


def test_a_copy_of_a_run_has_the_same_states_and_other_weights_have_not(states, model, reading):
    twin = copy.copy(model)
    twin.model = copy.deepcopy(model.model)
    assert StateFormat(twin).unpack(states.pack(reading)).count == 3
    with torch.no_grad():
        twin.model.output.bias += 1e-3
    with pytest.raises(StateError, match="another model"):
        StateFormat(twin).unpack(states.pack(reading))


def test_a_state_that_was_changed_anywhere_is_refused(states, reading):
    packed = states.pack(reading)
    for place in range(0, len(packed), 7):
        other = "A" if packed[place] != "A" else "B"
        with pytest.raises(StateError):
            states.unpack(packed[:place] + other + packed[place + 1 :])


@pytest.mark.parametrize("text", ["", "A", "AAAA", "no base64!", "ü", "=" * 8, "A" * 1000, "\0", "AA AA"])
def test_what_is_no_state(states, text):
    with pytest.raises(StateError):
        states.unpack(text)


def test_a_state_that_was_cut_off(states, reading):
    packed = states.pack(reading)
    for length in range(0, len(packed), 13):
        with pytest.raises(StateError):
            states.unpack(packed[:length])


def number_at(place: int, value: float):
    def change(data: bytearray) -> None:
        data[28 + 4 * place : 32 + 4 * place] = struct.pack("<f", value)

    return change


def count_of(count: int):
    def change(data: bytearray) -> None:
        data[20:28] = struct.pack("<Q", count)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (number_at(0, float("nan")), "not finite"),
        (number_at(5, float("inf")), "not finite"),
        (count_of(0), "size"),
        (count_of(client_state.MOST_WORDS + 1), "size"),
        (count_of(2**64 - 1), "size"),
        (lambda data: data + b"\0\0\0\0", "size"),
        (lambda data: data[:-4], "size"),
        (lambda data: b"qrn9" + data[4:], "another version"),
    ],
)
def test_a_forged_state_is_looked_at_all_the_same(states, reading, change, message):
    with pytest.raises(StateError, match=message):
        states.unpack(forged(states.pack(reading), change))


def test_a_forged_state_that_no_sum_can_hold_is_refused_by_the_server(served, states, reading):
    huge = forged(states.pack(reading), lambda data: data[:28] + struct.pack("<f", 3e38) * ((len(data) - 28) // 4))
    answer = served.post("/classify-stream", {"text": "film", "state": huge})
    assert (answer.status_code, answer.json()["field"]) == (422, "state")


@pytest.mark.parametrize("state", ["", "AAAA", "ü", "A" * 131072])
def test_the_server_refuses_what_is_no_state(served, state):
    answer = served.post("/classify-stream", {"text": "film", "state": state})
    assert (answer.status_code, answer.json()["field"]) == (422, "state")
    assert answer.json()["error"].startswith("state: ")


def test_the_server_refuses_the_state_of_another_model(served, states, reading):
    answer = served.post("/classify-stream", {"model": "other", "text": "film", "state": states.pack(reading)})
    assert answer.json() == {"error": "state: is of another model; begin anew with null.", "field": "state"}


def test_a_model_whose_state_has_no_room_says_so(served, monkeypatch):
    monkeypatch.setattr("quasirnn.tasks.client_state.STATE_CHARACTERS", 10)
    answer = served.post("/classify-stream", {"text": "film"})
    assert (answer.status_code, answer.json()["field"]) == (422, "model")
