"""`crowdfl.simulate`: federated learning with somebody's own two functions, every role of CrowdFL, and no network."""

import inspect
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from crowdfl.documents.signed import Definition
from crowdfl.errors import (
    NothingToAverage,
    NothingToContribute,
    NotReady,
    SettingsError,
)
from crowdfl.learning.functions import (
    NOT_METRICS,
    EvaluateFunction,
    FunctionRaised,
    FunctionTrainer,
    TrainFunction,
    TrainingInfo,
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
from crowdfl.simulation.result import Shown, SimulatedRound, SimulationResult, shown
from crowdfl.storage.model_files import read_initial

_CLAIM_WINDOW = 10.0**9  # seconds: nobody is late in one process


def simulate(  # noqa: PLR0913 -- each has its own meaning, and most their own default
    train: TrainFunction,
    evaluate: EvaluateFunction | None,
    data: Mapping[str, Any] | Sequence[Any],
    *,
    rounds: int = 5,
    profile: str = "shares",
    initial: Any = None,  # noqa: ANN401 -- any form that a model has
    dropouts: Dropouts = 0.0,
    fraction: float | None = None,
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
            `TrainingInfo`. It returns the trained model, `(model, samples)`, or an `Update`. Without samples the length of
            the data counts: of arrays that belong together, as in `(inputs, labels)`, their common length.
        evaluate: Your evaluating function, `evaluate(model, data)`: a dictionary of numbers, a number, or None. A number
            called `samples` says how much a person's metrics count. None evaluates nothing.
        data: Everyone's data: a dictionary by name, or a list (people are then `person-1` and so on). What it holds is handed
            to your functions as it is.
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
        progress: True shows it, False does not; None, the default, shows it on a terminal and in a notebook.
        seed: Of the dropouts, of who is drawn, and of `info.seed`.
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
    require_functions(train, evaluate)
    people = _named(data)
    require_enough(list(people))
    asked: dict[str, Any] = {**settings, "rounds": rounds, "profile": profile}
    if fraction is not None:
        asked["per_round"] = _share_of(people, fraction, asked)
    try:
        simulation = _Simulation(train, evaluate, people, asked, seed, insecure_test_key)
        away = away_in(dropouts, list(people), rounds, seed)
        with shown(progress, len(people), rounds) as told:
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
    people: dict[str, Any]
    asked: dict[str, Any]
    seed: int
    insecure_test_key: bool
    _told: set[int] = field(default_factory=set)

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
        form = ModelForm.of(model)
        start = form.arrays(model)
        trainers = self._trainers(form)
        self._train_first(trainers, start, away, told)
        trained = [trainer.first[0] for trainer in trainers.values() if isinstance(trainer.first, tuple)]
        samples = [trainer.weight for trainer in trainers.values()]
        settings = settings_for(self.asked, form.shape, start, trained, samples)
        words = "a simulation in one process"
        definition = Definition(words, words, words, form.shape, settings, _CLAIM_WINDOW, {})

        def on_change(crowd: SimulatedCrowd) -> None:
            self._tell(crowd, told)

        key = self.insecure_test_key
        draw = seeded_draw(self.seed)
        crowd = SimulatedCrowd(definition, start, trainers, away, insecure_test_key=key, draw=draw, on_change=on_change)
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
        missing = away(1) if self.asked.get("strategy") != "retransmit" else frozenset()
        if (count := self.asked.get("per_round")) is not None:
            missing |= self.people.keys() - set(seeded_draw(self.seed)(1, list(self.people), count))
        for done, (name, trainer) in enumerate(trainers.items(), 1):
            if name not in missing:
                trainer.train_first(start)
            told.trained(1, done)

    def _tell(self, crowd: SimulatedCrowd, told: Shown) -> None:
        for round_ in crowd.rounds():
            if not round_.is_over and round_.number > 1:  # the first was told of when it was trained
                told.trained(round_.number, len(crowd.log.of("trained", round_.number)))
            elif round_.is_over and round_.number not in self._told and self._is_read(crowd, round_.number):
                self._told.add(round_.number)
                told.finished(self._round(crowd, round_))

    def _is_read(self, crowd: SimulatedCrowd, number: int) -> bool:
        """By everyone who can now; the last average is the requester's, and is told of at the end."""
        if number == crowd.settings.rounds:
            return False
        return number + 1 in crowd.log.ended or len(crowd.log.of("read", number)) >= len(self.people) - len(crowd.away)

    def _round(
        self, crowd: SimulatedCrowd, round_: Round, metrics: Mapping[str, float] | None = None
    ) -> SimulatedRound:
        number, log, averaged = round_.number, crowd.log, round_.state is RoundState.REWARDED
        trained, read = log.of("trained", number), log.of("read", number)
        values = [
            ({key: value for key, value in details.items() if key not in NOT_METRICS}, log.weights[number, name])
            for name, details in read.items()
        ]
        participants = crowd.averaged(number) if averaged else ()
        sampled = crowd.sampled(number)
        away = log.dropped[number].intersection(sampled or self.people).difference(participants)
        rewards = {name: from_millionths(one["millionths"]) for name, one in log.of("rewarded", number).items()}
        return SimulatedRound(
            number=number,
            metrics=weighted_mean(values) if metrics is None else metrics,
            participants=participants,
            sampled=sampled,
            dropped=tuple(name for name in self.people if name in away),
            late=tuple(log.late[number]),
            rejected=crowd.rejected(number),
            clipped={name: one["clipped"] for name, one in trained.items() if one["clipped"]},
            scaled={name: one["scaled"] for name, one in trained.items() if "scaled" in one},
            rewards=rewards,
            seconds=log.ended[number] - log.began[number],
            bytes_up=log.up[number],
            bytes_down=log.down[number],
            is_averaged=averaged,
        )

    def _result(self, crowd: SimulatedCrowd, form: ModelForm, told: Shown) -> SimulationResult:
        rounds = crowd.rounds()
        done = [round_.number for round_ in rounds if round_.state is RoundState.REWARDED]
        if not done:
            if empty := [name for name in self.people if crowd.log.of("nothing to contribute", 1).get(name)]:
                raise NothingToAverage(f"nobody could be averaged: {', '.join(empty[:3])} had no samples to train on")
            raise NothingToAverage(
                f"no round found {crowd.settings.min_participants} participants: lower `dropouts` or `min_participants`"
            )
        arrays, notes = self._last_model(crowd, done[-1])
        last = weighted_mean([(trainer.evaluate(arrays), trainer.weight) for trainer in crowd.trainers.values()])
        history = tuple(self._round(crowd, one, last if one.number == done[-1] else None) for one in rounds)
        for round_ in history:
            if round_.number not in self._told:
                told.finished(round_)
        rewards = {name: from_millionths(crowd.log.paid.get(name, 0)) for name in self.people}
        return SimulationResult(
            model=form.model(arrays),
            history=history,
            rewards=rewards if crowd.settings.budget is not None else {},
            costs=crowd.costs(),
            notes=(*_notes(form, history), *notes),
            settings=crowd.settings,
        )

    def _last_model(self, crowd: SimulatedCrowd, number: int) -> tuple[Weights, list[str]]:
        try:
            return crowd.host.requester.model(crowd.task), []
        except NotReady:  # only the last average is the requester's, and that round was given up
            reader = next(iter(crowd.people.values()))
            return reader.model(), [f"the last round was given up: the model is the average of round {number}"]


class _Trainer(FunctionTrainer):
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
