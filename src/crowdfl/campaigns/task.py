"""A requester's task in Python: invite, fund, wait, read the model and the books."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from crowdfl.campaigns.following import followed, state_words
from crowdfl.campaigns.report import TaskReport
from crowdfl.documents.signed import Definition
from crowdfl.errors import NotReady, SettingsError
from crowdfl.learning.functions import (
    EvaluateFunction,
    FunctionRaised,
    TrainingInfo,
    central_metrics,
    require_functions,
)
from crowdfl.learning.models.forms import ModelForm, dictionary_form
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.profile import Audience
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.following import Following
from crowdfl.roles.requester import Requester
from crowdfl.settings import TORCH_FUNCTIONS, from_millionths, to_millionths

ENDED = ("finished", "cancelled", "settled")
_PAYMENT = "all-rounds"  # one name: the same payment, however often it is announced


class TaskServers(Protocol):
    """What a task asks of the servers that it is on."""

    poll_seconds: float

    @property
    def requester(self) -> Requester: ...
    def post(self, definition: Definition, start: Weights, people: int, /) -> Definition: ...
    def invite(
        self,
        task: "Task",
        count: int,
        folder: str | Path | None,
        days: float,
        *,
        initial: Any,  # noqa: ANN401 -- any form that a model has
        personalize: Sequence[str],
    ) -> list[str]: ...
    def fund(self, task: str, millionths: int, currency: str, name: str | None, /) -> str: ...
    def require_going(self, task: "Task") -> None: ...
    def are_through(self, task: "Task", status: Mapping[str, Any], /) -> bool: ...


@dataclass(frozen=True, eq=False)
class TaskRound:
    """What `on_round` of `Task.wait` is called with: a round that is averaged, as its requester sees it.

    Attributes:
        number: From 1.
        participants: How many uploads came.
        model: The round's model, in the form of the initial one.
        central: What `evaluate_central` returned.
        seconds: Since the round before was seen, or since `wait` was called.
    """

    number: int
    participants: int
    model: Any = field(repr=False)
    central: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def numbers(self) -> dict[str, float]:
        """All metrics of the round by name, as of a simulation: `central_loss`."""
        return {f"central_{name}": value for name, value in self.central.items()}

    def row(self) -> dict[str, float]:
        """The round as one flat row of numbers, for a data frame."""
        counted = {"round": self.number, "participants": self.participants}
        return {**counted, **self.numbers, "seconds": self.seconds}


class Task:
    """A task on servers, as its requester has it; made by `servers.create` or `servers.task`."""

    def __init__(
        self,
        servers: TaskServers,
        definition: Definition,
        form: ModelForm | None = None,
        start: Weights | None = None,
        *,
        initial: Any = None,  # noqa: ANN401 -- any form that a model has
        personalize: Sequence[str] = (),
    ) -> None:
        self.servers, self._definition = servers, definition
        self._form = form or dictionary_form(
            definition.shape, torch=definition.training.get("learner") == TORCH_FUNCTIONS
        )
        self._start = start
        self._initial = initial
        self._personalize = tuple(personalize)
        self._history: dict[int, TaskRound] = {}
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """Its id, under which the command line knows it too."""
        self._post(0)
        return self._definition.task

    @property
    def settings(self) -> Any:  # noqa: ANN401 -- TaskSettings; a reader of help() needs no import
        """Its settings, a `TaskSettings`."""
        return self._definition.settings

    @property
    def history(self) -> tuple[TaskRound, ...]:
        """The rounds that `wait` has told of."""
        return tuple(self._history[number] for number in sorted(self._history))

    def _post(self, people: int) -> None:
        """On the first use: a task of one's own servers then waits for everyone who is invited."""
        with self._lock:
            if self._start is None:
                return
            self._definition = self.servers.post(self._definition, self._start, people)
            self._start = None

    def invite(self, count: int, folder: str | Path | None = None, *, days: float = 30.0) -> list[str]:
        """Write single-use invitations, a file for each person, for `crowdfl.join`.

        Whoever has a file first can join with it: hand each to one person, by a way that others do not see.

        Args:
            count: How many.
            folder: Where to write them; by default a folder beside the requester's settings.
            days: How long they are good.

        Returns:
            The files' paths.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise SettingsError(f"`count` is {count!r}; expected how many people to invite, 1 or more")
        self._post(count)
        return self.servers.invite(self, count, folder, days, initial=self._initial, personalize=self._personalize)

    def fund(self, amount: str | None = None) -> str:
        """Announce a payment into the task's escrow. It counts once the platform's operator has confirmed it.

        Args:
            amount: How much, such as "36.00"; by default, what all rounds cost: then a repeat is the same payment.

        Returns:
            The deposit's name, which the operator needs. A task of `crowdfl.local_servers` is funded when it is made.
        """
        settings = self._definition.settings
        whole = self._definition.plan.whole_cost(settings)
        if not whole:
            raise SettingsError("the task pays nothing: it has no `budget`")
        if amount is None:
            return self.servers.fund(self.id, whole, settings.currency, _PAYMENT)
        return self.servers.fund(self.id, to_millionths(amount), settings.currency, None)

    def wait(
        self,
        until: str | None = None,
        *,
        timeout: float | None = None,
        evaluate_central: EvaluateFunction | None = None,
        on_round: Callable[[TaskRound], bool | None] | None = None,
        progress: bool | None = None,
    ) -> "Task":
        """Follow the task to its end, and show where it stands. What was not awaited goes on all the same.

        Args:
            until: "finished": until all rounds are over and the model is there. "settled": until rewards are claimed and the
                rest of the money is returned, which real people take days for. By default "finished", and on servers of
                your own until everyone whom you have started is through.
            timeout: Seconds to wait at most; then it is a `NotReady`, and `wait` can be called again.
            evaluate_central: Evaluates each round's model, on a test set of your own: `f(model)` or `f(model, info)`.
            on_round: Called with a `TaskRound` after each round whose model the requester reads: each in `shares`, the last one
                in the other profiles. If it returns True, the task is cancelled, and the model stays.
            progress: True shows it, False does not; None, the default, shows it on a terminal and in a notebook.

        Returns:
            The task itself, so that `task.wait().model` is the model.

        Raises:
            NotReady: The time is over.
            ServiceUnavailable: A server of your own has ended; the error has the last line of its log.
            What a function raised, of yours or of somebody whom you have started.
        """
        if until not in (None, "finished", "settled"):
            raise SettingsError(f'`until` is {until!r}; expected "finished" or "settled"')
        require_functions(len, None, evaluate_central=evaluate_central, on_round=on_round)
        following = _Following(
            self, evaluate_central, on_round, None if timeout is None else time.monotonic() + timeout
        )
        try:
            with followed(progress, self._definition.settings.rounds) as shown:

                def tell(what: str, status: Mapping[str, Any]) -> None:
                    if what == "status":
                        shown.tell(state_words(status), status, following.curves)

                sleep = following.sleep
                campaign = Following(self.servers.requester, sleep, tell, poll_seconds=self.servers.poll_seconds)
                campaign.watch(self.id, lambda status: following.look(status, until))
        except FunctionRaised as raised:
            error = raised.error
        else:
            return self
        raise error

    @property
    def status(self) -> dict[str, Any]:
        """Where it stands now, as SP says it: `state`, `enrolled`, `rounds` and more."""
        return dict(self.servers.requester.sp.status(self.id))

    @property
    def model(self) -> Any:  # noqa: ANN401 -- any form that a model has
        """The newest model that the requester can read, in the form of the initial one; `NotReady` before there is one."""
        return self._form.model(self.servers.requester.model(self.id))

    def report(self) -> TaskReport:
        """What came of it: people, consent, accuracy, money, what each party learnt, what went wrong."""
        return TaskReport.of(self.servers.requester, self.id)

    def cancel(self) -> None:
        """End it without further rounds; what was earned stays claimable, and the rest of the money is returned."""
        self.servers.requester.order(self.id, "cancel")

    def pause(self) -> None:
        """Nothing happens until `resume`."""
        self.servers.requester.order(self.id, "pause")

    def resume(self) -> None:
        """Go on after `pause`."""
        self.servers.requester.order(self.id, "resume")

    def read(self, number: int, participants: int, seconds: float, evaluate: EvaluateFunction | None) -> TaskRound:
        """A round that is averaged; for `wait`."""
        flat = self.servers.requester.read(self.id, number).model
        model = self._form.model(self._definition.shape.arrays(flat))
        info = TrainingInfo.of(number, self._definition.settings.rounds, "", 0)
        central = {} if evaluate is None else central_metrics(evaluate, model, info)
        self._history[number] = found = TaskRound(number, participants, model, central, seconds)
        return found

    def is_readable(self, number: int) -> bool:
        """Whether the requester reads the average of this round; for `wait`."""
        settings = self._definition.settings
        usual = profile_named(settings.profile).audience(final=number == settings.rounds)
        return Audience.REQUESTER in usual

    def __repr__(self) -> str:
        settings = self._definition.settings
        paid = (
            f", {from_millionths(to_millionths(settings.budget)):f} {settings.currency} a round"
            if settings.budget
            else ""
        )
        made = "made when people are invited" if self._start is not None else self._definition.task[:16]
        return f"<Task {made}: {settings.profile}, {settings.rounds} rounds{paid}>"


@dataclass
class _Following:
    """What `wait` does at each look."""

    task: Task
    evaluate_central: EvaluateFunction | None
    on_round: Callable[[TaskRound], bool | None] | None
    end: float | None
    curves: dict[str, list[float]] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)

    def look(self, status: Mapping[str, Any], until: str | None) -> bool:
        servers = self.task.servers
        servers.require_going(self.task)
        self._tell_rounds(status)
        if status["state"] not in ENDED:
            return False
        if until == "finished" or (until is None and servers.are_through(self.task, status)):
            return True
        return bool(status["state"] == "settled")

    def sleep(self, seconds: float) -> None:
        if self.end is not None and time.monotonic() + seconds > self.end:
            raise NotReady("the task goes on: call `wait` again, or look at `task.report()`")
        time.sleep(seconds)

    def _tell_rounds(self, status: Mapping[str, Any]) -> None:
        if self.evaluate_central is None and self.on_round is None:
            return
        known = {one.number for one in self.task.history}
        for one in status["rounds"]:
            number = one["number"]
            if one["state"] != "rewarded" or number in known or not self.task.is_readable(number):
                continue
            now = time.monotonic()
            found = self.task.read(number, one["uploads"], now - self.since, self.evaluate_central)
            self.since = now
            for name, value in found.numbers.items():
                self.curves.setdefault(name, []).append(value)
            if self.on_round is not None and self.on_round(found) and status["state"] not in ENDED:
                self.task.cancel()
                return


def with_people(definition: Definition, people: int) -> Definition:
    """The first round of this task waits for so many people, where its plan says nothing else, and all fit."""
    settings, plan = definition.settings, definition.plan
    if plan.start_with is not None or plan.start_at is not None or people < settings.min_participants:
        return definition
    if people > settings.max_participants:
        chosen = {name: getattr(settings, name) for name in settings.model_fields_set if name != "sigma"}
        settings = type(settings).of(**chosen | {"max_participants": people})
    return replace(definition, settings=settings, plan=plan.changed(start_with=people).require(settings))
