"""`quasirnn translate`: texts in another language."""

import json
from collections.abc import Iterator
from itertools import chain, islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quasirnn.cli.errors import run_errors
from quasirnn.cli.runs import load_translator, reader_may_leave, texts

if TYPE_CHECKING:
    from quasirnn.tasks.translation_decoding import Translation


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained translator.")],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; standard input if none.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the texts from a file, one a line.")] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses that are followed; 1 is greedy.", min=1, max=256)] = 8,
    alpha: Annotated[
        float,
        typer.Option(help="Of the ranking criterion: the larger, the more a short translation loses.", min=0, max=10),
    ] = 0.6,
    n_best: Annotated[
        int,
        typer.Option(help="Translations of each text, a line each, the best first; at most --beam.", min=1, max=256),
    ] = 1,
    batch_size: Annotated[int, typer.Option(help="The most texts that are decoded at once.", min=1, max=1024)] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text, with scores.")] = False,
) -> None:
    """Translate texts: a line for each, in their order; one sentence a line, if the training's pairs were sentences.

    A blank line stays blank. With --n-best a line has the number of its text, the score and the translation, with tabs
    between. A text that is longer than the pairs of training could be (max_length, and at most a thousand characters)
    is cut where sentences end and translated piece by piece; it has one translation. Characters that the model does not
    know are read as unknown. Any number of lines is read in constant memory.

    Examples:

    quasirnn translate runs/translation "der dritte März neunzehnhundertsiebenundachtzig"

    quasirnn translate runs/translation --file german.txt --beam 1 > english.txt
    """
    with run_errors(), reader_may_leave():
        model = load_translator(run)
        items = texts(text or [], file)
        # Before anything is printed: a file that is missing, say, leaves standard output empty.
        shown, read = tee(chain(list(islice(items, 1)), items))
        found = zip(
            shown, model.translate_all(read, beam=beam, alpha=alpha, n=n_best, batch_size=batch_size), strict=True
        )
        if as_json:
            print_json(found)
        else:
            for number, (_, translations) in enumerate(found, 1):
                if n_best == 1:
                    print(translations[0].text if translations else "", flush=True)
                for each in translations if n_best > 1 else ():
                    print(f"{number}\t{each.score:.4f}\t{each.text}", flush=True)


def print_json(found: "Iterator[tuple[str, list[Translation]]]") -> None:
    print('{"items": [', end="")
    for number, (item, translations) in enumerate(found):
        values = {
            "text": item,
            "translations": [
                {
                    "text": each.text,
                    "score": each.score,
                    "log_probability": each.log_probability,
                    "finished": each.finished,
                }
                for each in translations
            ],
        }
        print(("," if number else "") + json.dumps(values), end="")
    print("]}")
