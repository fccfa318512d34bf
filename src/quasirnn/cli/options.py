"""Options that several commands have."""

from typing import Annotated

import typer

Precision = Annotated[
    str | None,
    typer.Option(
        metavar="float32|bfloat16|int8",
        help="What to compute in: less is faster on a CPU and a little less exact. [default: as the run was saved]",
    ),
]
