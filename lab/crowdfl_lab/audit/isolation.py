"""The requester signs the invitations, and so chooses the crowd.

With empty phones of its own beside one honest one, the average is that one's model, or a known part of it.

No protocol prevents it; a phone of its own accord takes no part in a task that may average fewer people than it accepts. Run on
the roles themselves: KGC, both servers, the requester and every phone.
"""

import numpy as np

from crowdfl.crypto.compute import default_backend
from crowdfl.documents.signed import Definition
from crowdfl.errors import TooFewParticipants
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.profile import Tools
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.core import SpOptions
from crowdfl.settings import LEAST_PARTICIPANTS, TaskSettings
from crowdfl.simulation.host import Host
from crowdfl_lab.audit.finding import HARDENED, WEIGHT, Attack, Finding, Floats, found_in

_FOREVER = 10.0**9  # seconds
_WEIGHTS = np.array([0.12, -0.99, 0.46, -0.35, 0.75, 0.25])
_SAMPLES = 7
_EMPTY = ("empty 1", "empty 2")
_TITLE = "a participant's model, by the requester with two empty phones"
_ISOLATION = Attack("isolation", "new", _TITLE, ("requester",), WEIGHT)


def attack_isolation(key_bits: int = 512, profile: str = HARDENED) -> list[Finding]:
    """A task of at least three participants; the phone takes part from one on, and from its default on."""
    own = {"key_bits": key_bits, "lanes": 0} if profile == HARDENED else {"lanes": 128, "max_norm": 2.0, "decimals": 6}
    settings = TaskSettings.of(profile=profile, max_participants=5, max_samples=10, clip=1.0, rounds=1, **own)
    return [
        _isolate(f"{profile}, a phone that accepts any crowd", settings, 1),
        _isolate(profile, settings, LEAST_PARTICIPANTS),
    ]


def _isolate(subject: str, settings: TaskSettings, least: int) -> Finding:
    tools = Tools(default_backend(), insecure_test_key=True)
    host = Host(tools, options=SpOptions(tools, checker=tools.backend, min_claim_window=0.0, opens_rounds=False))
    task = _post(host, settings)
    phone = host.new_participant(task, "victim")
    phone.least_participants = least
    guess, recovered = None, ""
    (invitation,) = host.requester.invite(task, 1, _FOREVER)
    try:
        phone.join(invitation)
    except TooFewParticipants as refusal:
        recovered = f"the phone does not join: {type(refusal).__name__}"
    else:
        guess = _average(host, task, phone)
        recovered = found_in(guess, _WEIGHTS, "weights to 6 decimals", 0.999e-6)
    note = f"min_participants = {settings.min_participants}; the phone takes part from {least} on"
    return _ISOLATION.score(subject, guess, np.zeros(len(_WEIGHTS)), _WEIGHTS, recovered, note)


def _post(host: Host, settings: TaskSettings) -> str:
    words, shape = "a task of the audit", ModelShape(("w",), ((len(_WEIGHTS),),))
    definition = Definition(words, words, words, shape, settings, int(_FOREVER), {})
    return host.create(definition, [np.zeros(len(_WEIGHTS))])


def _average(host: Host, task: str, phone: Participant) -> Floats:
    """A round of the victim and of phones that have nothing: what is left of the average when they are taken out."""
    for name in _EMPTY:
        host.join(task, name)
    number = host.sp.steps.open(task, 0, final=True)
    phone.encrypt(number, [_WEIGHTS], _SAMPLES)
    phone.send(number)
    claimed = sum(_send_nothing(host, task, number, host.people[name]) for name in _EMPTY)
    while not host.sp.store.round(task, number).is_over:
        host.sp.tick()
    average = host.requester.read(task, number)
    return average.weights * (1 + claimed / (_SAMPLES if average.total is None else average.total - claimed))


def _send_nothing(host: Host, task: str, number: int, phone: Participant) -> int:
    """Zeros; and no samples, as no honest phone does, or one where an upload without is left out. How many."""
    if not isinstance(phone.side, HardenedParticipant):
        phone.encrypt(number, [np.zeros(len(_WEIGHTS))], 1)
        phone.send(number)
        return 1
    party = phone.side.party
    zeros = party.encrypt([0] * phone.side.upload_randomizers())
    host.sp.uploads.one(task, number, phone.keys.who, phone.side.sign_upload(zeros, number))
    return 0
