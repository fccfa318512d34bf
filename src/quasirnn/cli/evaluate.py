"""`quasirnn evaluate`: figures of a trained model on a split."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from quasirnn.errors import UserError
from quasirnn.tasks.console import AsJson, DataFolders, Precision, RunArgument, Split, closing_pipe, progress_of


def evaluate(
    run: RunArgument,
    data: DataFolders = None,
    split: Split = "test",
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Compare with another model on the same rows: difference with 95 % interval (paired bootstrap).",
        ),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(help="Translators: beam size; 1 is greedy. [default: 8]", min=1, max=256),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Translators: length penalty of the ranking. [default: 0.6]", min=0, max=10)
    ] = None,
    cache: Annotated[
        int | None,
        typer.Option(
            help="Language models: use a neural cache of this many tokens, tuned on validation.",
            min=1,
            max=65_536,
        ),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write the results into the folder of the run, for `quasirnn compare`.")
    ] = False,
    precision: Precision = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a trained model on text it has not seen.

    A language model reads the split as one sequence, with all previous tokens as context, and reports the perplexity
    of all tokens except the first. A classifier reports accuracy, loss and the confusion matrix. A translator reports
    BLEU and chrF (sacrebleu) and the percentage of exact matches.
    """
    from quasirnn.tasks.pipeline import load

    pipeline = load(run, precision=precision)
    given = {"beam": beam, "alpha": alpha, "cache": cache}
    options = {name: value for name, value in given.items() if value is not None}
    if foreign := [name for name in options if name not in pipeline.definition.evaluation_options]:
        raise UserError(f"--{foreign[0]}: {run} is a run of {pipeline.task}, which has no such option.")
    lines: list[str] = []
    beside: dict[str, Any] = {}
    rows = None
    with progress_of(f"reading {split}") as tick:
        if against is not None:
            result, rows, lines, beside["against"] = pipeline.compare(load(against), split, data, tick, **options)
        elif save and cache is None and pipeline.definition.figure_of_sums() is not None:
            result, rows = pipeline.evaluate_rows(split, data, tick, **options)
        else:
            result = pipeline.evaluate(split, data, tick, **options)
    if save:
        pipeline.save_evaluation(result, rows, {**options, **beside})
    with closing_pipe():
        if as_json:
            print(json.dumps({"run": str(run), **result.to_json(), **beside}))
            return
        for note in result.notes:
            print(f"Note: {note}", file=sys.stderr)
        for line in [*result.lines(), *lines]:
            print(line)
