"""`crowdfl.connect`: a requester's servers, on which a program creates tasks as `simulate` runs them."""

import inspect
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from crowdfl.campaigns.task import Task
from crowdfl.documents.signed import Definition
from crowdfl.durations import seconds_in
from crowdfl.effects import nothing_words, require_effect
from crowdfl.errors import PackageMissing, SettingsError
from crowdfl.learning.models.forms import ModelForm, dictionary_form
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.defining import defined
from crowdfl.roles.requester import Requester
from crowdfl.settings import FUNCTIONS, LEAST_PARTICIPANTS, TORCH_FUNCTIONS, TaskOptions, TaskSettings, option_words
from crowdfl.simulation.arguments import require_arguments
from crowdfl.simulation.result import SimulationResult
from crowdfl.storage.model_files import initial_model
from crowdfl.storage.settings_file import read_task
from crowdfl.storage.task_files import OF_FUNCTIONS, readers_of
from crowdfl.task_tables import OWN_SETTINGS

_WORDS = ("purpose", "terms", "readers")
_WEEK = 604800.0
_MOST_SAMPLES = 10_000  # of one participant, where nobody says how many


class Servers:
    """Servers that a requester creates tasks on; made by `crowdfl.connect`, or by `crowdfl.local_servers` for a trial.

    Attributes:
        poll_seconds: How often `task.wait` looks.
    """

    poll_seconds = 1.0
    _usual: Mapping[str, Any] = {"min_participants": LEAST_PARTICIPANTS}  # of a task; phones refuse one with fewer
    _said: Mapping[str, Any] = {}  # of what people read
    _claim_window: float = _WEEK

    def __init__(self, settings: str | os.PathLike[str]) -> None:
        self._path, self._open = Path(settings), ExitStack()
        self._requester: Requester | None = None

    @property
    def requester(self) -> Requester:
        """The requester's own side, with its keys."""
        if self._requester is None:
            opening = _opening()
            self._requester = self._open.enter_context(opening.open_requester(opening.RequesterFile.read(self._path)))
        return self._requester

    def create(
        self,
        like: SimulationResult | str | os.PathLike[str] | None = None,
        *,
        initial: Any = None,  # noqa: ANN401 -- any form that a model has
        rounds: int | None = None,
        profile: str | None = None,
        personalize: Sequence[str] = (),
        purpose: str | None = None,
        terms: str | None = None,
        readers: str | None = None,
        claim_window: float | str | None = None,
        plan: Mapping[str, Any] | None = None,
        **settings: Unpack[TaskOptions],
    ) -> Task:
        """Create a task for functions of people's own: whoever is invited takes part with `crowdfl.join(...).run`.

        The names are those of `crowdfl.simulate`.

        Args:
            like: What was simulated, or a task file: its settings hold, but for those that are set here.
            initial: The model that everyone starts from, in any form that `simulate` takes.
            rounds: How many rounds; 5, or as many as `like` has.
            profile: "shares" (the default), "hardened" or "paper".
            personalize: Layers of `initial` that stay with each person, and are not in the task's model.
            purpose: What the model is for; whoever is invited reads it before joining.
            terms: On which terms people take part.
            readers: Who reads the averages and the final model; by default, as the profile has it.
            claim_window: How long after the last day of rounds rewards can be claimed, in seconds or as in "7 days"; a week.
            plan: When people join and when rounds are: the table [plan] of a task file, such as `{"start_with": 20}`.
            **settings: Any setting of a task (`TaskOptions`), such as `pay="equal", budget="36.00"`. `max_samples`,
                `max_norm` and `clip` do not follow from data here: `like` a simulation has them.

        Returns:
            The task. On real servers `task.fund()` announces the payment that a `budget` needs.

        Raises:
            SettingsError: A setting is wrong, or the texts that people read are missing; the error names it.
        """
        require_arguments(type(self).create, settings, 0)
        asked = {k: v for k, v in (("rounds", rounds), ("profile", profile)) if v is not None} | dict(settings)
        place, found = _found(like)
        words = {"purpose": purpose, "terms": terms, "readers": readers, "plan": plan}
        given = dict(self._said) | found | {name: value for name, value in words.items() if value is not None}
        given.setdefault("readers", readers_of(str(asked.get("profile", "shares"))))
        if missing := [name for name in _WORDS if not given.get(name) or "SAY HERE" in str(given[name])]:
            raise SettingsError(f"`{missing[0]}` is missing: whoever is invited reads it before joining")
        model = initial_model(initial)
        form = None if model is None else ModelForm.of(model, personalize)
        if form is not None and found.get("training", OF_FUNCTIONS).get("learner") in (FUNCTIONS, TORCH_FUNCTIONS):
            about = dict(OF_FUNCTIONS) | found.get("training", {})
            given["training"] = about | ({"learner": TORCH_FUNCTIONS} if form.is_torch else {})
        if form is None and "training" not in given:
            raise SettingsError("`initial` is missing: the model that everyone starts from, as `simulate` takes it")
        arrays = None if form is None else dict(zip(form.shape.names, form.arrays(model, _FINITE), strict=True))
        tables: dict[str, Any] = {} if found.keys() & OWN_SETTINGS.keys() else {str(asked.get("profile", "shares")): {}}
        definition, start = defined(place, {"settings": {}, **tables, **given}, initial=arrays)
        chosen = self._settings(definition.settings, asked, is_new=not found)
        window = self._seconds_to_claim(chosen, claim_window, definition)
        until = definition.rounds_until + math.ceil(window)
        definition = replace(definition, settings=chosen, plan=definition.plan.require(chosen), claims_until=until)
        profile_named(chosen.profile).check(chosen, definition.spec.parameters)
        form = dictionary_form(definition.shape) if form is None else form.ordered_as(definition.shape)
        return self._made(Task(self, definition, form, start, initial=model, personalize=personalize))

    def _seconds_to_claim(self, chosen: TaskSettings, asked: float | str | None, found: Definition) -> float:
        """What is asked for, what the file says, or what is usual here; none where nothing is paid."""
        if chosen.budget is None:
            if asked is not None:
                raise SettingsError(nothing_words("claim_window", "a `budget`"))
            return 0.0
        if asked is None:
            return found.claim_window or self._claim_window
        seconds = seconds_in(asked) if isinstance(asked, str) else asked
        if seconds is None:
            raise SettingsError(f'`claim_window` is {asked!r}; expected seconds, or a length of time, as in "7 days"')
        return seconds

    def _settings(self, found: TaskSettings, asked: Mapping[str, Any], *, is_new: bool) -> TaskSettings:
        """What the file says, what is asked for, and what is usual here for the rest."""
        before = {name: getattr(found, name) for name in found.model_fields_set if name != "sigma"}
        usual = dict(self._usual) | ({"max_samples": _MOST_SAMPLES} if is_new else {})
        if is_new and asked.get("profile", "shares") != "shares" and asked.get("budget") is None:
            usual["lanes"] = 0  # more room for weights
        most = {**before, **asked}.get("max_participants", TaskSettings.model_fields["max_participants"].default)
        if most < usual.get("min_participants", most):
            del usual["min_participants"]
        made = TaskSettings.of(**usual | before | dict(asked))
        require_effect(made, asked)
        return made

    def _made(self, task: Task) -> Task:
        _ = task.id  # posted now
        return task

    def post(self, definition: Definition, start: Weights, _people: int) -> Definition:
        """Have keys made and post the task; for `Task`."""
        return self.requester.definition(self.requester.create(definition, start))

    def invite(
        self,
        task: Task,
        count: int,
        folder: str | Path | None,
        days: float,
        *,
        initial: Any,  # noqa: ANN401 -- for servers of one's own
        personalize: Sequence[str],
    ) -> list[str]:
        """Write invitations; for `Task`."""
        opening = _opening()
        own = opening.RequesterFile.read(self._path)
        place = own.folder / "invitations" / task.id[:16] if folder is None else Path(folder)
        return [str(path) for path in opening.write_invitations(own, self.requester, task.id, place, count, days)]

    def fund(self, task: str, millionths: int, _currency: str, name: str | None) -> str:
        """Announce a payment; for `Task`."""
        return self.requester.fund(task, millionths, name)

    def require_going(self, task: Task) -> None:
        """Raise what keeps a task from going on, as far as this program knows; for `Task`."""

    def are_through(self, _task: Task, _status: Mapping[str, Any]) -> bool:
        """Whether everyone whom this program has started is through with an ended task; for `Task`."""
        return True

    def task(self, task: str) -> Task:
        """A task that was created before, by its id."""
        return Task(self, self.requester.definition(task))

    def tasks(self) -> list[Task]:
        """All of them, the last one first."""
        return [self.task(name) for name in self.requester.tasks()]

    def close(self) -> None:
        """Close the connections; tasks go on."""
        self._requester = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._path}>"


_FINITE = "`initial` is what everyone starts from, and takes finite numbers"
Servers.create.__doc__ = f"{inspect.getdoc(Servers.create)}\n\nThe settings of a task:\n{option_words()}"


def connect(settings: str | os.PathLike[str]) -> Servers:
    """The servers that a requester's settings file names, to create tasks on as `crowdfl.simulate` runs them.

    `task = crowdfl.connect("requester/settings.toml").create(initial=model, rounds=5, purpose="...", terms="...")`, then
    `task.invite(20)`, `task.wait()`, `task.model`. `crowdfl.local_servers()` is the same on this machine, for a trial.

    Args:
        settings: The file, as `crowdfl init` writes it.
    """
    _opening().RequesterFile.read(Path(settings))  # what is wrong with it is said at once
    return Servers(settings)


def _found(like: SimulationResult | str | os.PathLike[str] | None) -> tuple[object, dict[str, Any]]:
    """A task file's contents, and what errors call it."""
    if like is None:
        return "this task", {}
    if isinstance(like, SimulationResult):
        found = tomllib.loads(like.task_file())
        return "this task", {name: value for name, value in found.items() if name not in _WORDS}
    if not isinstance(like, str | os.PathLike):
        raise SettingsError(
            f"`like` is a {type(like).__name__}; expected what `crowdfl.simulate` has returned, or a task file's path. A model "
            "is passed as `initial`"
        )
    return like, read_task(Path(like))


def _opening() -> Any:  # noqa: ANN401
    """Loaded late: `import crowdfl` needs no network."""
    try:
        from crowdfl.services.client import opening
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("crowdfl"):
            raise
        raise PackageMissing(f"servers are called with {missing.name}: `pip install 'crowdfl[participant]'`") from None
    return opening
