"""The commands of the task `sentiment`. Without torch, so that `--help` answers at once."""

from __future__ import annotations

from itertools import tee
from typing import Annotated

import typer

from quasirnn.errors import UserError, printable
from quasirnn.tasks import console
from quasirnn.tasks.console import (
    AsJson,
    DataFolders,
    OneText,
    OneTextFile,
    Picture,
    Precision,
    RunAndTexts,
    RunArgument,
    Split,
    TextFile,
)

NAME = "sentiment"


def classify(
    arguments: RunAndTexts = None,
    file: TextFile = None,
    words: Annotated[
        bool,
        typer.Option(
            "--words",
            help="Print the label and its probability after each word; [unknown] marks words outside the vocabulary.",
        ),
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Maximum number of texts per batch.", min=1, max=4096)] = 64,
    precision: Precision = None,
    as_json: AsJson = False,
) -> None:
    """Classify texts: prints one line per text with label, probability and text, separated by tabs.

    A blank line gets the label "-" (null in JSON), so that input and output have the same number of lines. Memory use
    is constant for any number of lines.

    Examples:

    quasirnn classify "Not a bad film at all."

    quasirnn classify runs/imdb "Not a bad film at all."

    quasirnn classify runs/imdb --file reviews.txt > labels.tsv

    quasirnn classify runs/imdb --words "The music is fine, but its main weakness is the story."
    """
    if words and as_json:
        raise UserError("--words and --json: give one of them.")
    from quasirnn.tasks.sentiment import values_of

    run, text = console.run_and_texts(arguments, file, NAME)
    pipeline = console.load_run(run, NAME, precision)
    items, read = tee(console.read_texts(text, file))
    if words:
        print("label\tprobability\tword")
        for number, item in enumerate(items):
            if number:
                print()
            for each in pipeline.words(item):
                mark = "" if each.word in pipeline.vocabulary else " [unknown]"
                print(f"{printable(each.so_far.label)}\t{each.so_far.probability:.4f}\t{each.word}{mark}")
            if text:
                console.note_unknown(pipeline.vocabulary, item)
        return
    results = zip(items, pipeline.classify_all(read, batch_size), strict=True)
    if as_json:
        console.print_items({"text": item, **values_of(result)} for item, result in results)
        return
    print("label\tprobability\ttext")
    for item, result in results:
        label, probability = ("-", "-") if result is None else (result.label, f"{result.probability:.4f}")
        print(f"{printable(label)}\t{probability}\t{console.excerpt(item)}")


def states(
    run: RunArgument,
    text: OneText = None,
    file: OneTextFile = None,
    out: Picture = None,
    layer: Annotated[int | None, typer.Option(help="Layer, counted from 1. [default: the last]", min=1)] = None,
    what: Annotated[
        str, typer.Option(metavar="c|h|z|f|o|i", help="Cells, outputs, or one of the gates; f = 1 keeps the old state.")
    ] = "c",
    label: Annotated[
        str | None, typer.Option(help="The class whose probability to plot. [default: the last class]")
    ] = None,
) -> None:
    """Plot the states of a layer while it reads a text, as in the paper's figure of hidden states.

    Rows are words, columns are channels, and the colour is the activation; similar channels are adjacent. The panels
    next to it show the probability after each word and the mean forget gate: where it drops, the layer forgets.

    Examples:

    quasirnn plot states runs/imdb "The music is fine, but its main weakness is the story."

    quasirnn plot states runs/imdb --file review.txt --layer 1 --what f --out forget.svg
    """
    from quasirnn.tasks.sentiment import draw_states

    pipeline = console.load_run(run, NAME)
    with console.picture(out, console.beside(run, "states.png")) as path:
        number = pipeline.settings.num_layers if layer is None else layer
        draw_states(
            pipeline.states(console.one_text(text, file), layer, what, label), path, what, f"{what} of layer {number}"
        )


def confusion(
    run: RunArgument,
    data: DataFolders = None,
    split: Split = "test",
    out: Picture = None,
) -> None:
    """Evaluate a classifier and plot its confusion matrix.

    Example:

    quasirnn plot confusion runs/imdb --split test --out confusion.svg
    """
    import numpy as np

    from quasirnn.plots.confusion import confusion_matrix

    pipeline = console.load_run(run, NAME)
    with console.picture(out, console.beside(run, "confusion.png")) as path:
        with console.progress_of(f"reading {split}") as tick:
            evaluation = pipeline.evaluate(split, data, tick)
        confusion_matrix(path, evaluation.classes, np.array(evaluation.confusion))


COMMANDS = (classify,)
PLOTS = (states, confusion)
