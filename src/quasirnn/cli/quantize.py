"""`quasirnn quantize`: an int8 copy of a trained run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from quasirnn.tasks.console import AsJson


def quantize(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    out: Annotated[Path, typer.Option(metavar="RUN8", help="The folder to create.")],
    layers_only: Annotated[
        bool, typer.Option("--layers-only", help="Keep linear layers and embeddings in float32.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make an int8 copy of a run: a quarter of the size, and several times as fast on a CPU with VNNI.

    Use the copy with `evaluate`, `classify`, `translate`, `generate`, `score` and `serve` like any other run. It cannot
    be trained further. The loss in quality depends on the model: compare `quasirnn evaluate` of both.
    """
    from quasirnn.tasks.pipeline import quantize_run

    before, after = quantize_run(run, out, linear=not layers_only, embedding=not layers_only)
    if as_json:
        print(json.dumps({"run": str(out), "bytes": after, "bytes_before": before}))
    else:
        print(f"Wrote {out}: {after / 1e6:.1f} MB ({run}: {before / 1e6:.1f} MB). Next: quasirnn evaluate {out}")
