"""One round of a finished campaign once more, on its people's own updates: under `shares` again, by equal parts and by the
paper's Eq. 10, and under `hardened`, which pays by Eq. 10 alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from crowdfl.crypto.compute import default_backend
from crowdfl.learning.oracle import distances, rewards
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import MILLION, TaskSettings, from_millionths, to_millionths
from crowdfl.simulation.sides import Parties
from crowdfl_lab.demo.plain import Plain, Row, row_of
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.plots import Canvas, Picture, panels
from crowdfl_lab.report.results import Cell, Figure, ResultTable

HARDENED_LANES = 112  # of the sketch that estimates distances: within about a tenth
_LANES = 4096  # of that of `shares`, which costs it little: within about a fortieth
_SHOWN = 3  # weights
_NUMBER = 1  # the round that has everyone's upload
_KEPT = ("decimals", "clip", "max_participants", "max_samples", "min_participants", "rounds", "budget", "key_bits")
_Updates = Mapping[int, tuple[Row, int]]  # a person's model, and as how many samples it counts


@dataclass(frozen=True)
class PlayedAgain:
    """What a round gave, and what it cost: seconds of work by role, bytes by sender and receiver."""

    average: Row
    rewards: Mapping[int, int]
    seconds: Mapping[str, float]
    sent: Mapping[tuple[str, str], int]
    dealt_once: int
    dealt_a_round: int


@dataclass(frozen=True)
class BothRounds:
    """A round of `shares`, the same with pay by distance, and the same of `hardened`; `published` is the average that the
    campaign's own readers have."""

    shares: PlayedAgain
    by_distance: PlayedAgain
    hardened: PlayedAgain
    published: Row = field(repr=False)
    updates: _Updates = field(repr=False)
    budget: int
    decimals: int

    @property
    def apart(self) -> Row:
        return np.asarray(np.abs(self.shares.average - self.hardened.average))


def play_both(plain: Plain, settings: TaskSettings, published: Row, *, insecure_test_key: bool = False) -> BothRounds:
    """Of the first round: people train as they did then, from the same model."""
    initial = row_of(plain.averages[0])
    trained = plain.trained(plain.averages[0], _NUMBER)
    updates = {who: (_shortened(model, initial, settings), samples) for who, (model, samples) in trained.items()}
    counted = {who: (model, plain.count(samples)) for who, (model, samples) in updates.items()}
    paper: dict[str, object] = {name: getattr(settings, name) for name in _KEPT}
    hardened = TaskSettings.of(profile="hardened", lanes=HARDENED_LANES, **paper)
    first = play_again(settings, trained, initial, insecure_test_key=insecure_test_key)
    # Distances rest on numbers of samples: where everyone counts once, everyone says one.
    rule = {"pay": "distance", "weighting": "samples", "lanes": _LANES}
    paid = TaskSettings.of(**settings.model_dump(exclude_none=True) | rule)
    by_distance = play_again(paid, counted, initial, insecure_test_key=insecure_test_key)
    second = play_again(hardened, counted, initial, insecure_test_key=insecure_test_key)
    return BothRounds(
        first, by_distance, second, published, counted, to_millionths(settings.budget or 0), settings.decimals
    )


def _shortened(model: Row, initial: Row, settings: TaskSettings) -> Row:
    """As a phone shortens an update that is longer than the task allows."""
    change, bound = model - initial, settings.max_norm
    length = float(np.linalg.norm(change))
    return model if bound is None or length <= bound else np.asarray(initial + change * (bound / length))


def play_again(
    settings: TaskSettings, updates: _Updates, initial: Row, *, insecure_test_key: bool = False
) -> PlayedAgain:
    """Every party in this process, each with its own keys; what passes between them are the messages of a campaign."""
    recorder = RoundRecorder(keep_messages=True)
    tools = Tools(default_backend(), insecure_test_key=insecure_test_key, observer=recorder)
    parties = Parties(TaskSpec("demo", settings, len(initial)), tools, initial=initial)
    names = {f"p{who}": update for who, update in updates.items()}
    played = parties.play(_NUMBER, parties.encrypt(names), payment=to_millionths(settings.budget or 0))
    sent: Counter[tuple[str, str]] = Counter()
    for sender, receiver, message in recorder.messages:
        sent[sender, receiver] += len(message)
    dealing = parties.dealing
    files = [parties.dealt(role, _NUMBER) for role in ("sp", "csp")]
    return PlayedAgain(
        np.asarray(played.average.weights),
        {int(name[1:]): amount for name, amount in played.rewards.items()},
        {role: recorder.seconds_of(role) for role in ("participant", "SP", "CSP")},
        sent,
        sum(map(len, (dealing.sp, dealing.csp, dealing.requester, dealing.participant))),
        sum(map(len, files)),
    )


def both_words(both: BothRounds) -> str:
    work = [Figure(one.seconds["SP"] + one.seconds["CSP"], "s") for one in (both.shares, both.hardened)]
    return (
        "One round twice: the averages of `shares` and of `hardened` (the paper's cryptosystem, with its leaks closed) are at "
        f"most {both.apart.max():.1e} apart. The servers worked {work[0]} and {work[1]}."
    )


def both_tables(both: BothRounds) -> tuple[ResultTable, ...]:
    return _weights(both), _pay(both), _costs(both)


def _weights(both: BothRounds) -> ResultTable:
    furthest, size = int(np.argmax(both.apart)), len(both.published)
    rows = tuple(
        (
            f"{place + 1:,}",
            *(f"{one[place]:.8f}" for one in (both.shares.average, both.hardened.average)),
            f"{both.apart[place]:.1e}",
        )
        for place in (*range(min(_SHOWN, size)), furthest)
    )
    same = int(np.sum(both.shares.average == both.published))
    note = (
        f"The updates of round {_NUMBER}, averaged twice. The last row is the weight that is furthest apart. A weight has "
        f"{both.decimals} decimals in `shares`. These are the campaign's updates: averaged once more by `shares`, they give "
        f"what its readers have, {same:,} of {size:,} weights to the last bit."
    )
    columns = ("weight", "shares: additive shares", "hardened: threshold Paillier", "apart")
    return ResultTable("One round twice: the average", columns, rows, note)


def _in_the_clear(both: BothRounds) -> tuple[Row, Row]:
    """What Eq. 10 pays, and how far everyone is from the average."""
    models, counts = ([update[place] for update in both.updates.values()] for place in (0, 1))
    away = np.sqrt(distances(models, both.hardened.average))
    return rewards(models, [int(count) for count in counts], float(from_millionths(both.budget))), away


def _pay(both: BothRounds) -> ResultTable:
    clear, away = _in_the_clear(both)
    rows = tuple(
        (
            f"person {who}",
            *(money(one.rewards.get(who)) for one in (both.shares, both.by_distance, both.hardened)),
            f"{paid:.6f}",
            f"{far:.3f}",
        )
        for who, paid, far in zip(both.updates, clear, away, strict=True)
    )
    note = (
        "Equal parts pay everyone alike who is in the average. Eq. 10, in `shares` the setting pay = distance, pays more to "
        "whoever is closer to it. The servers see neither models nor distances nor rewards; they estimate squared distances "
        f"from {_LANES:,} sums of weights in `shares`, {HARDENED_LANES} in `hardened`."
    )
    columns = (
        "participant",
        "shares: equal parts",
        "shares: Eq. 10",
        "hardened: Eq. 10",
        "Eq. 10 in the clear",
        "distance",
    )
    return ResultTable("One round twice: the pay", columns, rows, note)


def pay_picture(both: BothRounds) -> Picture:
    """Everyone's part by each rule."""
    clear, _ = _in_the_clear(both)
    paid = {
        name: [one.rewards.get(who, 0) / MILLION for who in both.updates]
        for name, one in (
            ("shares: equal parts", both.shares),
            ("shares: Eq. 10", both.by_distance),
            ("hardened: Eq. 10", both.hardened),
        )
    }

    def draw(figure: Canvas) -> None:
        (axes,) = panels(figure, 1)
        people = range(len(both.updates))
        for (name, amounts), style in zip(paid.items(), ("_-", "o", "s"), strict=True):
            axes.plot(people, amounts, style, label=name)
        axes.plot(people, clear, "kx", label="Eq. 10, in the clear")
        axes.set(xlabel="person", ylabel="reward of one round")
        axes.set_xticks(people, [str(who) for who in both.updates])
        axes.legend()

    return Picture("demo-pay", "One round twice: who is paid what, by each rule", draw, (4.8, 3.4))


def _costs(both: BothRounds) -> ResultTable:
    people, pair = len(both.updates), (both.shares, both.hardened)
    between = [one.sent["SP", "CSP"] + one.sent["CSP", "SP"] for one in pair]
    figures: dict[str, list[Cell]] = {
        "work of each participant": [Figure(one.seconds["participant"] / people, "s") for one in pair],
        "work of SP": [Figure(one.seconds["SP"], "s") for one in pair],
        "work of CSP": [Figure(one.seconds["CSP"], "s") for one in pair],
        "an upload": [Figure(one.sent["participant", "SP"] / people, "B") for one in pair],
        "between SP and CSP": [Figure(size, "B") for size in between],
        "dealt by KGC, once": [Figure(one.dealt_once, "B") for one in pair],
        "dealt by KGC for the round": [Figure(one.dealt_a_round, "B") for one in pair],
    }
    rows = tuple((name, *cells) for name, cells in figures.items())
    note = "Both in one process, one after the other: seconds of this machine, without network, disk and training."
    return ResultTable("One round twice: what it cost", ("", "shares", "hardened"), rows, note)


def money(millionths: int | None) -> str:
    return "-" if millionths is None else f"{from_millionths(millionths):.6f}"
