"""`quasirnn evaluate`: figures of a trained model on a split."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.cli.errors import UsageError, run_errors
from quasirnn.cli.runs import finite, load_sentiment, progress_of, reader_may_leave

if TYPE_CHECKING:
    from quasirnn.tasks.language_model_text import Evaluation
    from quasirnn.tasks.sentiment_compare import Comparison
    from quasirnn.tasks.sentiment_text import SentimentEvaluation
    from quasirnn.tasks.translation_text import TranslationEvaluation
    from quasirnn.training.learner import Tick


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Where the text is. [default: where the training's was]"),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid, test, or the name of a file without its suffix.")] = "test",
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Sentiment: another classifier, on the same texts; the difference with its 95 % interval.",
        ),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(help="Translation: hypotheses that are followed; 1 is greedy. [default: 8]", min=1, max=256),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Translation: of the ranking criterion. [default: 0.6]", min=0, max=10)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Evaluate a trained model on text it has not seen.

    A language model reads the split as one stream, every token with all tokens before it as context, and reports the
    perplexity over all of them but the first. A classifier reports its accuracy, its loss, and which class was taken
    for which; a translator BLEU and chrF as sacrebleu has them, and how many translations are right to the letter.
    """
    with run_errors(), progress_of(f"reading {split}") as tick:
        from quasirnn.tasks.load import load

        model: Any = load(run)
        search = {name: value for name, value in (("beam", beam), ("alpha", alpha)) if value is not None}
        if search and model.task != "translation":
            raise UsageError(f"--{next(iter(search))}: only a translator searches; {run} is a run of {model.task}.")
        comparison = None
        if against is None:
            result = model.evaluate(split, data, tick, **search)
        else:
            comparison = compare_with(model, against, split, data, tick)
            result = comparison.first
    with reader_may_leave():
        if as_json:
            print_json(run, model.task, result, against, comparison)
            return
        for note in result.notes:
            print(f"Note: {note}", file=sys.stderr)
        SHOWN[model.task][1](result)
        if comparison is not None:
            show_comparison(comparison)


def compare_with(model: Any, against: Path, split: str, data: list[str] | None, tick: "Tick") -> "Comparison":
    from quasirnn.tasks.sentiment_compare import compare

    if model.task != "sentiment":
        raise UsageError(f"--against: only classifiers are compared; {model.run.path} is a run of {model.task}.")
    return compare(model, load_sentiment(against), split, data, tick)


def print_json(run: Path, task: str, result: Any, against: Path | None, comparison: "Comparison | None") -> None:
    values = {"run": str(run), **dataclasses.asdict(result)}
    values |= {name: finite(getattr(result, name)) for name in SHOWN[task][0]}
    if comparison is not None:
        values["against"] = {
            "run": str(against),
            "accuracy": comparison.second.accuracy,
            "difference": comparison.difference,
            "interval": list(comparison.interval),
            "only_this_right": comparison.only_first_right,
            "only_other_right": comparison.only_second_right,
        }
    print(json.dumps(values))


def show_language_model(result: "Evaluation") -> None:
    unknown = f", {result.unknown:,} of them unknown" if result.unknown else ""
    print(
        f"{result.corpus}, {result.split}: perplexity {result.perplexity:.2f}, {result.bits_per_token:.4f} bits per "
        f"token ({result.tokens:,} tokens{unknown})"
    )


def show_sentiment(result: "SentimentEvaluation") -> None:
    print(
        f"{result.corpus}, {result.split}: accuracy {result.accuracy:.2f} %, loss {result.loss:.4f} "
        f"({result.texts:,} texts)"
    )
    # Many classes do not fit on a line; the picture and --json have them.
    if len(result.classes) > 12:
        return
    rows = [["true \\ said", *result.classes]]
    rows += [[name, *map(str, counts)] for name, counts in zip(result.classes, result.confusion, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *cells]))


def show_comparison(comparison: "Comparison") -> None:
    show_sentiment(comparison.second)
    low, high = comparison.interval
    print(
        f"difference {comparison.difference:+.2f} points, 95 % interval {low:+.2f} to {high:+.2f} "
        f"(right: the first alone {comparison.only_first_right:,}, the second alone {comparison.only_second_right:,})"
    )


def show_translation(result: "TranslationEvaluation") -> None:
    print(
        f"{result.corpus}, {result.split}: BLEU {result.bleu:.2f} (lower-case {result.bleu_lowercase:.2f}), chrF "
        f"{result.chrf:.2f}, exact match {result.exact_match:.2f} %, loss {result.loss:.4f} ({result.pairs:,} pairs, "
        f"beam {result.beam}, alpha {result.alpha:g})"
    )
    for signature in result.signatures.values():
        print(signature)


# By task: what a result has that may not be finite, and how it is shown.
SHOWN = {
    "language-model": (("loss", "perplexity", "bits_per_token"), show_language_model),
    "sentiment": (("loss",), show_sentiment),
    "translation": (("loss",), show_translation),
}
