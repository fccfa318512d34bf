"""The commands of the task `translation`. Without torch, so that `--help` answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import tee
from typing import Annotated

import typer

from quasirnn.errors import DataError
from quasirnn.tasks import console
from quasirnn.tasks.console import AsJson, OneText, OneTextFile, Picture, Precision, RunAndTexts, RunArgument, TextFile

NAME = "translation"
BEAM, ALPHA = 8, 0.6  # paper, section 3.3
# Beyond these a search takes all memory there is, and scores are infinite.
WIDEST, LARGEST_ALPHA = 256, 10
HYPOTHESES = 256  # in a batch, if no batch size is given

BeamSize = Annotated[int, typer.Option(help="Beam size; 1 is greedy.", min=1, max=WIDEST)]


def translate(
    arguments: RunAndTexts = None,
    file: TextFile = None,
    beam: BeamSize = BEAM,
    alpha: Annotated[
        float,
        typer.Option(
            help="Length penalty of the ranking: larger values favour longer translations.", min=0, max=LARGEST_ALPHA
        ),
    ] = ALPHA,
    n_best: Annotated[
        int,
        typer.Option(
            help="Number of translations per text, one per line, best first; at most --beam.", min=1, max=WIDEST
        ),
    ] = 1,
    batch_size: Annotated[
        int | None,
        typer.Option(help=f"Maximum number of texts per batch. [default: {HYPOTHESES} / beam]", min=1, max=1024),
    ] = None,
    precision: Precision = None,
    as_json: AsJson = False,
) -> None:
    """Translate texts, one line per text. Give one sentence per line if the model was trained on sentences.

    A blank line stays blank. With --n-best, each line has the number of the text, the score and the translation,
    separated by tabs. A text longer than max_length of the training (and at most a thousand characters) is split at
    sentence ends and translated piece by piece; it has one translation. A text of more than 20,000 characters is an
    error. Characters outside the vocabulary are read as unknown. Memory use is constant for any number of lines.

    Examples:

    quasirnn translate "Ich habe heute keine Zeit."

    quasirnn translate runs/translation "der dritte März neunzehnhundertsiebenundachtzig"

    quasirnn translate runs/translation --file german.txt --beam 1 > english.txt
    """
    from quasirnn.tasks.translation import values_of

    run, text = console.run_and_texts(arguments, file, NAME)
    pipeline = console.load_run(run, NAME, precision)
    items: Iterator[str] = console.read_texts(text, file)
    # For what is typed: a file of a million lines would have as many notes.
    if text and not as_json:
        items = console.noting_unknown(pipeline.vocabulary, items)
    # Only JSON has the texts as well; without it `tee` would keep all of them in memory.
    items, read = tee(items) if as_json else (items, items)
    results = pipeline.translate_all(read, beam=beam, alpha=alpha, n=n_best, batch_size=batch_size)
    if as_json:
        pairs = zip(items, results, strict=True)
        console.print_items({"text": item, "translations": list(map(values_of, best))} for item, best in pairs)
        return
    for number, translations in enumerate(results, 1):
        if n_best == 1:
            print(translations[0].text if translations else "", flush=True)
        for each in translations if n_best > 1 else ():
            print(f"{number}\t{each.score:.4f}\t{each.text}", flush=True)


def attention(
    run: RunArgument,
    text: OneText = None,
    file: OneTextFile = None,
    out: Picture = None,
    beam: BeamSize = BEAM,
) -> None:
    """Translate a sentence and plot the attention weights: source characters across, translation down.

    Example:

    quasirnn plot attention runs/translation "der dritte März neunzehnhundertsiebenundachtzig"
    """
    from quasirnn.tasks.translation import draw_attention

    with console.picture(out, console.beside(run, "attention.png")) as path:
        pipeline = console.load_run(run, NAME)
        whole = console.one_text(text, file)
        (best,) = pipeline.n_best(whole, 1, beam=beam, attention=True)
        if best.attention is None:
            raise DataError("the text is too long for one picture: give one sentence.")
        draw_attention(whole, best, path)


COMMANDS = (translate,)
PLOTS = (attention,)
