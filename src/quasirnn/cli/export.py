"""`quasirnn export`: a trained model as a file for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from quasirnn.errors import UserError


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="The ONNX file to write.")] = None,
    step: Annotated[
        bool,
        typer.Option("--step", help=("Language models: export a single step, for generation; the file has no loop.")),
    ] = False,
) -> None:
    """Export a trained model to ONNX, with standard operators and dynamic time and batch sizes.

    A classifier maps tokens and lengths to logits. A language model maps tokens and a state, initially zeros, to
    logits and the next state. A translator becomes two files, FILE.encoder.onnx and FILE.step.onnx;
    examples/onnx_translate.py decodes with them. Tokens are the ids in RUN/vocabulary.json.
    """
    if onnx is None:
        raise UserError("no output file given: add --onnx FILE")
    from quasirnn.export.onnx import export as export_onnx
    from quasirnn.tasks.pipeline import load

    for file in export_onnx(load(run).model, onnx, step=step):
        print(file)
