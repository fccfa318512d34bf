"""The commands of the task `language-model`. Without torch, so that `--help` answers at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from quasirnn.errors import UserError, shown
from quasirnn.tasks import console, shipped
from quasirnn.tasks.console import AsJson, Precision, RunAndTexts, TextFile

NAME = "language-model"


def generate(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]",
            help="The folder of a trained model, or a name from `quasirnn models`. [default: the installed one]",
        ),
    ] = None,
    prompt: Annotated[str, typer.Option(help="The text to continue; if empty, generation starts on a new line.")] = "",
    length: Annotated[int, typer.Option(help="Number of tokens (words or characters) to generate.", min=0)] = 100,
    temperature: Annotated[
        float,
        typer.Option(help="Below 1: more conservative; above 1: more varied; 0: always the most likely token.", min=0),
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Sample only from the k most likely tokens.", min=1)] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample only from the most likely tokens that together have probability p.", min=0, max=1),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text. [default: random]")] = None,
    precision: Precision = None,
) -> None:
    """Continue a text with a language model. Tokens are printed as they are sampled; memory use is constant.

    Examples:

    quasirnn generate --prompt "The history of"

    quasirnn generate runs/ptb --prompt "the company said" --length 60 --temperature 0.8 --seed 1

    quasirnn generate runs/ptb --length 1000000 > long.txt
    """
    from quasirnn.models.sampling import Sampler

    prompt = console.check_argument(prompt)
    if run is not None and not shipped.is_run(str(run)) and " " in str(run):
        raise UserError(f"{shown(str(run))}: no such folder. To continue a text: --prompt TEXT.")
    pipeline = console.load_run(console.default_run(NAME) if run is None else run, NAME, precision)
    try:
        Sampler(temperature, top_k, top_p, seed)
    except ValueError as error:
        raise UserError(str(error)) from error
    pieces = pipeline.stream(prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    print(prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def score(
    arguments: RunAndTexts = None, file: TextFile = None, precision: Precision = None, as_json: AsJson = False
) -> None:
    """Score texts: perplexity, bits, tokens and unknown tokens of each text, then of all together.

    Each line is a separate text, without context from other lines; at word level, its end is scored too. Empty lines
    are skipped. Memory use is constant for any number of lines.
    """
    from quasirnn.tasks.evaluation import finite
    from quasirnn.tasks.language_model import perplexity

    run, text = console.run_and_texts(arguments, file, NAME)
    pipeline = console.load_run(run, NAME, precision)
    items = (item for item in console.read_texts(text, file) if item.strip())
    scores = ((item, pipeline.score(item)) for item in items)
    totals = {"tokens": 0, "bits": 0.0, "count": 0}

    def counted() -> Iterator[tuple[str, Any]]:
        for item, result in scores:
            totals["tokens"] += result.tokens
            totals["bits"] += result.bits
            totals["count"] += 1
            yield item, result

    def overall() -> float:
        return perplexity(totals["bits"] * math.log(2) / totals["tokens"]) if totals["tokens"] else math.nan

    if as_json:
        console.print_items(
            (
                {
                    "text": item,
                    "tokens": result.tokens,
                    "unknown": result.unknown,
                    "bits": finite(result.bits),
                    "perplexity": finite(result.perplexity),
                }
                for item, result in counted()
            ),
            lambda: {
                "total": {
                    "tokens": totals["tokens"],
                    "bits": finite(totals["bits"]),
                    "perplexity": finite(overall()),
                }
            },
        )
        return
    print("perplexity\tbits\ttokens\tunknown\ttext")
    for item, result in counted():
        figures = f"{result.perplexity:.2f}\t{result.bits:.2f}\t{result.tokens}\t{result.unknown}"
        print(f"{figures}\t{console.excerpt(item)}")
    if not totals["count"]:
        print("nothing to score")
    elif totals["count"] > 1:
        print(f"{overall():.2f}\t{totals['bits']:.2f}\t{totals['tokens']}\t\tall {totals['count']:,}")


COMMANDS = (generate, score)
PLOTS = ()
