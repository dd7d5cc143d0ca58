"""`crowdfl.simulate`: federated learning with somebody's own two functions, every role of CrowdFL, and no network."""

import inspect
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack
from weakref import WeakSet

import numpy as np

from crowdfl.documents.signed import Definition
from crowdfl.effects import require_effect
from crowdfl.errors import NothingToAverage, NothingToContribute, SettingsError
from crowdfl.learning.functions import (
    NOT_METRICS,
    EvaluateFunction,
    FunctionRaised,
    TrainFunction,
    TrainingInfo,
    central_metrics,
    first_model,
    require_functions,
    units_for,
    weighted_mean,
)
from crowdfl.learning.models.forms import ModelForm
from crowdfl.learning.models.shape import Weights
from crowdfl.privacy import AverageNoise, RoundPrivacy, forecast
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.shares.dealing.keys import REQUESTER
from crowdfl.protocols.shares.server_optimizers import Moments
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.records import Round, RoundState
from crowdfl.schema import in_seconds
from crowdfl.settings import TaskOptions, TaskSettings, option_words, to_millionths
from crowdfl.simulation.arguments import require_arguments
from crowdfl.simulation.bounds import require_enough, settings_for
from crowdfl.simulation.checkpoint import Checkpoint, added_costs, jsonable, own_folder
from crowdfl.simulation.clear import ClearResult, Rule, RuleAveraging, require_meant
from crowdfl.simulation.crowd_engine import CrowdEngine
from crowdfl.simulation.draws import Evaluated, evaluated_in, seeded_draw
from crowdfl.simulation.dropouts import Away, Dropouts, away_in
from crowdfl.simulation.engine import Engine, OnChange, OnRead
from crowdfl.simulation.history import FinishedRound, SimulatedRound, earned, unusable_metrics
from crowdfl.simulation.parallel import ParallelTrainer, Trainers, Workers
from crowdfl.simulation.result import SimulationResult
from crowdfl.simulation.shown import Shown, shown
from crowdfl.storage.model_files import initial_model

if TYPE_CHECKING:
    pass


_CLAIM_WINDOW = 10**9  # seconds: nobody is late in one process


def simulate(  # noqa: PLR0913 -- one call says all of a campaign; each has a name
    train: TrainFunction,
    evaluate: EvaluateFunction | None,
    data: Mapping[str, Any] | Sequence[Any] | Callable[[str], Any],
    *,
    people: int | Sequence[str] | None = None,
    evaluate_central: EvaluateFunction | None = None,
    on_round: Callable[[FinishedRound], bool | None] | None = None,
    rounds: int | None = None,
    profile: str | None = None,
    initial: Any = None,  # noqa: ANN401 -- any form that a model has
    resume: SimulationResult | str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    dropouts: Dropouts = 0.0,
    fraction: float | None = None,
    personalize: Sequence[str] = (),
    reference: Any = None,  # noqa: ANN401 -- as a person's data
    in_the_clear: Rule | None = None,
    evaluate_per_round: int | None = None,
    evaluate_fraction: float | None = None,
    engine: Literal["crowd", "roles"] | None = None,
    workers: int | None = None,
    device: str | Sequence[str] | None = None,
    progress: bool | None = None,
    seed: int = 0,
    insecure_test_key: bool = False,
    **settings: Unpack[TaskOptions],
) -> SimulationResult:
    """Run a whole campaign in this process: people train, the servers average what they cannot read, everyone reads on.

    With `shares` a crowd is played in batches: each update is encoded, checked, paid and averaged by the protocol's own
    functions, with what KGC deals and both servers' programs; nobody enrols, seals an update or claims, and one reader
    opens an average for everyone. With `engine="roles"`, and in the other profiles, every role is the real one: KGC, the
    platform (SP), the computation server (CSP), and for each person a participant whose agent joins, trains, uploads, reads
    and claims; only the network is missing. Both give the same averages, verdicts and pay. The result equals plain
    federated averaging up to the decimals that the task keeps.

    Args:
        train: Your training function: `train(model, data)`, `train(model)` or `train(model, data, info)`, where `info` is a
            `TrainingInfo`. It returns the trained model, `(model, samples)`, `(model, samples, metrics)`, or an `Update`.
            Without samples the length of the data counts: of arrays that belong together, as in `(inputs, labels)`, their
            common length. Any positive number may stand for samples, as a weight: exact up to six digits, else within a
            thousandth of itself. Metrics of training are in the result; in a campaign they stay on each device.
        evaluate: Your evaluating function, `evaluate(model, data)` or `evaluate(model, data, info)`: a dictionary of numbers,
            a number, or None. A number called `samples` says how much a person's metrics count. None evaluates nothing.
        data: Everyone's data: a dictionary by name, or a list (people are then `person-1` and so on). What it holds is handed
            to your functions as it is. Or a function of a name, `data=load` with `people=100_000`: it is called each time
            somebody trains or evaluates, in that person's worker, and nothing of it is kept.
        people: With `data=load`, how many there are (`person-1` and so on), or their names. `max_samples` then follows from
            those who were drawn for the first round.
        evaluate_central: Evaluates each round's model once, on a test set of the requester's: `f(model)` or `f(model, info)`.
        on_round: Called with a `FinishedRound` after each round, for logs, checkpoints and early stopping: if it returns True,
            no further round begins, what was earned is claimed, and the model stays.
        rounds: How many rounds, those of a resumed campaign included; 5, or as many as that one had.
        profile: "shares" (the default: two servers, no keys, fast), "hardened" (Paillier encryption) or "paper" (as printed).
        initial: The model that everyone starts from: a list of arrays, an array, a dictionary, a torch `state_dict`, or the
            path of a file that `save` has written (one array without a name is that array). Your functions are handed models
            of the same form and types. Without it, `train(None, data of the first person)` makes it. Integers in a
            dictionary, such as BatchNorm's `num_batches_tracked`, are not averaged: each person keeps its own, and the
            resulting model has the initial ones.
        resume: A result, or a folder, whose campaign goes on: its model, what the server step carries, the numbers of rounds,
            the history, and its settings, unless you set others. With `initial` alone a server step starts at zero again.
        folder: Where a checkpoint is written after each round. The same call goes on where it stopped, also after a crash,
            and returns at once when all is done; another campaign's folder is refused, and one that another program uses.
        dropouts: Who is away: a share of the people, drawn anew in each round; a dictionary of names and the rounds that they
            miss; or a function `(round, name)`. With `late="10 min"` their updates come late and are taken.
        fraction: Client sampling: this share of the people, drawn anew, is in each round, in place of `per_round`, which says
            how many are. Who is not drawn is no dropout.
        personalize: Layers that stay with each person (FedPer): names in a dictionary or `state_dict`, or patterns such as
            `head.*`. They are neither sent nor averaged; your functions get each person's own, and `result.personal` has them.
        reference: Data of the requester's own, as a person has it. In each round the requester trains on it, and the servers
            leave out who goes against what it finds, or is much longer: one bit for each, and nobody sees any update. Everyone
            counts once then. docs/poisoning.md says what this stops, and what it does not.
        in_the_clear: NOT PRIVATE, for research: a rule of averaging of your own, in place of all servers, `rule(updates, start,
            info)`. `updates` has a `model`, a `weight` and its `flat` numbers by name; `start` the same of what the round
            started from. It returns the next model, or its flat numbers; or a pair of that and what each is paid.
            `crowdfl.simulation.clear` has `fedavg` and `equal(max_norm)` to compare with.
        evaluate_per_round: So many people, drawn anew, evaluate each round's average, in place of everyone who reads it.
        evaluate_fraction: The same as a share of the people.
        engine: What plays the servers: "crowd" (the default with `shares`), or "roles". `costs` of "crowd" hold no claims,
            since nobody makes any: pay is what the rounds have paid. A crowd holds the updates of one round in memory, eight
            bytes for each weight.
        workers: How many people train and evaluate in parallel, each in a process of its own that is forked from this one, with
            one torch thread; functions of a notebook too. The result is the same for any number. What a function changes
            outside of its person's data stays in its process. Without it this process does all, with torch's usual threads.
        device: What `info.device` says, for you to move models and data to: "cuda" (every GPU), a name such as "cuda:1", or a
            list; workers take turns with them.
        progress: True shows it, False does not; None, the default, shows it on a terminal and in a notebook.
        seed: Of the dropouts, of who is drawn, of `info.seed`; and of the generators of Python, NumPy and torch in each call.
        insecure_test_key: Allow `key_bits` below 2048, for tests.
        **settings: Any setting of a task (`TaskOptions`): `budget="36.00"` pays rewards in each round. What is not given
            follows from the data: `max_participants`, `max_samples`, and the bounds `clip` and `max_norm`, which have four
            times the room that everyone's first training needed. With `shares`, `decimals` is the most that fits, up to 9;
            `result.settings` says which. People count by their samples (FedAvg), where readers of two totals learn the number
            of whoever came or went; with `weighting="equal"` everyone counts once.

    Returns:
        The model, the history of the rounds, rewards and costs. Printed it is a table.

    Raises:
        SettingsError: A setting is wrong; the error names it.
        TooFewParticipants: There are fewer than three people.
        NotFinite: Somebody's training returned NaN or infinity; the error names the person and the round.
        NothingToAverage: No round found enough participants.

    What your functions raise comes out as it is, with a note whose data it was. Every error, and an interruption (Ctrl-C),
    keeps what was done: the finished rounds are in its attribute `result`, in a notebook `sys.last_value.result`. A round is
    finished, and in `folder`, before `on_round` is told of it.
    """
    require_arguments(simulate, settings, seed)
    loads = {"data": data} if callable(data) else {}
    require_functions(
        train, evaluate, evaluate_central=evaluate_central, on_round=on_round, in_the_clear=in_the_clear, **loads
    )
    everyone = _named(data, people)
    require_enough(list(everyone))
    given: dict[str, Any] = {**settings} | {
        k: v for k, v in (("rounds", rounds), ("profile", profile)) if v is not None
    }
    if reference is not None:
        given |= {"reference": True, "weighting": given.get("weighting", "equal")}
    if fraction is not None:
        given["per_round"] = _share_of(everyone, fraction, given)
    given = in_seconds(TaskSettings, given)
    functions = _Functions(train, evaluate, evaluate_central, on_round)
    place = None if folder is None else Path(folder)
    evaluated = evaluated_in(evaluate_per_round, evaluate_fraction, list(everyone), seed)
    simulation = _Simulation(
        functions,
        everyone,
        given,
        seed,
        insecure_test_key,
        place,
        personalize,
        reference,
        in_the_clear,
        engine,
        evaluated,
    )
    if in_the_clear is not None and (folder is not None or resume is not None):
        raise SettingsError("`folder` and `resume` are for campaigns with servers: leave them out with `in_the_clear`")
    if in_the_clear is not None and engine == "roles":
        raise SettingsError('`engine` is "roles", and `in_the_clear` has none: leave it out')
    if isinstance(resume, ClearResult):
        raise SettingsError("`resume` is the result of a rule in the clear, which has no campaign to go on with")
    try:
        with own_folder(place):
            if (done := simulation.find(resume, initial)) is not None:
                return done
            away = away_in(dropouts, list(everyone), simulation.asked["rounds"], seed)
            told = shown(progress, len(everyone), simulation.asked["rounds"])
            with told, Workers(workers, device) as simulation.workers, simulation.leaving_result():
                return simulation.run(initial, away, told)
    except FunctionRaised as raised:
        error = raised.error
    raise error


simulate.__doc__ = f"{inspect.getdoc(simulate)}\n\nThe settings of a task:\n{option_words()}"


def _share_of(people: Mapping[str, Any], fraction: float, asked: Mapping[str, Any]) -> int:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise SettingsError(f"`fraction` is {fraction!r}; expected a share of the people, above 0 and at most 1")
    if asked.get("per_round") is not None:
        raise SettingsError("`fraction` and `per_round` say the same: give one of them")
    least = TaskSettings.model_fields["min_participants"].default
    return max(round(fraction * len(people)), int(asked.get("min_participants", least)))


class _Loaded(Mapping[str, Any]):
    """Data that is a function of the name, and is asked for when it is needed."""

    def __init__(self, load: Callable[[str], Any], names: Sequence[str]) -> None:
        self.load, self._names = load, dict.fromkeys(names)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        return self.load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _numbered(count: int) -> list[str]:
    return [f"person-{number}" for number in range(1, count + 1)]


def _loaded(load: Callable[[str], Any], people: int | Sequence[str] | None) -> _Loaded:
    is_count = isinstance(people, int) and not isinstance(people, bool)
    names = _numbered(people) if isinstance(people, int) and is_count else people
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise SettingsError(
            f"`people` is {people!r}; with `data` a function of a name, it says how many people there are, or lists their names"
        )
    if len(set(names)) != len(names):
        raise SettingsError("`people` has a name twice")
    return _Loaded(load, names)


def _named(data: Any, people: int | Sequence[str] | None) -> Mapping[str, Any]:  # noqa: ANN401 -- as `simulate` takes it
    if callable(data) and not isinstance(data, Mapping):
        return _loaded(data, people)
    if people is not None:
        raise SettingsError("`people` says who there is where `data` is a function of a name: leave it out")
    if isinstance(data, Mapping):
        if wrong := [name for name in data if not isinstance(name, str) or not name]:
            raise SettingsError(f"{wrong[0]!r} is not a name: people are called by strings")
        return dict(data)
    batches = hasattr(data, "dataset")  # a torch DataLoader: its batches are not people
    if batches or isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise SettingsError(
            f"`data` is a {type(data).__name__}; expected a dictionary or a list with everyone's data, an entry for each "
            "person, or a function of a name"
        )
    found = list(data)
    return dict(zip(_numbered(len(found)), found, strict=True))


@dataclass(frozen=True)
class _Functions:
    train: TrainFunction
    evaluate: EvaluateFunction | None
    evaluate_central: EvaluateFunction | None
    on_round: Callable[[FinishedRound], bool | None] | None


@dataclass
class _Simulation:
    functions: _Functions
    people: Mapping[str, Any]
    given: dict[str, Any]
    seed: int
    insecure_test_key: bool
    folder: Path | None
    personalize: Sequence[str]
    reference: Any
    rule: Rule | None
    engine: str | None
    evaluated: Evaluated
    workers: Workers = field(default_factory=lambda: Workers(None, None))
    asked: dict[str, Any] = field(default_factory=dict)  # with what a resumed campaign had
    _before: Checkpoint | None = None
    _state: Checkpoint | None = None
    _notes: list[str] = field(default_factory=list)

    def find(self, resume: Any, initial: Any) -> SimulationResult | None:  # noqa: ANN401
        """What the campaign goes on from, if it does; the result, if there is nothing left to do."""
        resumed = resume.checkpoint if isinstance(resume, SimulationResult) else None
        if resume is not None and resumed is None:
            resumed = Checkpoint.read(Path(resume))
            if resumed is None:
                raise SettingsError(f"{resume} holds no campaign that could go on: pass a result, or the folder of one")
        kept = Checkpoint.read(self.folder) if self.folder is not None else None
        if kept is not None and self.folder is not None:
            shape = None if initial is None else ModelForm.of(initial_model(initial), kept.form.personal).shape
            kept.require_same(self.folder, list(self.people), self.given, self.seed, shape)
        self._before = self._state = kept or resumed
        before = self._before
        usual: dict[str, Any] = {"rounds": 5, "profile": "shares"}
        carried = usual if before is None else _carried(before, self.given, len(self.people))
        self.asked = carried | self.given
        if before is None:
            return None
        if kept is not None and (kept.is_stopped or len(kept.history) >= self.asked["rounds"]):
            return self._result_of(kept)
        if len(before.history) >= self.asked["rounds"]:
            raise SettingsError(
                f"the campaign has had {len(before.history)} rounds: `rounds` counts those too, and is {self.asked['rounds']}"
            )
        return None

    @contextmanager
    def leaving_result(self) -> Iterator[None]:
        """Whatever ends a campaign, the rounds that were finished are the caller's."""
        try:
            yield
        except BaseException as raised:
            if self._state is not None:
                done = self._result_of(self._state)
                error = raised.error if isinstance(raised, FunctionRaised) else raised
                go_on = "`sys.last_value.result` in a notebook" + ("" if self.rule else "; `resume=` goes on")
                go_on = "the same call goes on" if self.folder else go_on
                error.add_note(f"(from CrowdFL: {len(done.history)} rounds are kept in this error's `result`: {go_on})")
                with suppress(AttributeError):  # an error with slots has no room
                    error.result = done  # type: ignore[attr-defined]
            raise

    @property
    def _done(self) -> int:
        """Rounds of the campaign before this task."""
        return 0 if self._before is None else len(self._before.history)

    def run(self, initial: Any, away: Away, told: Shown) -> SimulationResult:  # noqa: ANN401

        began = time.perf_counter()
        done = self._done
        before = self._before
        if self.rule is not None:
            require_meant(self.asked)
        checked = TaskSettings.of(**{"max_participants": len(self.people)} | self.asked)  # before anything is trained
        if checked.budget is not None and not to_millionths(checked.budget):
            del self.asked["budget"]  # nothing to pay is no budget
        profile_named(self.asked["profile"])
        require_effect(checked, self.given)
        form, start = self._start(initial)
        if checked.epsilon is not None:
            self._foresee(checked, form.shape.parameters, told)
        trainers = self._trainers(form)
        self.workers.evaluated = self.evaluated
        self.workers.start(trainers)
        if self.rule is not None:
            trainers.count(0)  # weights count as they are
            settings = checked
            self._begin(trainers, start, away, 1)
        elif before is None:
            self._train_first(trainers, start, away, told)
            self._count(trainers)
            settings = self._settings(form, start, trainers)
        else:
            trainers.count(before.units)
            settings = TaskSettings.of(**self.asked)
            self._begin(trainers, start, away, done + 1)
        moments: Moments = ()
        if before is not None and before.settings.server_step == settings.server_step:
            moments = before.moments
        if settings.server_step != "none" and not moments and (before is not None or _is_earlier(initial, start)):
            self._notes.append(
                f'server_step = "{settings.server_step}" starts without memory of earlier rounds: `resume=` goes on with it'
            )
        # A resumed campaign has a task of its own for the rounds that are left.
        task = TaskSettings.of(**settings.model_dump() | {"rounds": settings.rounds - done})

        def on_change(engine: Engine) -> None:
            number = engine.rounds[-1].number if engine.rounds else 1
            if number + done > 1 or self.rule is not None:  # else the first was told of when it was trained
                told.trained(number + done, len(engine.log.of("trained", number)))

        def on_read(engine: Engine, round_: Round) -> bool:
            stops = self._finish(engine, trainers, form, round_, settings, told)
            if not stops:
                self._begin(trainers, engine.model(), away, round_.number + done + 1)
            return stops

        engine = self._engine(task, form, start, moments, trainers, away, on_change, on_read)
        engine.log.began[1] = began
        engine.run()
        last = engine.rounds[-1]
        if self._state is None or last.number + done > len(self._state.history):
            engine.read_last()
            self._finish(engine, trainers, form, last, settings, told)
        return self._result(engine)

    def _engine(
        self,
        task: TaskSettings,
        form: ModelForm,
        start: Weights,
        moments: Moments,
        trainers: Trainers,
        away: Away,
        on_change: OnChange,
        on_read: OnRead,
    ) -> Engine:
        done = self._done
        hooks: dict[str, Any] = {
            "draw": seeded_draw(self.seed, done),
            "on_change": on_change,
            "on_read": on_read,
            "reference": self._reference(form) if task.reference else None,
        }

        def away_now(number: int) -> frozenset[str]:
            return away(number + done)

        if self.rule is None and _plays_roles(self.engine, task):
            from crowdfl.simulation.roles_engine import (
                RolesEngine,
            )  # a crowd needs no databases, and none of what comes with them

            words = "a simulation in one process"
            definition = Definition(words, words, words, form.shape, task, _CLAIM_WINDOW, {})
            everyone = dict(trainers)
            return RolesEngine(
                definition,
                start,
                everyone,
                away_now,
                moments=moments,
                insecure_test_key=self.insecure_test_key,
                **hooks,
            )
        hooks["evaluated"] = lambda number: self.evaluated(number + done)
        if self.rule is not None:
            averaging = RuleAveraging(self.rule, form, task.rounds, self.seed)
            return CrowdEngine(task, start, trainers, away_now, averaging, **hooks)
        return CrowdEngine.with_servers(task, form, start, moments, trainers, away_now, **hooks)

    def _settings(self, form: ModelForm, start: Weights, trainers: Trainers) -> TaskSettings:
        """What the caller has not set follows from the first training; where data is loaded, from whoever was drawn."""
        known = trainers.made if isinstance(self.people, _Loaded) else trainers
        samples = [math.ceil(trainer.weight * trainer.units) for trainer in known.values()]
        trained = [
            one.first[0] for one in trainers.made.values() if isinstance(one, _Trainer) and isinstance(one.first, tuple)
        ]
        return settings_for(self.asked, form.shape, start, trained, samples, len(self.people))

    def _foresee(self, settings: TaskSettings, parameters: int, told: Shown) -> None:
        """What noise will do to this model with this crowd, before anybody trains for it; too much of it is refused."""
        if settings.profile == "shares":
            SharesShape(TaskSpec("", settings, parameters)).require_signal()
            self._notes.append(forecast(settings, parameters))
            told.noted(self._notes[-1])

    def _start(self, initial: Any) -> tuple[ModelForm, Weights]:  # noqa: ANN401
        before = self._before
        if before is None:
            model = initial_model(initial) if initial is not None else self._first_model()
            form = ModelForm.of(model, self.personalize)
            whose = "train(None, data) made" if initial is None else "`initial`"
            return form, form.arrays(model, f"{whose} is what everyone starts from, and takes finite numbers")
        form, personal = before.form, before.form.personal
        if self.personalize and ModelForm.of(before.model, self.personalize).personal != personal:
            raise SettingsError(f"`personalize` of this campaign is {', '.join(personal) or 'empty'}: it stays so")
        return (
            form if initial is None else ModelForm.of(initial_model(initial), personal).ordered_as(form.shape)
        ), before.arrays

    def _first_model(self) -> Any:  # noqa: ANN401
        name, data = next(iter(self.people.items()))
        return first_model(self.functions.train, data, TrainingInfo.of(0, self.asked["rounds"], name, self.seed))

    def _trainers(self, form: ModelForm) -> Trainers:
        of, before, people = self.functions, self._before, self.people
        load = people.load if isinstance(people, _Loaded) else None

        def make(name: str) -> _Trainer:
            data = None if load is not None else people[name]
            made = _Trainer(of.train, of.evaluate, data, form, name, self.asked["rounds"], self.seed)
            made.load, made.done = load, self._done
            if before is not None:
                made.restore(before.samples.get(name), before.own.get(name, {}))
            return made

        return Trainers(people, make)

    def _reference(self, form: ModelForm) -> "_Trainer":
        """The requester's; it trains in this process."""
        if self.reference is None:
            raise SettingsError("the campaign has a reference: pass `reference`, the requester's data, as before")
        of = self.functions
        made = _Trainer(of.train, None, self.reference, form, REQUESTER, self.asked["rounds"], self.seed)
        made.done = self._done
        Workers(None, None).start(Trainers([REQUESTER], lambda _name: made))
        made.workers = Workers(None, None)
        return made

    def _train_first(self, trainers: Trainers, start: Weights, away: Away, told: Shown) -> None:
        """Everyone's training of round 1, before the task is made: its bounds follow from what it changes."""
        for done, trainer in enumerate(self._begin(trainers, start, away, 1), 1):
            trainer.train_first(start)
            told.trained(1, done)

    def _begin(self, trainers: Trainers, arrays: Weights, away: Away, number: int) -> list["_Trainer"]:
        """Who will train in a round; workers begin with it."""
        missing = away(number) if not self.asked.get("late") else frozenset()
        names: Iterable[str] = self.people
        if (count := self.asked.get("per_round")) is not None:
            drawn = set(seeded_draw(self.seed)(number, list(self.people), count))
            names = [name for name in names if name in drawn]
        present = [trainer for name in names if name not in missing and isinstance(trainer := trainers[name], _Trainer)]
        for trainer in present:
            trainer.begin("train", arrays, number)
        return present

    def _count(self, trainers: Trainers) -> None:
        """Weights of one's own in units that the servers add up, as the first training suggests."""
        made = trainers.made.values()
        units = units_for([trainer.samples for trainer in made if trainer.samples is not None])
        trainers.count(units)
        for trainer in made:
            if isinstance(trainer, _Trainer):
                trainer.count_first()
        if units > 1 and "max_samples" in self.asked:
            self.asked["max_samples"] *= units

    def _finish(
        self,
        engine: Engine,
        trainers: Trainers,
        form: ModelForm,
        round_: Round,
        settings: TaskSettings,
        told: Shown,
    ) -> bool:
        """Keep a round that is over and read, and tell of it. True: no further round."""
        arrays = engine.model()
        record = self._round(engine, round_)
        model = form.model(arrays)
        of = self.functions
        try:
            if of.evaluate_central is not None and record.is_averaged:
                info = TrainingInfo.of(record.number, self.asked["rounds"], "", self.seed)
                record = replace(record, central=central_metrics(of.evaluate_central, model, info))
        finally:
            record = replace(record, seconds=time.perf_counter() - engine.log.began[round_.number])
            engine.log.forget(round_.number)
            state = self._keep(self._checkpoint(engine, trainers, form, record, settings, arrays))
        told.finished(record)
        if of.on_round is None or not _is_true(
            of.on_round(FinishedRound(**vars(record), model=model, costs=state.costs))
        ):
            return False
        if record.number < settings.rounds:
            self._keep(replace(state, is_stopped=True))
        return True

    def _checkpoint(
        self,
        engine: Engine,
        trainers: Trainers,
        form: ModelForm,
        record: SimulatedRound,
        settings: TaskSettings,
        arrays: Weights,
    ) -> Checkpoint:
        before = self._before
        samples = {name: before.samples.get(name) if before else None for name in self.people}
        own = dict(before.own) if before else {}
        return Checkpoint(
            history=(*(self._state.history if self._state else ()), record),
            settings=settings,
            asked=jsonable(self.given),
            samples=samples | {name: trainer.samples for name, trainer in trainers.made.items()},
            units=trainers.units,
            is_stopped=False,
            costs=added_costs(before.costs if before else {}, engine.costs()),
            seed=self.seed,
            form=form,
            arrays=arrays,
            moments=engine.moments(),
            own=own | {name: trainer.own for name, trainer in trainers.made.items()},
        )

    def _keep(self, state: Checkpoint) -> Checkpoint:
        """Before anybody is told of the round: what a logger raises must not cost it."""
        self._state = state
        if self.folder is not None:
            state.write(self.folder)
        return state

    def _round(self, engine: Engine, round_: Round) -> SimulatedRound:
        number = round_.number
        log = engine.log
        averaged = round_.state is RoundState.REWARDED
        trained, read = log.of("trained", number), log.of("read", number)
        by_person = {
            name: {key: value for key, value in details.items() if key not in NOT_METRICS}
            for name, details in read.items()
        }
        participants = engine.averaged(number) if averaged else ()
        sampled = engine.sampled(number)
        away = log.dropped[number].intersection(sampled or self.people).difference(participants)
        rewards = {name: one["amount"] for name, one in log.of("rewarded", number).items()}
        return SimulatedRound(
            number=number + self._done,
            metrics=weighted_mean([(one, log.weights[number, name]) for name, one in by_person.items()]),
            participants=participants,
            sampled=sampled,
            dropped=tuple(name for name in self.people if name in away),
            late=tuple(log.late[number]),
            rejected=engine.rejected(number),
            clipped={name: one["clipped"] for name, one in trained.items() if one["clipped"]},
            scaled={name: one["scaled"] for name, one in trained.items() if "scaled" in one},
            rewards=rewards,
            bytes_up=log.up[number],
            bytes_down=log.down[number],
            is_averaged=averaged,
            by_person={name: metrics for name, metrics in by_person.items() if metrics},
            training=weighted_mean([(one["metrics"], one["samples"]) for one in trained.values()]),
            training_by_person={name: one["metrics"] for name, one in trained.items() if one["metrics"]},
            privacy=self._privacy(engine, number, opened=averaged) if engine.settings.epsilon is not None else None,
        )

    def _privacy(self, engine: Engine, number: int, *, opened: bool) -> RoundPrivacy:
        log = engine.log
        noise = next(iter(log.of("noise", number).values()), None)
        return RoundPrivacy.of(
            engine.settings,
            (one.privacy for one in (self._state.history if self._state else ()) if one.privacy is not None),
            charged=log.of("trained", number),
            spent_by=log.of("uploaded", number) if opened else (),
            noise=None if noise is None else AverageNoise(**{name: noise[name] for name in noise if name != "round"}),
            updates=[one["length"] for one in log.of("trained", number).values()],
        )

    def _result(self, engine: Engine) -> SimulationResult:
        state = self._state
        if state is None or not any(one.is_averaged for one in state.history):
            if empty := [name for name in self.people if engine.log.of("nothing to contribute", 1).get(name)]:
                raise NothingToAverage(f"nobody could be averaged: {', '.join(empty[:3])} had no samples to train on")
            raise NothingToAverage(
                f"no round found {engine.settings.min_participants} participants: lower `dropouts` or `min_participants`"
            )
        before = earned(self._before.history if self._before else ())
        paid, none = engine.log.paid, Decimal(0)
        names = self.people if self.rule is None else paid
        return self._result_of(state, {name: before.get(name, none) + paid.get(name, none) for name in names})

    def _result_of(self, state: Checkpoint, paid: Mapping[str, Decimal] | None = None) -> SimulationResult:
        """`paid` where rewards were claimed; of a campaign that was interrupted they are what was earned."""
        history, notes = state.history, list(self._notes)
        if state.is_stopped:
            notes.append(f"`on_round` has stopped the campaign after round {len(history)}")
        done = [one.number for one in history if one.is_averaged]
        if not history[-1].is_averaged and done:
            notes.append(f"the last round was given up: the model is the average of round {done[-1]}")
        rewards = earned(history) if paid is None else paid
        kind, pays = (
            (ClearResult, True) if self.rule is not None else (SimulationResult, state.settings.budget is not None)
        )
        result = kind(
            model=state.model,
            history=history,
            rewards=rewards if pays else {},
            costs=state.costs,
            notes=(*_notes(state.form, history), *unusable_metrics(history), *notes),
            settings=state.settings,
            checkpoint=state,
            personal={
                name: {entry: value for entry, value in own.items() if entry in state.form.personal}
                for name, own in state.own.items()
                if state.form.personal and own
            },
        )
        _RESULTS.add(result)
        return result


_RESULTS = WeakSet[SimulationResult]()  # of this process


def _is_earlier(initial: Any, start: Weights) -> bool:  # noqa: ANN401
    """Whether the model may be of earlier rounds: it is a file's, or that of a result of this process."""
    if isinstance(initial, str | os.PathLike):
        return True
    models = [one.checkpoint.form.arrays(one.model) for one in _RESULTS]  # in its types, as it was handed out
    return any(len(one) == len(start) and all(map(np.array_equal, one, start)) for one in models)


def _carried(before: Checkpoint, given: Mapping[str, Any], people: int) -> dict[str, Any]:
    """The settings of a campaign that goes on. Another server step has numbers of its own."""
    settings = before.settings.model_dump()
    if given.get("server_step", before.settings.server_step) != before.settings.server_step:
        settings = {name: value for name, value in settings.items() if not name.startswith("server_")}
    return settings | {"max_participants": max(people, before.settings.max_participants)}


def _plays_roles(engine: str | None, task: TaskSettings) -> bool:
    """A crowd has batches for one profile, and no claims, by which a bonus is paid."""
    if engine not in (None, "crowd", "roles"):
        raise SettingsError(f'`engine` is {engine!r}; expected "crowd" or "roles"')
    played = "" if task.profile == "shares" else f"the profile {task.profile}"
    played = "a `bonus`" if task.bonus_each else played
    if engine == "crowd" and played:
        raise SettingsError(f'`engine` is "crowd", which does not play {played}: leave `engine` out')
    return engine == "roles" or bool(played)


def _is_true(stops: object) -> bool:
    if not (stops is None or isinstance(stops, bool | np.bool_)):
        raise SettingsError(f"`on_round` returned a {type(stops).__name__}; expected True, which stops, or nothing")
    return bool(stops)


class _Trainer(ParallelTrainer):
    """Trains in the first round ahead of time, once. Counts the rounds of a campaign that a task resumes."""

    first: tuple[Weights, int] | NothingToContribute | None = None
    done = 0

    def train_first(self, start: Weights) -> None:
        self.units = 0  # not known yet
        try:
            self.first = super().train(start, {}, 1)
        except NothingToContribute as nothing:
            self.first = nothing

    def count_first(self) -> None:
        if isinstance(self.first, tuple) and self.samples is not None:
            self.first = self.first[0], self.counted(self.samples, f"{self.person}, round 1")

    def train(self, arrays: Weights, settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        kept, self.first = self.first, None
        if number != 1 or kept is None:
            return super().train(arrays, settings, number + self.done)
        if isinstance(kept, NothingToContribute):
            raise kept
        return kept

    def evaluate(self, arrays: Weights, number: int) -> dict[str, float]:
        return super().evaluate(arrays, number + self.done)


def _notes(form: ModelForm, history: Sequence[SimulatedRound]) -> list[str]:
    notes = []
    if form.kept:
        notes.append(f"integers, and what holds no number, are not averaged: {', '.join(form.kept)}")
    for what, words in (
        ("clipped", "had weights clipped: raise `clip`"),
        ("scaled", "had updates scaled down to `max_norm`: raise it"),
        ("rejected", "had updates left out by the servers"),
    ):
        rounds = {one.number: list(getattr(one, what)) for one in history if getattr(one, what)}
        notes += [f"round {number}: {', '.join(names)} {words}" for number, names in rounds.items()]
    notes += [f"round {one.number} was given up: too few took part" for one in history if not one.is_averaged]
    return notes
