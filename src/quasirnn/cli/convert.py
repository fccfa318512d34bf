"""`quasirnn convert`: a checkpoint of another project as a run."""

from pathlib import Path
from typing import Annotated

import typer


def convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help=("A file written by torch.save(model.state_dict(), FILE)."))
    ],
    out: Annotated[Path, typer.Option(metavar="RUN", help="The folder to create.")],
    vocabulary: Annotated[
        Path, typer.Option(metavar="FILE", help="The tokens, one per line, in the order of their ids.")
    ],
    zoneout: Annotated[
        float, typer.Option(help="Zoneout probability, which is not part of a state dict.", min=0, max=1)
    ] = 0.0,
) -> None:
    """Convert a QRNN language model of salesforce/awd-lstm-lm or fastai (AWD_QRNN) to a run folder.

    You can use the run with `quasirnn evaluate`, `generate` and `score`. For the layers alone (pytorch-qrnn, fastai),
    use Python: quasirnn.convert(FILE, input_size=..., hidden_size=...). The file is read with weights_only=True, so no
    code in it is run.
    """
    from quasirnn.export.convert_run import convert_run

    convert_run(file, out, vocabulary, zoneout)
    print(f"Wrote {out}. Next: quasirnn evaluate {out} --data DIR")
