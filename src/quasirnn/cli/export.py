"""`quasirnn export`: a trained model as a file for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from quasirnn.cli.errors import UsageError, user_errors


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="The ONNX file to write.")] = None,
    step: Annotated[
        bool, typer.Option("--step", help="Language models: one token at a time, for generation; no loop inside.")
    ] = False,
) -> None:
    """Write a trained model as ONNX, for onnxruntime and others: standard operators, dynamic time and batch.

    A classifier takes tokens and lengths and gives logits. A language model takes tokens and a state, zeros at first,
    and gives logits and the next state. A translator becomes two files, FILE.encoder.onnx and FILE.step.onnx;
    examples/onnx_translate.py decodes with them. The tokens are numbers of RUN/vocabulary.json.
    """
    with user_errors():
        if onnx is None:
            raise UsageError("say what to write: --onnx FILE")
        from quasirnn.export.onnx import export as export_onnx
        from quasirnn.tasks.pipeline import load

        for file in export_onnx(load(run).model, onnx, step=step):
            print(file)
