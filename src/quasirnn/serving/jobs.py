"""From what is asked for to jobs that answer it: one function a path. A result is the answer's JSON."""

import math
import time
from collections.abc import Callable
from typing import Any

from quasirnn.errors import shown
from quasirnn.serving import answers, limits
from quasirnn.serving.client_state import StateError
from quasirnn.serving.loaded import Loaded
from quasirnn.serving.refusals import unfit
from quasirnn.serving.requests import Classify, ClassifyStream, Generate, States, Translate
from quasirnn.serving.work import Job, Step

# Texts of so many characters in all are classified in a moment; longer ones let them pass. What is told of every word
# takes longer.
SHORT_CHARACTERS, SHORT_CHARACTERS_BY_WORD = 4_000, 500
# Words that are read between two looks at whether somebody still waits for them.
WORDS_AT_ONCE = 250
# What the sizes of jobs that are run together may add up to: texts that are classified.
BATCH = 64
# A translation is larger, more so where the attention of all hypotheses is kept.
TRANSLATION_SIZE, ATTENTION_SIZE = 4, 16

Emit = Callable[[str], None]


def classify(loaded: Loaded, asked: Classify, deadline: float) -> Job:
    """Texts of several requests are read in one batch."""

    def run(requests: list[list[str]], step: Step) -> list[Any]:
        flat = [text for texts in requests for text in texts]
        results = iter(list(loaded.model.classify_all(flat, tick=lambda done, of: step())))
        return [_classified(loaded.name, [next(results) for _ in texts]) for texts in requests]

    short = sum(map(len, asked.texts)) <= SHORT_CHARACTERS
    key = ("classify", loaded.name) if short else None
    return Job(asked.texts, run, deadline, key=key, size=len(asked.texts), short=short)


def _classified(name: str, results: list[Any]) -> Any:
    for number, result in enumerate(results):
        if result is None:
            return unfit(f"texts[{number}]", "is blank; there is nothing to read.")
    return answers.encoded(answers.classified(name, results))


def classify_stream(loaded: Loaded, asked: ClassifyStream, deadline: float) -> Job:
    """A piece of a text, read on from where the client's state stands."""
    if not loaded.states.fits:
        raise unfit("model", f"the state of {loaded.name} has more than {limits.STATE_CHARACTERS:,} characters.")
    try:
        reading = None if asked.state is None else loaded.states.unpack(asked.state)
    except StateError as error:
        raise unfit("state", str(error)) from None

    def run(_: list[Any], step: Step) -> list[Any]:
        reader = loaded.model.reader(reading)
        words = []
        for found in reader.read_in_pieces(asked.text, WORDS_AT_ONCE):
            words += found
            step()
        if not all(math.isfinite(word.so_far.probability) for word in words):
            return [unfit("state", "leads to numbers that are not finite; begin anew with null.")]
        now = reader.reading
        count = 0 if now is None else now.count
        return [answers.encoded(answers.read(loaded.name, words, loaded.states.pack(now), count))]

    return Job(None, run, deadline, short=len(asked.text) <= SHORT_CHARACTERS_BY_WORD)


def states(loaded: Loaded, asked: States, deadline: float) -> Job:
    """Cells or gates of a layer while it reads."""
    classes = loaded.model.classes
    if loaded.gates is None:
        raise unfit("model", f"{loaded.name} is an LSTM; only a QRNN's cells and gates can be shown.")
    if asked.what not in loaded.gates:
        raise unfit("what", f"{loaded.name} has {', '.join(loaded.gates)}, got {asked.what}.")
    layer = loaded.layers if asked.layer is None else asked.layer
    if layer > loaded.layers:
        raise unfit("layer", f"at most {loaded.layers}, got {shown(asked.layer)}.")
    if asked.label is not None and asked.label not in classes:
        raise unfit("label", f"must be one of {', '.join(classes)}, got {shown(asked.label)}.")
    if not loaded.model.vocabulary.tokenise(asked.text):
        raise unfit("text", "is blank; there is nothing to read.")

    def run(_: list[Any], step: Step) -> list[Any]:
        found = loaded.model.states(asked.text, layer, asked.what, asked.label)
        return [answers.encoded(answers.states(loaded.name, found, layer, loaded.layers), step)]

    return Job(None, run, deadline, short=len(asked.text) <= SHORT_CHARACTERS_BY_WORD)


def generate(loaded: Loaded, asked: Generate, deadline: float, emit: Emit) -> Job:
    """Text token by token: the thread that works calls `emit` with each piece. The result is what `end` tells."""
    size = len(loaded.model.vocabulary)
    if asked.top_k is not None and asked.top_k > size:
        raise unfit("top_k", f"at most {size:,}, the size of the vocabulary, got {shown(asked.top_k)}.")

    def run(_: list[Any], step: Step) -> list[Any]:
        began = time.monotonic()
        how = {"temperature": asked.temperature, "top_k": asked.top_k, "top_p": asked.top_p, "seed": asked.seed}
        for piece in loaded.model.stream(asked.prompt, asked.length, **how):
            if piece:
                emit(piece)
            step()
        return [{"tokens": asked.length, "seconds": round(time.monotonic() - began, 3), "reason": "length"}]

    return Job(None, run, deadline)


def translate(loaded: Loaded, asked: Translate, deadline: float) -> Job:
    """Texts of about the same length are decoded together, where they ask for the same."""
    if asked.n_best > asked.beam:
        raise unfit("n_best", f"at most {asked.beam}, as beam is, got {asked.n_best}.")
    if asked.attention and len(asked.text) > limits.ATTENTION_CHARACTERS:
        raise unfit(
            "text", f"at most {limits.ATTENTION_CHARACTERS:,} characters with attention, got {len(asked.text):,}."
        )
    if not asked.text.strip():
        raise unfit("text", "is blank; there is nothing to translate.")

    def run(texts: list[str], step: Step) -> list[Any]:
        how = {"beam": asked.beam, "alpha": asked.alpha, "n_best": asked.n_best, "attention": asked.attention}
        found = loaded.model.decoder.translate(texts, **how, each_step=step)
        tokenise = loaded.model.vocabulary.tokenise
        return [
            answers.encoded(answers.translated(loaded.name, tokenise(text), best), step)
            for text, best in zip(texts, found, strict=True)
        ]

    alike = (asked.beam, asked.alpha, asked.n_best, asked.attention, len(asked.text).bit_length())
    size = ATTENTION_SIZE if asked.attention else TRANSLATION_SIZE
    return Job(asked.text, run, deadline, key=("translate", loaded.name, alike), size=size)
