"""`quasirnn generate`: a language model writes, token by token."""

from pathlib import Path
from typing import Annotated

import typer

from quasirnn.cli.errors import run_errors, user_errors
from quasirnn.cli.runs import checked, load_language_model, reader_may_leave


def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained language model.")],
    prompt: Annotated[str, typer.Option(help="The text to continue; nothing begins a line.")] = "",
    length: Annotated[int, typer.Option(help="Tokens to write: words, or characters.", min=0)] = 100,
    temperature: Annotated[
        float, typer.Option(help="Under 1 more usual, over 1 more surprising; 0 always the likeliest.", min=0)
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Choose among the k likeliest tokens only.", min=1)] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Choose among the likeliest tokens that together have probability p.", min=0, max=1),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed writes the same text; none: another each time.")
    ] = None,
) -> None:
    """Let a language model continue a text. It appears as it is drawn; memory stays the same however long it gets.

    Examples:

    quasirnn generate runs/ptb --prompt "the company said" --length 60 --temperature 0.8 --seed 1

    quasirnn generate runs/ptb --length 1000000 > long.txt
    """
    with run_errors():
        from quasirnn.models import Sampler

        prompt = checked(prompt)
        model = load_language_model(run)
        with user_errors():
            Sampler(temperature, top_k, top_p, seed)
        pieces = model.stream(prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        with reader_may_leave():
            print(prompt, end="", flush=True)
            for piece in pieces:
                print(piece, end="", flush=True)
            print()
