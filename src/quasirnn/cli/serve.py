"""`quasirnn serve`: trained models over HTTP, and the web page."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from quasirnn.errors import UserError
from quasirnn.tasks.console import Precision


def serve(
    run: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Folders of trained models of any task, or names from `quasirnn models`. [default: all installed "
            "models]",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 chooses a free one.", min=0, max=65535)] = 8000,
    queue: Annotated[int, typer.Option(help="Maximum number of waiting requests.", min=1, max=10_000)] = 32,
    deadline: Annotated[
        float, typer.Option(help="Seconds from the arrival of a request to its response.", min=0.1, max=3600)
    ] = 30.0,
    workers: Annotated[int, typer.Option(help="Number of requests processed at the same time.", min=1, max=64)] = 2,
    processes: Annotated[
        int, typer.Option(help="Number of processes, each with its own models and workers.", min=1, max=64)
    ] = 1,
    unix: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A Unix socket to listen on instead of an address.")
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write one line of JSON per response to standard output.")
    ] = False,
    precision: Precision = None,
) -> None:
    """Serve trained models on a web page and over HTTP: classify, continue and translate texts.

    You can give several runs, also of the same task. A request may name the model; otherwise the first one of the task
    is used. After SIGTERM or Ctrl-C, the server answers all accepted requests and exits; a second signal ends it
    immediately. There is no authentication: anyone who can connect can send requests. docs/serving.md describes all
    endpoints and limits.

    Examples:

    quasirnn serve

    quasirnn serve runs/imdb runs/ptb runs/translation

    quasirnn serve runs/imdb --port 0 --workers 1

    quasirnn serve runs/imdb --unix /run/quasirnn/server.sock --processes 4 --access-log
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UserError("serving needs fastapi and uvicorn: pip install 'quasirnn[serve]'")
    from quasirnn.serving.start import serve_runs
    from quasirnn.tasks import shipped

    runs = run or [Path(name) for name in shipped.models()]
    if not runs:
        raise UserError(f"no models to serve. Give folders of trained models, or install ours: {shipped.INSTALL}")
    serve_runs(
        runs,
        host=host,
        port=port,
        unix=unix,
        processes=processes,
        queue=queue,
        deadline=deadline,
        workers=workers,
        access_log=access_log,
        precision=precision,
    )
