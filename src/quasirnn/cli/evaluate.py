"""`quasirnn evaluate`: figures of a trained model on a split."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quasirnn.cli.errors import run_errors
from quasirnn.cli.runs import finite, progress_of, reader_may_leave

if TYPE_CHECKING:
    from quasirnn.tasks.language_model_text import Evaluation


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Where the text is. [default: where the training's was]"),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid, test, or the name of a file without its suffix.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Evaluate a trained model on text it has not seen.

    A language model reads the split as one stream, every token with all tokens before it as context, and reports the
    perplexity over all of them but the first.
    """
    with run_errors(), progress_of(f"reading {split}") as tick:
        from quasirnn.tasks.load import load

        result = load(run).evaluate(split, data, tick)
    with reader_may_leave():
        print_result(run, result, as_json)


def print_result(run: Path, result: "Evaluation", as_json: bool) -> None:
    if as_json:
        figures = {name: finite(getattr(result, name)) for name in ("loss", "perplexity", "bits_per_token")}
        print(json.dumps({"run": str(run), **dataclasses.asdict(result), **figures}))
        return
    for note in result.notes:
        print(f"Note: {note}", file=sys.stderr)
    unknown = f", {result.unknown:,} of them unknown" if result.unknown else ""
    print(
        f"{result.corpus}, {result.split}: perplexity {result.perplexity:.2f}, {result.bits_per_token:.4f} bits per "
        f"token ({result.tokens:,} tokens{unknown})"
    )
