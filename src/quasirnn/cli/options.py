"""Options that several commands have."""

from typing import Annotated

import typer

Precision = Annotated[
    str | None,
    typer.Option(
        metavar="float32|bfloat16|int8",
        help="Precision to compute in. int8 is faster on a CPU, bfloat16 only on one with bfloat16 instructions. "
        "[default: as saved]",
    ),
]
