"""The options that name code of the user's own, which several commands have."""

from typing import Annotated

import typer

from crowdfl.cli.output import clean
from crowdfl.learning.models.own_code import code_file

Module = Annotated[
    str | None, typer.Option(help="The task's own torch module, which you agree to run: package.module:Class.")
]
OwnLearnerName = Annotated[
    str | None,
    typer.Option(
        "--learner",
        help="The task's own learner, which you agree to run: package.module:Class, found in this folder or installed.",
    ),
]
OwnLossName = Annotated[
    str | None, typer.Option("--loss", help="The task's own loss, which you agree to run: package.module:function.")
]


def tell_code(*names: str | None) -> None:
    """Load the code, and say on stderr which file it came from: two folders may hold modules of one name."""
    for name in names:
        if name:
            typer.echo(clean(f"your code: {name} from {code_file(name)}"), err=True)
