"""A server of Flower's that has a model of its own evaluated on a client's data, or asks it questions of its own.

From the losses of a few chosen models it solves for the data; from the counts in ranges that it chooses it reads the data. What
of a message reaches a client's app is decided by `shown_to_app`, `shown_to_query` and the signed definition; the rest of the
plug-in needs Flower, and is attacked in Flower's environment.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError
from crowdfl.flower.admission import AGREED, ARRAYS, CONFIG, TRAINING, Agreed, kept_digest, shown_to_app, shown_to_query
from crowdfl.learning.models.shape import ModelShape
from crowdfl.settings import TaskSettings
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Floats, Measure, found_in, rms

# The client's one sample; the app's loss of a model is its squared distance.
_DATA = np.array([0.31, -0.62, 0.87, -0.14])
_AVERAGE = np.array([0.05, 0.02, 0.11, -0.03])  # what the client has read of the task
_OFF = Measure(rms, "root mean square error of a number of the client's data; blind: zeros")
_TITLE = "a client's data, by a Flower server that has models of its own evaluated"
_EVALUATED = Attack("evaluated model", "new", _TITLE, ("SP",), _OFF)
_ANSWERING = "shares, a client that answers any query"
_PROBES = [np.zeros(len(_DATA)), *np.eye(len(_DATA))]
_AGES = np.bincount([23, 23, 31, 40, 58, 58, 71], minlength=90)[18:].astype(
    float
)  # how many are of each age from 18 on
_COUNTED = Measure(rms, "root mean square error of the number of people of an age; blind: zeros")
_ASKED = Attack(
    "asked data", "new", "a client's data, by a Flower server that asks queries of its own", ("SP",), _COUNTED
)
Sent = dict[str, tuple[str, Any]]
Shown = Callable[[Agreed, str, str, int, Sent, Callable[[Mapping[str, Any]], Any]], dict[str, Any]]


def attack_evaluations() -> Iterator[Finding]:
    """Each way of putting a model where an app may look for one; the best of them counts."""
    yield _attack("shares, a client that evaluates what it is sent", _as_sent)
    yield _attack(SHARES, shown_to_app)


def _attack(subject: str, shown: Shown) -> Finding:
    agreed, guesses, told = _agreed(), [], []
    for way in (_instead, _besides, _another):
        try:
            losses = [_evaluated(agreed, shown, *way(probe)) for probe in _PROBES]
        except CrowdFLError as refusal:
            told.append(f"{way.__name__[1:]}: {type(refusal).__name__}")
            continue
        told.append(f"{way.__name__[1:]}: {len(losses)} losses")
        guesses.append(np.array([(losses[0] + 1 - loss) / 2 for loss in losses[1:]]))
    guess = min(guesses, key=lambda one: rms(one, _DATA), default=None)
    found = found_in(guess, _DATA, "numbers", 1e-9)
    return _EVALUATED.score(subject, guess, np.zeros(len(_DATA)), _DATA, found, ", ".join(told))


def attack_queries() -> Iterator[Finding]:
    """How many people are of an age, for one age after the other; the owner has signed the question for all of them."""
    agreed = _agreed(query_config={"from": 18, "to": 90})
    for subject, shown in (
        (_ANSWERING, lambda _agreed, _asked, sent: _as_sent(agreed, "", "", 0, sent, None)),
        (SHARES, None),
    ):
        found, refused = np.zeros(len(_AGES)), 0
        for place in range(len(_AGES)):
            sent = {"config": (CONFIG, {"from": 18 + place, "to": 19 + place})}
            try:
                asked = (shown or shown_to_query)(agreed, "query", sent)["config"]
            except CrowdFLError:
                refused += 1
                continue
            found[place] = _AGES[asked["from"] - 18 : asked["to"] - 18].sum()
        guess = None if refused == len(_AGES) else found
        note = f"{refused} of {len(_AGES)} questions refused"
        yield _ASKED.score(subject, guess, np.zeros(len(_AGES)), _AGES, found_in(guess, _AGES, "ages"), note)


def _agreed(**more: Any) -> Agreed:  # noqa: ANN401 -- fields of it
    """As the client reads it, from the definition that the task's owner has signed."""
    agreed = Agreed(kept=kept_digest({}), train_config={"lr": 0.1}, run_config={}, **more)
    words, shape = "a task of the audit", ModelShape(("weight",), (_DATA.shape,))
    settings = TaskSettings.of(profile=SHARES, max_norm=2.0)
    made = Definition(words, words, words, shape, settings, 10**9, {TRAINING: {AGREED: agreed.to_json()}})
    owner = SigningKey.fresh()
    signed = replace(made, requester=owner.public).dated(0.0).sign(owner)
    return Agreed.from_json(Definition.open(signed).training[TRAINING][AGREED])


def _array(values: Floats) -> SimpleNamespace:
    """As Flower's Array has it."""
    return SimpleNamespace(dtype="float64", shape=values.shape, stype="numpy.ndarray", data=values.tobytes())


def _instead(probe: Floats) -> tuple[str, Sent]:
    """Where the app looks, with a word to the client that the task's own is elsewhere."""
    told = {"arrays-key": "elsewhere"}
    return "evaluate", {
        "arrays": (ARRAYS, {"weight": _array(probe)}),
        "elsewhere": (ARRAYS, {}),
        "crowdfl": (CONFIG, told),
    }


def _besides(probe: Floats) -> tuple[str, Sent]:
    return "evaluate", {"arrays": (ARRAYS, {}), "probe": (ARRAYS, {"weight": _array(probe)})}


def _another(probe: Floats) -> tuple[str, Sent]:
    """Another of the app's functions, which takes a model from its settings."""
    return "evaluate.other", {"arrays": (ARRAYS, {}), "config": (CONFIG, {"probe": probe.tolist()})}


def _as_sent(_agreed: Agreed, _kind: str, _asked: str, _number: int, sent: Sent, _model: object) -> dict[str, Any]:
    return {name: record for name, (_, record) in sent.items()}


def _evaluated(agreed: Agreed, shown: Shown, asked: str, sent: Sent) -> float:
    """The loss that a client answers with. Its app takes a model from wherever it may."""
    records = shown(agreed, "evaluate", asked, 1, sent, lambda _kept: {"weight": _array(_AVERAGE)})
    found = records["config"]["probe"] if asked == "evaluate.other" else (records.get("probe") or records["arrays"])
    model = np.array(found) if isinstance(found, list) else np.frombuffer(found["weight"].data)
    return float(((model - _DATA) ** 2).sum())
