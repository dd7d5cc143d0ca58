"""`--try DATA`: a task tried on somebody's data, as `crowdfl task` shows it."""

from collections.abc import Sequence

import typer

from crowdfl.cli.output import clean
from crowdfl.cli.waiting import waiting
from crowdfl.documents.signed import Definition
from crowdfl.learning.datasets.sources import each_person
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.recipe_check import NOT_TRIED, RecipeTrial, norm_advice, try_recipe


def tried(
    data: Sequence[str] | None,
    definition: Definition,
    initial: Weights,
    code: tuple[str | None, str | None] = (None, None),
    *,
    quiet: bool,
) -> list[RecipeTrial]:
    """Each of them, or what does not fit. `code` is what was named for a learner and a loss."""
    learner, loss = code
    found = []
    for one in (spec for text in data or () for spec in each_person(text)):
        with waiting(f"trying the task on {one}", quiet=quiet):
            found.append(try_recipe(definition, initial, one, learner, loss=loss))
    return found


def trial_lines(trials: Sequence[RecipeTrial], definition: Definition) -> list[str]:
    lines = [line for one in trials for line in (one.told, *(f"note: {words}" for words in one.warnings))]
    lines += [advice] if (advice := norm_advice(trials, definition)) else []
    return lines or ([] if Recipe.of(definition.training).takes_functions else [NOT_TRIED])


def tell_trials(trials: Sequence[RecipeTrial], definition: Definition, *, as_json: bool) -> None:
    """On standard error: a command's answer stands alone on standard output."""
    for line in () if as_json else trial_lines(trials, definition):
        typer.echo(clean(line), err=True)
