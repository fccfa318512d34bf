"""`quasirnn classify`: the label of each text."""

import json
from collections.abc import Iterator
from itertools import chain, islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quasirnn.cli.errors import UsageError, run_errors
from quasirnn.cli.runs import excerpt, load_sentiment, reader_may_leave, texts

if TYPE_CHECKING:
    from quasirnn.tasks.sentiment_text import Classification, SentimentOnText


def classify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained classifier.")],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; standard input if none.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the texts from a file, one a line.")] = None,
    words: Annotated[
        bool, typer.Option("--words", help="The label and its probability after each word, a word a line.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="The most texts that are read at once.", min=1, max=4096)] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Classify texts: label, its probability and the text, with tabs between them, a line for each text in its order.

    A blank line gets the label "-" (null in JSON), so that lines of input and output stay side by side. Any number of
    lines is read in constant memory.

    Examples:

    quasirnn classify runs/imdb "Not a bad film at all."

    quasirnn classify runs/imdb --file reviews.txt > labels.tsv

    quasirnn classify runs/imdb --words "The music is fine, but its main weakness is the story."
    """
    if words and as_json:
        raise UsageError("--words and --json: give one of them.")
    with run_errors(), reader_may_leave():
        model = load_sentiment(run)
        items = texts(text or [], file)
        # Before anything is printed: a file that is missing, say, leaves standard output empty.
        items = chain(list(islice(items, 1)), items)
        if words:
            print_words(model, items)
        elif as_json:
            print_json(model, items, batch_size)
        else:
            print("label\tprobability\ttext")
            for item, result in classified(model, items, batch_size):
                label, probability = ("-", "-") if result is None else (result.label, f"{result.probability:.4f}")
                print(f"{label}\t{probability}\t{excerpt(item)}")


def classified(
    model: "SentimentOnText", items: Iterator[str], batch_size: int
) -> Iterator[tuple[str, "Classification | None"]]:
    """Each text with what it is taken for."""
    shown, read = tee(items)
    return zip(shown, model.classify_all(read, batch_size), strict=True)


def print_words(model: "SentimentOnText", items: Iterator[str]) -> None:
    print("label\tprobability\tword")
    for number, item in enumerate(items):
        if number:
            print()
        for read in model.words(item):
            print(f"{read.so_far.label}\t{read.so_far.probability:.4f}\t{read.word}")


def print_json(model: "SentimentOnText", items: Iterator[str], batch_size: int) -> None:
    print('{"items": [', end="")
    for number, (item, result) in enumerate(classified(model, items, batch_size)):
        values: dict[str, object] = {"text": item, "label": None, "probability": None, "probabilities": None}
        if result is not None:
            values |= {
                "label": result.label,
                "probability": result.probability,
                "probabilities": result.probabilities,
            }
        print(("," if number else "") + json.dumps(values), end="")
    print("]}")
