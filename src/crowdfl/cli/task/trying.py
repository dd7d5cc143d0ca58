"""`--try`: a task's recipe on a sample of data, before the task is made."""

from collections.abc import Sequence
from typing import Annotated

import typer

from crowdfl.cli.output import clean, waiting
from crowdfl.documents.signed import Definition
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.recipe_check import NOT_TRIED, RecipeTrial, try_recipe

Try = Annotated[
    list[str] | None,
    typer.Option(
        "--try",
        metavar="DATA",
        help="Somebody's data, such as npz:FILE#USER or csv:FOLDER: one pass over it shows whether the task fits. Repeatable.",
    ),
]


def tried(
    data: Sequence[str] | None,
    definition: Definition,
    initial: Weights,
    code: tuple[str | None, str | None, str | None] = (None, None, None),
    *,
    quiet: bool,
) -> list[RecipeTrial]:
    """Each of them, or what does not fit. `code` is what was named for a module, a learner and a loss."""
    module, learner, loss = code
    found = []
    for one in data or ():
        with waiting(f"trying the task on {one}", quiet=quiet):
            found.append(try_recipe(definition, initial, one, module, learner=learner, loss=loss))
    return found


def trial_lines(trials: Sequence[RecipeTrial], definition: Definition) -> list[str]:
    lines = [line for one in trials for line in (one.told, *(f"note: {words}" for words in one.warnings))]
    return lines or ([] if Recipe.of(definition.training).takes_functions else [NOT_TRIED])


def tell_trials(trials: Sequence[RecipeTrial], definition: Definition, *, as_json: bool) -> None:
    """On standard error: a command's answer stands alone on standard output."""
    for line in () if as_json else trial_lines(trials, definition):
        typer.echo(clean(line), err=True)
