"""`quasirnn score`: how well a language model predicts a user's text."""

import json
import math
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from quasirnn.cli.errors import run_errors
from quasirnn.cli.runs import excerpt, finite, load_language_model, reader_may_leave, texts


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained language model.")],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; standard input if none.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the texts from a file, one a line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Score texts: perplexity and bits of each, and of all together; tokens, and how many the model does not know.

    Each text is a line of its own: nothing is carried from one to the next, and at word level its end is scored too.
    Empty lines are left out. Any number of lines is read in constant memory.
    """
    with run_errors(), reader_may_leave():
        from quasirnn.tasks.language_model import perplexity

        model = load_language_model(run)
        items = (item for item in texts(text or [], file) if item.strip())
        # Before anything is printed: a file that is missing, say, leaves standard output empty.
        first = list(islice(items, 1))
        tokens, bits, count = 0, 0.0, 0
        if as_json:
            print('{"items": [', end="")
        else:
            print("perplexity\tbits\ttokens\tunknown\ttext")
        for item in chain(first, items):
            result = model.score(item)
            tokens, bits = tokens + result.tokens, bits + result.bits
            if as_json:
                values = {"text": item, "tokens": result.tokens, "unknown": result.unknown}
                values |= {"bits": finite(result.bits), "perplexity": finite(result.perplexity)}
                print(("," if count else "") + json.dumps(values), end="")
            else:
                figures = f"{result.perplexity:.2f}\t{result.bits:.2f}\t{result.tokens}\t{result.unknown}"
                print(f"{figures}\t{excerpt(item)}")
            count += 1
        overall = perplexity(bits * math.log(2) / tokens) if tokens else math.nan
        if as_json:
            total = {"tokens": tokens, "bits": finite(bits), "perplexity": finite(overall)}
            print(f'], "total": {json.dumps(total)}}}')
        elif count != 1:
            print(f"{overall:.2f}\t{bits:.2f}\t{tokens}\t\tall {count:,}" if tokens else "nothing to score")
