"""SP recruits, and so chooses the crowd by itself: it joins the task that it lists, as every participant but one, and reads.

No protocol prevents it; a phone of its own accord takes no part in such a task without noise, unless its owner has said so. Run
on the roles themselves; SP's own phones are the program that everyone has.
"""

import numpy as np

from crowdfl.crypto.compute import default_backend
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import TooFewParticipants
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Tools
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.core import SpOptions
from crowdfl.settings import LEAST_PARTICIPANTS, TaskSettings
from crowdfl.simulation.host import Host
from crowdfl_lab.audit.finding import SHARES, WEIGHT, Attack, Finding, Floats, found_in

_FOREVER = 10.0**9  # seconds
_WEIGHTS = np.array([0.12, -0.99, 0.46, -0.35, 0.75, 0.25])
_OWN = tuple(f"own {number}" for number in range(1, LEAST_PARTICIPANTS))
_TITLE = "a participant's update, by SP that recruits: it is everybody else, and a reader"
_RECRUITED = Attack("recruited crowd", "new", _TITLE, ("SP",), WEIGHT)


def attack_recruited() -> list[Finding]:
    """A task of at least five participants: as many as a phone asks for by default."""
    settings = TaskSettings.of(
        profile=SHARES,
        max_participants=LEAST_PARTICIPANTS,
        min_participants=LEAST_PARTICIPANTS,
        max_samples=10,
        clip=1.0,
        rounds=2,
        lanes=128,
        max_norm=2.0,
        decimals=6,
        weighting="equal",
    )
    return [
        _joined(f"{SHARES}, a phone whose owner takes part all the same", settings, all_the_same=True),
        _joined(SHARES, settings, all_the_same=False),
    ]


def _joined(subject: str, settings: TaskSettings, *, all_the_same: bool) -> Finding:
    tools, key = Tools(default_backend(), insecure_test_key=True), SigningKey.fresh()
    options = SpOptions(tools, checker=tools.backend, min_claim_window=0.0, opens_rounds=False, signing=key)
    host = Host(tools, options=options)
    words, shape = "a task of the audit", ModelShape(("w",), ((len(_WEIGHTS),),))
    definition = Definition(words, words, words, shape, settings, int(_FOREVER), {}, recruits=True)
    task = host.create(definition, [np.zeros(len(_WEIGHTS))])
    phone = host.new_participant(task, "victim")
    phone.least_participants, phone.all_the_same = LEAST_PARTICIPANTS, all_the_same
    guess, recovered = None, ""
    try:
        phone.join("")
    except TooFewParticipants as refusal:
        recovered = f"the phone does not join: {type(refusal).__name__}"
    else:
        guess = _read(host, task, phone)
        recovered = found_in(guess, _WEIGHTS, "weights to 5 decimals", 0.999e-5)
    note = f"min_participants = {settings.min_participants}, of which SP is all but one"
    return _RECRUITED.score(subject, guess, np.zeros(len(_WEIGHTS)), _WEIGHTS, recovered, note)


def _read(host: Host, task: str, phone: Participant) -> Floats:
    """What SP's first phone reads of a round, without what SP's phones have sent: nothing."""
    own = [host.new_participant(task, name) for name in _OWN]
    for one in own:
        one.join("")
    number = host.sp.steps.open(task, 0, final=False)
    phone.encrypt(number, [_WEIGHTS], 1)
    phone.send(number)
    for one in own:
        one.encrypt(number, [np.zeros(len(_WEIGHTS))], 1)
        one.send(number)
    while not host.sp.store.round(task, number).is_over:
        host.sp.tick()
    own[0].step(lambda arrays, _settings, _number: (arrays, 1))
    return np.asarray(own[0].model()[0]) * len(host.sp.store.participants(task))
