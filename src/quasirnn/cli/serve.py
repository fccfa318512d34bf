"""`quasirnn serve`: trained models over HTTP, and the web page."""

import logging
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from quasirnn.cli.errors import UsageError, user_errors


def serve(
    run: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of trained models, of any task.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8000,
    queue: Annotated[int, typer.Option(help="The most requests that wait.", min=1, max=10_000)] = 32,
    deadline: Annotated[
        float, typer.Option(help="Seconds from the arrival of a request to its answer.", min=0.1, max=3600)
    ] = 30.0,
    workers: Annotated[int, typer.Option(help="Threads that work on requests.", min=1, max=64)] = 2,
) -> None:
    """Serve trained models on a web page and over HTTP: classify, continue and translate texts.

    Several runs may be given, of the same task too: a request names the model, or gets the first of its task. SIGTERM
    or Ctrl-C ends it when all that was accepted is answered, a second one at once. There is no authentication: who can
    connect can ask. docs/serving.md has all paths and limits.

    Examples:

    quasirnn serve runs/imdb runs/ptb runs/translation

    quasirnn serve runs/imdb --port 0 --workers 1
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UsageError("serving needs fastapi and uvicorn: pip install 'quasirnn[serve]'")
    from quasirnn.serving.start import serve_runs

    logging.basicConfig(level=logging.WARNING, format="quasirnn: %(message)s")
    with user_errors():
        serve_runs(run, host=host, port=port, queue=queue, deadline=deadline, workers=workers, say=say)


def say(sentence: str) -> None:
    print(f"quasirnn: {sentence}", file=sys.stderr, flush=True)
