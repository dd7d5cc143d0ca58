"""`crowdfl.simulate`: federated learning with somebody's own two functions, every role of CrowdFL, and no network."""

import copy
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from crowdfl.documents.signed import Definition
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
    weighted_mean,
)
from crowdfl.learning.models.forms import ModelForm, dictionary_form
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import Round, RoundState
from crowdfl.settings import TaskOptions, TaskSettings, from_millionths, option_words, to_millionths
from crowdfl.simulation.bounds import require_enough, settings_for
from crowdfl.simulation.crowd import Away, Dropouts, SimulatedCrowd, away_in, seeded_draw
from crowdfl.simulation.parallel import ParallelTrainer, Workers
from crowdfl.simulation.result import FinishedRound, Shown, SimulatedRound, SimulationResult, shown
from crowdfl.storage.model_files import read_initial

_CLAIM_WINDOW = 10.0**9  # seconds: nobody is late in one process


def simulate(  # noqa: PLR0913 -- one call says all of a campaign; each has a name
    train: TrainFunction,
    evaluate: EvaluateFunction | None,
    data: Mapping[str, Any] | Sequence[Any],
    *,
    evaluate_central: EvaluateFunction | None = None,
    on_round: Callable[[FinishedRound], bool | None] | None = None,
    rounds: int = 5,
    profile: str = "shares",
    initial: Any = None,  # noqa: ANN401 -- any form that a model has
    dropouts: Dropouts = 0.0,
    fraction: float | None = None,
    personalize: Sequence[str] = (),
    workers: int = 1,
    device: str | Sequence[str] | None = None,
    progress: bool | None = None,
    seed: int = 0,
    insecure_test_key: bool = False,
    **settings: Unpack[TaskOptions],
) -> SimulationResult:
    """Run a whole campaign in this process: people train, the servers average what they cannot read, everyone reads on.

    Every role is the real one: KGC deals keys, the platform (SP) and the computation server (CSP) add up encrypted or shared
    updates, and each person is a participant whose agent joins, trains, uploads, reads averages and claims rewards. Only the
    network is missing. The result equals plain federated averaging up to the decimals that the task keeps.

    Args:
        train: Your training function: `train(model, data)`, `train(model)` or `train(model, data, info)`, where `info` is a
            `TrainingInfo`. It returns the trained model, `(model, samples)`, `(model, samples, metrics)`, or an `Update`.
            Without samples the length of the data counts: of arrays that belong together, as in `(inputs, labels)`, their
            common length. Metrics of training are in the result; in a campaign they stay on each device.
        evaluate: Your evaluating function, `evaluate(model, data)` or `evaluate(model, data, info)`: a dictionary of numbers,
            a number, or None. A number called `samples` says how much a person's metrics count. None evaluates nothing.
        data: Everyone's data: a dictionary by name, or a list (people are then `person-1` and so on). What it holds is handed
            to your functions as it is.
        evaluate_central: Evaluates each round's model once, on a test set of the requester's: `f(model)` or `f(model, info)`.
        on_round: Called with a `FinishedRound` after each round, for logs, checkpoints and early stopping: if it returns True,
            no further round begins, what was earned is claimed, and the model stays.
        rounds: How many rounds.
        profile: "shares" (the default: two servers, no keys, fast), "hardened" (Paillier encryption) or "paper" (as printed).
        initial: The model that everyone starts from: a list of arrays, an array, a dictionary, a torch `state_dict`, or the
            path of a file that `save` has written. Your functions are handed models of the same form and types. Without it,
            `train(None, data of the first person)` makes it. Integers in a dictionary, such as BatchNorm's
            `num_batches_tracked`, are not averaged: each person keeps its own, and the resulting model has the initial ones.
        dropouts: Who is away: a share of the people, drawn anew in each round; a dictionary of names and the rounds that they
            miss; or a function `(round, name)`. With `strategy="retransmit"` their updates come late and are taken.
        fraction: Client sampling: this share of the people, drawn anew, is in each round, in place of `per_round`, which says
            how many are. Who is not drawn is no dropout.
        personalize: Layers that stay with each person (FedPer): names in a dictionary or `state_dict`, or patterns such as
            `head.*`. They are neither sent nor averaged; your functions get each person's own, and `result.personal` has them.
        workers: How many people train and evaluate in parallel, each in a process of its own that is forked from this one, with
            one torch thread; functions of a notebook too. The result is the same for any number. What a function changes
            outside of its person's data stays in its process. 1, the default, does everything in this process.
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

    What your functions raise comes out as it is, with a note whose data it was. An interruption (Ctrl-C) ends everything.
    """
    require_functions(train, evaluate, evaluate_central=evaluate_central, on_round=on_round)
    people = _named(data)
    require_enough(list(people))
    asked: dict[str, Any] = {**settings, "rounds": rounds, "profile": profile}
    if fraction is not None:
        asked["per_round"] = _share_of(people, fraction, asked)
    try:
        simulation = _Simulation(
            train, evaluate, evaluate_central, on_round, people, asked, seed, insecure_test_key, personalize
        )
        away = away_in(dropouts, list(people), rounds, seed)
        with shown(progress, len(people), rounds) as told, Workers(workers, device) as simulation.workers:
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


def _named(data: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    if isinstance(data, Mapping):
        if wrong := [name for name in data if not isinstance(name, str) or not name]:
            raise SettingsError(f"{wrong[0]!r} is not a name: people are called by strings")
        return dict(data)
    batches = hasattr(data, "dataset")  # a torch DataLoader: its batches are not people
    if batches or isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise SettingsError(
            f"`data` is a {type(data).__name__}; expected a dictionary or a list with everyone's data, an entry for each person"
        )
    return {f"person-{number}": one for number, one in enumerate(data, 1)}


@dataclass
class _Simulation:
    train: TrainFunction
    evaluate: EvaluateFunction | None
    evaluate_central: EvaluateFunction | None
    on_round: Callable[[FinishedRound], bool | None] | None
    people: dict[str, Any]
    asked: dict[str, Any]
    seed: int
    insecure_test_key: bool
    personalize: Sequence[str] = ()
    workers: Workers = field(default_factory=lambda: Workers(1, None))
    _history: list[SimulatedRound] = field(default_factory=list)

    def run(self, initial: Any, away: Away, told: Shown) -> SimulationResult:  # noqa: ANN401
        began = time.perf_counter()
        checked = TaskSettings.of(**{"max_participants": len(self.people)} | self.asked)  # before anything is trained
        if checked.budget is not None and not to_millionths(checked.budget):
            del self.asked["budget"]  # nothing to pay is no budget
        profile_named(self.asked["profile"])
        model = initial if initial is not None else self._first_model()
        if isinstance(model, str | os.PathLike):
            arrays = read_initial(Path(model))
            model = dictionary_form(ModelShape.of(arrays)).model(list(arrays.values()))
        form = ModelForm.of(model, self.personalize)
        start = form.arrays(model)
        trainers = self._trainers(form)
        self.workers.start(trainers)
        self._train_first(trainers, start, away, told)
        trained = [trainer.first[0] for trainer in trainers.values() if isinstance(trainer.first, tuple)]
        samples = [trainer.weight for trainer in trainers.values()]
        settings = settings_for(self.asked, form.shape, start, trained, samples)
        words = "a simulation in one process"
        definition = Definition(words, words, words, form.shape, settings, _CLAIM_WINDOW, {})

        def on_change(crowd: SimulatedCrowd) -> None:
            number = crowd.rounds()[-1].number if crowd.rounds() else 1
            if number > 1:  # the first was told of when it was trained
                told.trained(number, len(crowd.log.of("trained", number)))

        def on_read(crowd: SimulatedCrowd, round_: Round) -> bool:
            arrays = next(iter(crowd.people.values())).model()
            stops = self._finish(crowd, round_, form, arrays, told)
            for trainer in () if stops else self._present(trainers, away, round_.number + 1):
                trainer.begin("train", arrays, round_.number + 1)
            return stops

        crowd = SimulatedCrowd(
            definition,
            start,
            trainers,
            away,
            insecure_test_key=self.insecure_test_key,
            draw=seeded_draw(self.seed),
            on_change=on_change,
            on_read=on_read,
        )
        crowd.log.began[1] = began
        crowd.run()
        return self._result(crowd, form, told)

    def _first_model(self) -> Any:  # noqa: ANN401
        name, data = next(iter(self.people.items()))
        return first_model(self.train, data, TrainingInfo.of(0, self.asked["rounds"], name, self.seed))

    def _trainers(self, form: ModelForm) -> dict[str, "_Trainer"]:
        rounds, seed = self.asked["rounds"], self.seed
        return {
            name: _Trainer(self.train, self.evaluate, data, form, name, rounds, seed)
            for name, data in self.people.items()
        }

    def _train_first(self, trainers: Mapping[str, "_Trainer"], start: Weights, away: Away, told: Shown) -> None:
        """Everyone's training of round 1, before the task is made: its bounds follow from what it changes."""
        present = self._present(trainers, away, 1)
        for trainer in present:
            trainer.begin("train", start, 1)
        for done, trainer in enumerate(present, 1):
            trainer.train_first(start)
            told.trained(1, done)

    def _present(self, trainers: Mapping[str, "_Trainer"], away: Away, number: int) -> list["_Trainer"]:
        """Who will train in a round."""
        missing = away(number) if self.asked.get("strategy") != "retransmit" else frozenset()
        if (count := self.asked.get("per_round")) is not None:
            missing |= self.people.keys() - set(seeded_draw(self.seed)(number, list(self.people), count))
        return [trainer for name, trainer in trainers.items() if name not in missing]

    def _finish(self, crowd: SimulatedCrowd, round_: Round, form: ModelForm, arrays: Weights, told: Shown) -> bool:
        """Keep a round that is over and read, and tell of it. True: no further round."""
        record = self._round(crowd, round_)
        model, averaged = form.model(arrays), record.is_averaged
        if self.evaluate_central is not None and averaged:
            info = TrainingInfo.of(record.number, self.asked["rounds"], "", self.seed)
            record = replace(record, central=central_metrics(self.evaluate_central, model, info))
        record = replace(record, seconds=time.perf_counter() - crowd.log.began[round_.number])
        self._history.append(record)
        crowd.log.forget(round_.number)
        told.finished(record)
        if self.on_round is None:
            return False
        stops = self.on_round(FinishedRound(**vars(record), model=model, costs=copy.deepcopy(crowd.costs())))
        if not (stops is None or isinstance(stops, bool | np.bool_)):
            raise SettingsError(f"`on_round` returned a {type(stops).__name__}; expected True, which stops, or nothing")
        return bool(stops)

    def _round(self, crowd: SimulatedCrowd, round_: Round) -> SimulatedRound:
        number, log, averaged = round_.number, crowd.log, round_.state is RoundState.REWARDED
        trained, read = log.of("trained", number), log.of("read", number)
        by_person = {
            name: {key: value for key, value in details.items() if key not in NOT_METRICS}
            for name, details in read.items()
        }
        participants = crowd.averaged(number) if averaged else ()
        sampled = crowd.sampled(number)
        away = log.dropped[number].intersection(sampled or self.people).difference(participants)
        rewards = {name: from_millionths(one["millionths"]) for name, one in log.of("rewarded", number).items()}
        return SimulatedRound(
            number=number,
            metrics=weighted_mean([(one, log.weights[number, name]) for name, one in by_person.items()]),
            participants=participants,
            sampled=sampled,
            dropped=tuple(name for name in self.people if name in away),
            late=tuple(log.late[number]),
            rejected=crowd.rejected(number),
            clipped={name: one["clipped"] for name, one in trained.items() if one["clipped"]},
            scaled={name: one["scaled"] for name, one in trained.items() if "scaled" in one},
            rewards=rewards,
            bytes_up=log.up[number],
            bytes_down=log.down[number],
            is_averaged=averaged,
            by_person=by_person,
            training=weighted_mean([(one["metrics"], one["samples"]) for one in trained.values()]),
            training_by_person={name: one["metrics"] for name, one in trained.items() if one["metrics"]},
        )

    def _result(self, crowd: SimulatedCrowd, form: ModelForm, told: Shown) -> SimulationResult:
        last, notes = crowd.rounds()[-1], list[str]()
        if last.number > len(self._history):  # the task's last average is the requester's
            arrays = self._last_model(crowd, last)
            self._finish(crowd, last, form, arrays, told)
        else:
            arrays = next(iter(crowd.people.values())).model()
            notes.append(f"`on_round` has stopped the campaign after round {last.number}")
        done = [one.number for one in self._history if one.is_averaged]
        if not done:
            if empty := [name for name in self.people if crowd.log.of("nothing to contribute", 1).get(name)]:
                raise NothingToAverage(f"nobody could be averaged: {', '.join(empty[:3])} had no samples to train on")
            raise NothingToAverage(
                f"no round found {crowd.settings.min_participants} participants: lower `dropouts` or `min_participants`"
            )
        if not self._history[-1].is_averaged:
            notes.append(f"the last round was given up: the model is the average of round {done[-1]}")
        rewards = {name: from_millionths(crowd.log.paid.get(name, 0)) for name in self.people}
        return SimulationResult(
            model=form.model(arrays),
            history=tuple(self._history),
            rewards=rewards if crowd.settings.budget is not None else {},
            costs=crowd.costs(),
            notes=(*_notes(form, self._history), *notes),
            settings=crowd.settings,
            personal={
                name: {entry: value for entry, value in trainer.own.items() if entry in form.personal}
                for name, trainer in crowd.trainers.items()
                if form.personal and trainer.own
            },
        )

    def _last_model(self, crowd: SimulatedCrowd, last: Round) -> Weights:
        """The requester's; everyone evaluates it here. A round that was given up leaves the one before."""
        if last.state is not RoundState.REWARDED:
            return next(iter(crowd.people.values())).model()
        arrays = crowd.host.requester.model(crowd.task)
        for name, trainer in crowd.trainers.items():
            crowd.note_read(name, last.number, trainer.evaluate(arrays, last.number))
        return arrays


class _Trainer(ParallelTrainer):
    """Trains in the first round ahead of time, once."""

    first: tuple[Weights, int] | NothingToContribute | None = None

    def train_first(self, start: Weights) -> None:
        try:
            self.first = super().train(start, {}, 1)
        except NothingToContribute as nothing:
            self.first = nothing

    def train(self, arrays: Weights, settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        kept, self.first = self.first, None
        if number != 1 or kept is None:
            return super().train(arrays, settings, number)
        if isinstance(kept, NothingToContribute):
            raise kept
        return kept


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
