"""`quasirnn plot`: pictures of runs and of what models do, one subcommand per kind."""

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from quasirnn.cli.errors import UsageError, run_errors, user_errors
from quasirnn.cli.runs import load_sentiment, load_translator, progress_of, texts

app = typer.Typer(rich_markup_mode="markdown")


@app.callback(invoke_without_command=True)
def plot(context: typer.Context) -> None:
    """Draw pictures into .png or .svg files. They need matplotlib."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, finished or not.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .svg file. [default: curves.png in the one RUN]")
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Any figure that validations record. [default: the first that all runs have of perplexity, accuracy, "
            "bleu, loss]",
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A dashed line to compare with; may be given several times."),
    ] = None,
) -> None:
    """Draw learning curves: training as thin lines, validation as markers, the best validation with its value.

    Perplexity is on a logarithmic scale. What is far above the rest leaves the frame, with an arrow.

    Examples:

    quasirnn plot curves runs/ptb

    quasirnn plot curves runs/qrnn runs/lstm --out both.svg --reference "paper, QRNN=78.3"
    """
    references = dict(map(parse_reference, reference or []))
    if out is None and len(runs) > 1:
        raise UsageError("several runs in one picture: say where it goes, --out FILE.")
    with run_errors():
        from quasirnn.plots.figure import require
        from quasirnn.tasks.curves import NAME, draw_curves
        from quasirnn.tasks.run_folder import open_run

        opened = [open_run(run) for run in runs]
        path = out or runs[0] / NAME
        with user_errors():
            require(path)
        draw_curves(opened, path, figure, references)
    print(f"Wrote {path}", file=sys.stderr)


@app.command()
def states(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained classifier.")],
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The text to read; standard input if none.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the text from a file, all of its lines.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .svg file. [default: states.png in RUN]")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Which layer, counted from 1. [default: the last]", min=1)] = None,
    what: Annotated[
        str, typer.Option(metavar="c|h|z|f|o|i", help="Cells, outputs, or one of the gates; f = 1 keeps the old state.")
    ] = "c",
    label: Annotated[
        str | None, typer.Option(help="Whose probability to draw beside it. [default: the last class]")
    ] = None,
) -> None:
    """Draw what a layer holds while it reads a text: the paper's figure of hidden states.

    Words go down, channels across, and the colour is the channel's activation; channels that behave alike stand side
    by side. Beside it the running probability, and the mean forget gate: where it drops, the layer lets go.

    Examples:

    quasirnn plot states runs/imdb "The music is fine, but its main weakness is the story."

    quasirnn plot states runs/imdb --file review.txt --layer 1 --what f --out forget.svg
    """
    with run_errors():
        from quasirnn.plots.figure import require
        from quasirnn.plots.states import hidden_states

        path = out or run / "states.png"
        model = load_sentiment(run)
        with user_errors():
            require(path)
        whole = " ".join(texts([] if text is None else [text], file))
        found = model.states(whole, layer, what, label)
        number = model.training.settings.num_layers if layer is None else layer
        hidden_states(
            path,
            found.words,
            found.values,
            name=what,
            probability=found.probability,
            probability_name=f"p({found.label})",
            forget=found.forget,
            title=f"{what} of layer {number}",
        )
    print(f"Wrote {path}", file=sys.stderr)


@app.command()
def confusion(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained classifier.")],
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Where the texts are. [default: where the training's were]"),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid, test, or the name of a file without its suffix.")] = "test",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .svg file. [default: confusion.png in RUN]")
    ] = None,
) -> None:
    """Evaluate a classifier and draw which class was taken for which.

    Example:

    quasirnn plot confusion runs/imdb --split test --out confusion.svg
    """
    with run_errors():
        import numpy as np

        from quasirnn.plots.confusion import confusion_matrix
        from quasirnn.plots.figure import require

        path = out or run / "confusion.png"
        model = load_sentiment(run)
        with user_errors():
            require(path)
        with progress_of(f"reading {split}") as tick:
            found = model.evaluate(split, data, tick)
        confusion_matrix(path, found.classes, np.array(found.confusion))
    print(f"Wrote {path}", file=sys.stderr)


@app.command()
def attention(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained translator.")],
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The sentence to translate; standard input if none.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the sentence from a file.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .svg file. [default: attention.png in RUN]")
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses that are followed; 1 is greedy.", min=1, max=256)] = 8,
) -> None:
    """Translate a sentence and draw what each character of the translation attended to: source across, target down.

    Example:

    quasirnn plot attention runs/translation "der dritte März neunzehnhundertsiebenundachtzig"
    """
    with run_errors():
        from quasirnn.data.errors import DataError
        from quasirnn.plots.attention import attention_weights
        from quasirnn.plots.figure import require

        path = out or run / "attention.png"
        with user_errors():
            require(path)
        model = load_translator(run)
        whole = " ".join(texts([] if text is None else [text], file))
        (found,) = model.n_best(whole, 1, beam=beam, attention=True)
        if found.attention is None:
            raise DataError("the text is too long for one picture: give one sentence.")
        target = [*found.text, "end"] if found.finished else [*found.text]
        attention_weights(path, list(whole), target, found.attention.numpy())
    print(f"Wrote {path}", file=sys.stderr)


def parse_reference(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name.strip() or not 0 < number < math.inf:
        raise UsageError(f'--reference {text}: must be NAME=VALUE with a positive number, as in "the paper=78.3".')
    return name.strip(), number
