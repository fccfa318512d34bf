"""`quasirnn convert`: a checkpoint of another project as a run."""

from pathlib import Path
from typing import Annotated

import typer

from quasirnn.cli.errors import user_errors


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What torch.save(model.state_dict(), FILE) wrote.")],
    out: Annotated[Path, typer.Option(metavar="RUN", help="The folder to make.")],
    vocabulary: Annotated[
        Path, typer.Option(metavar="FILE", help="The tokens, one a line, in the order of their numbers.")
    ],
    zoneout: Annotated[
        float, typer.Option(help="Zoneout probability, which is not part of a state dict.", min=0, max=1)
    ] = 0.0,
) -> None:
    """Convert a QRNN language model of salesforce/awd-lstm-lm or of fastai (AWD_QRNN) into a run of ours.

    `quasirnn evaluate`, `generate` and `score` take the run. For layers alone, of pytorch-qrnn or fastai, use Python:
    quasirnn.convert(FILE, input_size=..., hidden_size=...). Nothing in a file is run: weights_only=True reads it.
    """
    with user_errors():
        from quasirnn.export.convert_run import convert_run

        convert_run(file, out, vocabulary, zoneout)
        print(f"{out}: made. Next: quasirnn evaluate {out} --data DIR")
