"""`crowdfl.join`: take part in a real campaign with somebody's own two functions."""

import html
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from crowdfl.documents.signed import Definition
from crowdfl.errors import NotReady, PackageMissing, SettingsError, TakingPartStopped
from crowdfl.learning.functions import (
    NOT_METRICS,
    EvaluateFunction,
    FunctionRaised,
    FunctionTrainer,
    TrainFunction,
    require_functions,
)
from crowdfl.learning.models.forms import (
    ModelForm,
    dictionary_form,
    entry_array,
    safetensors_arrays,
    write_safetensors,
)
from crowdfl.learning.models.shape import Weights
from crowdfl.notebook import in_notebook
from crowdfl.privacy import AverageNoise, PrivacyLedger, RoundPrivacy
from crowdfl.results import RunResult
from crowdfl.roles.participant.agent import Agent
from crowdfl.roles.participant.event_words import event_words
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import Blobs
from crowdfl.settings import TORCH_FUNCTIONS, ParticipantSettings, TaskSettings, from_millionths
from crowdfl.storage.model_files import initial_model
from crowdfl.tables import html_table, text_table
from crowdfl.text import printable_lines

if TYPE_CHECKING:
    from crowdfl.services.client.opening import OwnInvitation

_ONE_AT_A_TIME = threading.Lock()  # functions of several people of one program may share a network
_OWN_SECONDS = 0.3  # between two looks, at servers of this program's own
_QUIET = ("waiting",)  # of what happens, what is shown and not kept
_EVENT = re.compile("rounds/([0-9]+)/event-(.+)")  # the rest is kept in the home: a later program shows it too
_TROUBLES = ("refused", "nothing to contribute", "upload rejected", "reward refused", "given up")


@dataclass(frozen=True)
class JoinedRound:
    """One round, as this participant saw it.

    Attributes:
        number: From 1.
        samples: How many samples it trained on; None if it did not train.
        metrics: What `evaluate` returned for the round's average; the last average is for the requester alone.
        reward: What it earned, if the task pays rewards.
        trouble: Why its update is not in the average, or not paid.
        privacy: In a task with `epsilon`, what the round has cost, and what noise did to the average, if it was read.
    """

    number: int
    samples: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    reward: Decimal | None = None
    trouble: str = ""
    privacy: RoundPrivacy | None = None

    def row(self) -> dict[str, float]:
        """The round as one flat row of numbers, for a data frame; what there was not has no entry."""
        samples = {} if self.samples is None else {"samples": self.samples}
        reward = {} if self.reward is None else {"reward": float(self.reward)}
        cost = {} if self.privacy is None else self.privacy.row()
        return {"round": self.number} | samples | dict(self.metrics) | cost | reward


@dataclass(frozen=True, eq=False, repr=False)
class JoinResult(RunResult):
    """What became of taking part. Printed, or as the last line of a notebook's cell, it is a table of the rounds.

    Attributes:
        task: The task's id.
        who: The name that this participant went by.
        state: The task's state at the end: "finished", "cancelled", "settled", or "left".
        history: The rounds that it had to do with, in order.
        model: The newest average that it has read, in the form that its functions know, with what stays here (`personalize`).
        paid: What was claimed and accepted; None without rewards, or before the claim.
        privacy: In a task with `epsilon`, what this device has charged and spent; None without noise.
    """

    counted: ClassVar[str] = "samples"
    task: str
    who: str
    state: str
    history: tuple[JoinedRound, ...]
    model: Any
    paid: Decimal | None
    privacy: PrivacyLedger | None = None

    @property
    def rewards(self) -> dict[int, Decimal]:
        """What was earned, by round."""
        return {one.number: one.reward for one in self.history if one.reward is not None}

    def __str__(self) -> str:
        paid = [] if self.paid is None else [f"paid: {self.paid:f}"]
        cost = [] if self.privacy is None else self.privacy.lines()
        return "\n".join([text_table(*self._table()), f"the task is {self.state}", *paid, *cost])

    def __repr__(self) -> str:
        return f"<JoinResult: {len(self.history)} rounds as {self.who}>\n{self}"

    def _repr_html_(self) -> str:
        paid = "" if self.paid is None else f"; paid: {self.paid:f}"
        cost = "" if self.privacy is None else "".join(f"<p>{html.escape(line)}</p>" for line in self.privacy.lines())
        return f"{html_table(*self._table())}<p>the task is {html.escape(self.state)}{paid}</p>{cost}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        metrics = self._metric_names()
        rows = [
            [
                str(one.number),
                "-" if one.samples is None else str(one.samples),
                *(f"{one.metrics[name]:.4g}" if name in one.metrics else "-" for name in metrics),
                "-" if one.reward is None else f"{one.reward:f}",
                one.trouble,
            ]
            for one in self.history
        ]
        return ["round", "samples", *metrics, "reward", ""], rows


@dataclass(frozen=True)
class AcceptedInvitation:
    """An invitation that was agreed to; `run` takes part."""

    invitation: ParticipantSettings = field(repr=False)
    home: Path
    least_participants: int | None = None
    agree: str | None = None
    language: str = ""
    own: "OwnInvitation | None" = None  # of this program's own servers

    def run(
        self,
        train: TrainFunction,
        evaluate: EvaluateFunction | None = None,
        data: Any = None,  # noqa: ANN401 -- handed on as it is
        *,
        initial: Any = None,  # noqa: ANN401 -- any form that a model has
        personalize: Sequence[str] = (),
        claim: bool = True,
        progress: bool = True,
    ) -> JoinResult:
        """Join and take part until the task ends; after an interruption, continue where it stopped.

        The functions are those of `crowdfl.simulate`. Nothing but encrypted or shared updates leaves this machine. Rounds wait
        for others: `start` takes the same, and does not wait for the end.

        Args:
            train: `train(model, data)`, `train(model)` or `train(model, data, info)`: returns the trained model,
                `(model, samples)`, or an `Update`.
            evaluate: `evaluate(model, data)`: a dictionary of numbers, a number, or None. It sees each average but the last.
            data: Handed to the functions as it is; leave it out if they know where to find it.
            initial: As `simulate` takes it, for the form that the functions want, such as `network.state_dict()`. The task says
                what everyone starts from: its numbers are not used, but for integers, which are not averaged. Without it
                the task's own names decide: a dictionary of float64 arrays, where they have none a list, of one that array
                itself; with `form = "torch"` in the task's [training] section, tensors of float32.
            personalize: Layers of `initial` that stay on this machine (FedPer): names, or patterns such as `head.*`. The task's
                model is without them. They are kept in the home, from round to round and after an interruption.
            claim: Claim the rewards once the task has ended; False leaves that to `crowdfl participant claim`.
            progress: Show what happens, line by line.

        Returns:
            The rounds, what was earned and paid, and the newest average.

        What your functions raise comes out as it is, with a note which round it was; run it again to continue.
        """
        require_functions(train, evaluate)
        return self._run(train, evaluate, data, initial, personalize, claim=claim, tell=_teller(shown=progress))

    def start(
        self,
        train: TrainFunction,
        evaluate: EvaluateFunction | None = None,
        data: Any = None,  # noqa: ANN401 -- handed on as it is
        *,
        initial: Any = None,  # noqa: ANN401 -- any form that a model has
        personalize: Sequence[str] = (),
        claim: bool = True,
        progress: bool = False,
    ) -> "TakingPart":
        """What `run` does, beside this program: several people of one program take part at the same time.

        Their functions are called one at a time, so that they may share what they compute with, such as a network.

        Returns:
            Whoever takes part; its `result()` waits for the end and is what `run` returns.
        """
        require_functions(train, evaluate)
        tell = _teller(shown=progress)
        return TakingPart(self, partial(self._run, train, evaluate, data, initial, personalize, claim=claim, tell=tell))

    def _run(
        self,
        train: TrainFunction,
        evaluate: EvaluateFunction | None,
        data: Any,  # noqa: ANN401
        initial: Any,  # noqa: ANN401
        personalize: Sequence[str],
        *,
        claim: bool,
        tell: Callable[[str], None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> JoinResult:
        initial = self.own.initial if initial is None and self.own is not None else initial_model(initial)
        if not personalize and self.own is not None:
            personalize = self.own.personalize
        try:
            with self._noted() as note, _opened(self) as person:
                form = partial(_form, initial=initial, personalize=personalize)
                taking = _Taking(person, tell, _Pause(self.own, stopped))
                result = taking.part(self, train, evaluate, data, initial, form, claim=claim)
                note(result)
                return result
        except FunctionRaised as raised:
            error = raised.error
        raise error

    @contextmanager
    def _noted(self) -> Iterator[Callable[[JoinResult], None]]:
        """For whoever runs the servers too, and waits for everyone."""
        if self.own is None:
            yield lambda _result: None
            return
        one = _invited().OwnPerson()
        self.own.people.append(one)
        try:
            yield lambda result: setattr(one, "has_claimed", result.paid is not None)
        except TakingPartStopped:
            raise
        except BaseException as raised:
            one.error = raised.error if isinstance(raised, FunctionRaised) else raised
            raise
        finally:
            one.is_done = True

    def look(self) -> str:
        """What the task is for, its terms, and who will read the model. Sends nothing about you."""
        with _opened(self, reads=True) as person:
            return printable_lines(person.summary(person.look()))


class TakingPart:
    """Somebody who takes part beside this program; made by `start`."""

    def __init__(self, joining: AcceptedInvitation, run: Callable[..., JoinResult]) -> None:
        self.joining = joining
        self._stop = threading.Event()
        self._result: JoinResult | BaseException | None = None
        self._thread = threading.Thread(target=self._take_part, args=(run,), name="taking part", daemon=True)
        self._thread.start()

    def _take_part(self, run: Callable[..., JoinResult]) -> None:
        try:
            self._result = run(stopped=self._stop.is_set)
        except BaseException as raised:  # noqa: BLE001 -- whoever asks for the result is told
            self._result = raised

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> JoinResult:
        """What `run` returns, once the task has ended; what it raised is raised here.

        Args:
            timeout: Seconds to wait at most; then it is a `NotReady`.
        """
        self._thread.join(timeout)
        if isinstance(self._result, BaseException):
            raise self._result
        if self._result is None:
            raise NotReady(f"the task of {self.joining.home} goes on: ask again, or `stop()`")
        return self._result

    def stop(self) -> None:
        """Take no further part in this program; with the same home, `start` or `run` goes on later."""
        self._stop.set()

    def __repr__(self) -> str:
        return f"<TakingPart: {self.joining.home}, {'done' if self.is_done else 'under way'}>"


def join(
    invitation: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    yes: bool = False,
    least_participants: int | None = None,
    agree: str | None = None,
    language: str | None = None,
) -> AcceptedInvitation:
    """Accept an invitation to a real campaign: shows what the task is, and asks whether to take part.

    Nothing is sent about you before `run`, which joins: `crowdfl.join("invitation.json").run(train, evaluate, data)`.

    Args:
        invitation: The file that you were given. For one that `invite` of your own `crowdfl.local_servers` returned, nothing is
            asked, and any number of people is enough.
        home: The folder for your keys and your state in this task, which `run` needs to continue; by default beside the
            invitation, with the ending `.home`.
        yes: You have read what the task is, and agree: nothing is asked. Needed where nobody can be asked, as in notebooks.
        least_participants: Take part only if every average is of at least so many people; 5 by default.
        agree: The version of the task's consent text, if it has one, that you have read and agree to; it is signed.
        language: In which you read what the requester wrote, such as de, where the task has it; by default your locale's.

    Returns:
        What `run` is called on.

    Raises:
        SettingsError: There is no such invitation, or nobody can be asked, or the answer was no.
        TooFewParticipants: The task's averages may be of fewer people than you accept.
        ConsentMissing: The task has a consent text, and you have not agreed to it.
        PackageMissing: httpx is not installed.
    """
    path = Path(invitation)
    opening = _invited()
    own = opening.home_of(path) if home is None else Path(home)
    invited = opening.read_invitation(path)
    joining = AcceptedInvitation(invited, own, least_participants, agree, _reader(language))
    if isinstance(invitation, opening.OwnInvitation):  # whoever runs the servers and wrote the task knows what it is
        yes = True
        joining = replace(joining, own=invitation, least_participants=least_participants or 1)
    with _opened(joining, reads=True) as person:
        if not Agent(person, time.sleep).has_joined:
            _ask(person, path, yes=yes)
    return replace(joining, agree=person.agree)


def _reader(language: str | None) -> str:
    found = filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG")))
    return next(found, "") if language is None else language


def _ask(person: Participant, path: Path, *, yes: bool) -> None:
    definition = person.look()
    person.require_company(definition)  # no question about what is then refused
    if yes:
        person.require_agreement(definition)
        return
    words = printable_lines(person.summary(definition))
    version = definition.consent.version
    if in_notebook() or sys.stdin is None or not sys.stdin.isatty():
        agree = f", agree={version!r}" if version else ""
        raise SettingsError(f'{words}\nIf you agree, write crowdfl.join("{path}", yes=True{agree})')
    sys.stdout.write(f"{words}\n")
    if version and person.agree != version:
        _require_yes("Do you agree to the consent text, by your signature?")
        person.agree = version
    _require_yes("Join?")


def _require_yes(question: str) -> None:
    try:
        answer = input(f"{question} [y/N]: ").strip().lower()
    except EOFError:  # Ctrl-D
        answer = ""
    if answer not in ("y", "yes"):
        raise SettingsError("nothing was joined: the answer was no")


@dataclass
class _Taking:
    """One participant on its way through a task, and what happens to it."""

    person: Participant
    tell: Callable[[str], None]
    pause: "_Pause"

    def part(
        self,
        joining: AcceptedInvitation,
        train: TrainFunction,
        evaluate: EvaluateFunction | None,
        data: Any,  # noqa: ANN401
        initial: Any,  # noqa: ANN401
        form_of: Callable[[Definition], ModelForm],
        *,
        claim: bool,
    ) -> JoinResult:
        agent = Agent(self.person, self.pause.sleep)
        self.person.on_event = self._note
        definition = agent.look()
        form = form_of(definition)
        seed = definition.training.get("seed", 0)
        trainer = _KeepingTrainer(train, evaluate, data, form, "you", definition.settings.rounds, seed)
        trainer.begin(initial, self.person.blobs)

        def note(what: str, details: Mapping[str, Any]) -> None:
            if what == "joined":
                trainer.person = details["who"]  # its seeds follow from it
            self._note(what, details)

        self.person.on_event = note
        agent.take_part(definition, trainer, joining.invitation.invitation, claim=claim)
        return self._result(definition, trainer)

    def _note(self, what: str, details: Mapping[str, Any]) -> None:
        if what == "waiting":  # for a server that is away, within one call
            self.pause.require_going()
        if what not in _QUIET and "round" in details:
            name = f"rounds/{details['round']}/event-{what.replace(' ', '-')}"
            self.person.blobs.delete(name)
            self.person.blobs.put(name, json.dumps(dict(details)).encode())
        self.tell(event_words(what, details))

    def _result(self, definition: Definition, trainer: FunctionTrainer) -> JoinResult:
        rounds = self._rounds(definition)
        model = trainer.form.model(self.person.model(), trainer.own)
        who = self.person.keys.who
        booked = self.person.claimed.booked
        paid = None if booked is None else from_millionths(booked)
        ledger = PrivacyLedger.of(definition.settings, (one.privacy for one in rounds), self.person.charged_elsewhere)
        return JoinResult(definition.task, who, self.person.state, tuple(rounds), model, paid, ledger)

    def _rounds(self, definition: Definition) -> list[JoinedRound]:
        earned = self.person.rewards() if definition.settings.budget is not None else {}
        seen = self._seen()
        numbers = sorted({number for _, number in seen} | set(earned))
        rounds = [self._round(seen, number, earned.get(number)) for number in numbers]
        return rounds if definition.settings.epsilon is None else self._with_costs(rounds, seen, definition.settings)

    def _with_costs(
        self, rounds: Sequence[JoinedRound], seen: Mapping[tuple[str, int], Mapping[str, Any]], settings: TaskSettings
    ) -> list[JoinedRound]:
        who = self.person.keys.who
        opened = self.person.opened()
        costs = list[RoundPrivacy]()
        for number in (one.number for one in rounds):
            trained, noise = seen.get(("trained", number)), dict(seen.get(("noise", number), {}))
            noise.pop("round", None)
            cost = RoundPrivacy.of(
                settings,
                costs,
                charged=[who] if trained else [],
                spent_by=[who] if number in opened else [],
                noise=AverageNoise(**noise) if noise else None,
                updates=[trained["length"]] if trained else [],
            )
            costs.append(cost)
        return [replace(one, privacy=cost) for one, cost in zip(rounds, costs, strict=True)]

    def _seen(self) -> dict[tuple[str, int], Mapping[str, Any]]:
        """By event and round, what happened since the participant joined."""
        found = filter(None, map(_EVENT.fullmatch, self.person.blobs.listing()))
        return {(name[2].replace("-", " "), int(name[1])): json.loads(self.person.blobs.get(name[0])) for name in found}

    @staticmethod
    def _round(seen: Mapping[tuple[str, int], Mapping[str, Any]], number: int, earned: int | None) -> JoinedRound:
        trained, read = seen.get(("trained", number), {}), seen.get(("read", number), {})
        told = [event_words(what, seen[what, number]) for what in _TROUBLES if (what, number) in seen]
        return JoinedRound(
            number=number,
            samples=trained.get("samples"),
            metrics={name: value for name, value in read.items() if name not in NOT_METRICS},
            reward=None if earned is None else from_millionths(earned),
            trouble="; ".join(line.removeprefix(f"round {number}: ") for line in told),
        )


@dataclass(frozen=True)
class _Pause:
    """How somebody waits between two looks at the platform, and what ends that."""

    own: "OwnInvitation | None"
    stopped: Callable[[], bool]

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + (seconds if self.own is None else min(seconds, _OWN_SECONDS))
        while (left := end - time.monotonic()) > 0:
            self.require_going()
            time.sleep(min(left, _OWN_SECONDS))
        self.require_going()

    def require_going(self) -> None:
        if self.own is not None and self.own.ended.is_set():
            raise TakingPartStopped("the local servers of this task have ended, and with them the task")
        if self.stopped():
            raise TakingPartStopped("you have stopped taking part; with the same home, `run` goes on")


class _KeepingTrainer(FunctionTrainer):
    """Keeps what is not averaged in the home, by round: a round that is trained again starts as it did the first time."""

    def begin(self, model: object, blobs: Blobs) -> None:
        """With what the last round left, or the example has."""
        self.keep(model)
        self.blobs, self.start = blobs, self.own
        self.recall(self.rounds)

    def train(self, arrays: Weights, settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        self.recall(number - 1)
        with _ONE_AT_A_TIME:
            trained = super().train(arrays, settings, number)
        if self.own:
            self.blobs.delete(_own(number))
            kept = {name: entry_array(entry) for name, entry in self.own.items()}
            self.blobs.put(_own(number), write_safetensors(kept))
        return trained

    def evaluate(self, arrays: Weights, number: int) -> dict[str, float]:
        with _ONE_AT_A_TIME:
            return super().evaluate(arrays, number)

    def recall(self, number: int) -> None:
        """As it was after this round, or the last one before it that was trained."""
        last = next((earlier for earlier in range(number, 0, -1) if self.blobs.has(_own(earlier))), None)
        kept = None if last is None else self.form.counts_like(safetensors_arrays(self.blobs.get(_own(last))))
        self.restore(self.samples, self.start if kept is None else kept)


def _own(number: int) -> str:
    return f"rounds/{number}/own"


def _form(definition: Definition, initial: Any, personalize: Sequence[str]) -> ModelForm:  # noqa: ANN401
    """The form that the functions want, in the order of the task's model."""
    if initial is not None:
        return ModelForm.of(initial, personalize).ordered_as(definition.shape)
    if personalize:
        raise SettingsError("`personalize` needs `initial`: an example that has the layers which stay here")
    return dictionary_form(definition.shape, torch=definition.training.get("learner") == TORCH_FUNCTIONS)


def _teller(*, shown: bool) -> Callable[[str], None]:
    def tell(line: str) -> None:
        stream = sys.stdout if in_notebook() else sys.stderr
        stream.write(f"{line}\n")
        stream.flush()

    return tell if shown else lambda _line: None


def _opened(joining: AcceptedInvitation, *, reads: bool = False) -> Any:  # noqa: ANN401
    more = {"least": joining.least_participants, "agree": joining.agree, "language": joining.language}
    return _invited().invited(joining.invitation, joining.home, Participant, reads=reads, **more)


def _invited() -> Any:  # noqa: ANN401
    """Loaded late: `import crowdfl` needs no network."""
    try:
        from crowdfl.services.client import opening as invited
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("crowdfl"):
            raise
        raise PackageMissing(f"`crowdfl.join` needs {missing.name}: `pip install 'crowdfl[participant]'`") from None
    return invited
