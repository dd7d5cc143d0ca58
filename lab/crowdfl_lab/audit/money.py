"""Attacks on what people are paid: a requester that keeps its money, and an SP that has a phone give a reward up.

**A spoilt divisor.** Whoever declares far more samples than the task allows makes its own divisor fail SDIV's guard, and what
CSP opens of it is uniform. If CSP divided by that, every reward would be noise, phones would refuse theirs, and the requester
would have the model and all of its money.

**Time, and copies of the books.** What was earned returns to the requester once the time to claim is over: it must not run
while claims are refused. An SP that was set back has forgotten that money went back, and must not pay it again.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import ceil, sqrt
from typing import Any, cast

import numpy as np

from crowdfl.errors import (
    NotReady,
    RewardOutOfRange,
    RoundEnded,
    ServiceUnavailable,
    TaskEnded,
    TooLate,
    UnknownParticipant,
)
from crowdfl.protocols.common.sdiv import SdivWidths
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.reasons import Reason
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.restored import mark_restored_sp, reconcile
from crowdfl.roles.sp.retention import NoParts, SpRetention
from crowdfl.settings import DAY
from crowdfl.simulation.host import Host
from crowdfl_lab.audit.copied_disk import CopiedDisk
from crowdfl_lab.audit.finding import HARDENED, WEIGHT, Attack, Finding, Floats, Measure, found_in, relative
from crowdfl_lab.audit.recorded_round import (
    PAYMENT,
    SMALL_PEOPLE,
    SMALL_SIZE,
    SMALL_WINDOW,
    HardenedParties,
    send_updates,
    small_host,
    small_parties,
    small_updates,
)
from crowdfl_lab.audit.shares.deviating_round import weakened

_VICTIM = "p1"
_LOOKS = 10  # at what can be claimed, four a day
_FREE = Attack(
    "free model",
    "new",
    "a model that nobody is paid for, by a requester with one phone",
    ("requester", "participant"),
    WEIGHT,
)
_KEPT = Measure(relative, "relative error of what the attacker gains; blind: it gains nothing")
_PAUSE = Attack("pause", "new", "what was earned, by a requester that pauses and waits for CSP", ("requester",), _KEPT)
_GIVEN_UP = Attack("reward given up", "new", "a phone's reward, by SP with one false answer", ("SP",), _KEPT)
_TWICE = "money that was returned, by a requester of an SP that was restored"
_RESTORED = Attack("money returned twice", "new", _TWICE, ("requester",), _KEPT)


def attack_free_model(key_bits: int = 1100) -> Iterator[Finding]:
    """With a CSP that divides by whatever it opens, and as built."""
    for subject in ("hardened, any divisor", HARDENED):
        with weakened(subject, *((SdivWidths, name, lambda _widths, _number: True) for name in ("takes", "gives"))):
            yield _take_model(subject, small_parties(key_bits, max_participants=len(SMALL_PEOPLE) + 1))


def _take_model(subject: str, parties: HardenedParties) -> Finding:
    """The attacker knows about how long the sum is: an earlier round shows it."""
    base, settings = small_updates()[_VICTIM][0] / 2, parties.spec.settings
    trained = {who: (base + 0.01 * place, 6) for place, who in enumerate(SMALL_PEOPLE)}
    total = sum(samples for _, samples in trained.values())
    together = float(np.linalg.norm(base)) * total * 10**settings.decimals
    declared = ceil(sqrt(2 ** (reward_widths(settings, SMALL_SIZE).weights.ybits + 3.1)) / together)
    phone = cast(HardenedParticipant, parties.participant("own"))
    own = phone.sign_upload(phone.party.encrypt([0] * parties.sp.codec.budget.ciphertexts + [declared]), 1)
    round_ = parties.open(1)
    round_.collect(parties.encrypt(trained) | {"own": own})
    guess: Floats | None = None
    try:
        run_exchange(parties.sp.reward(PAYMENT), ask_directly(parties.csp.answer))
    except RoundEnded as refusal:
        note = f"the round is void: {type(refusal).__name__}"
    else:
        average = parties.read(round_.average(final=True), 1, [], final=True).weights
        refused = _refusals(parties)
        if refused == len(SMALL_PEOPLE):  # and the money returns
            guess = average * ((total + declared) / total)
        note = f"{refused} of {len(SMALL_PEOPLE)} phones refuse their rewards"
    truth = np.mean([weights for weights, _ in trained.values()], axis=0)
    return _FREE.score(subject, guess, np.zeros(SMALL_SIZE), truth, found_in(guess, truth, "weights", 0.01), note)


def _refusals(parties: HardenedParties) -> int:
    envelopes, refused = parties.sp.envelopes(), 0
    for who in SMALL_PEOPLE:
        try:
            parties.people[who].open_reward(envelopes[who], 1)
        except RewardOutOfRange:
            refused += 1
    return refused


class _Instead:
    """A peer that answers some calls in its own way."""

    def __init__(self, honest: object, **calls: Callable[..., Any]) -> None:
        self._honest = honest
        vars(self).update(calls)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- whatever the honest one has
        return getattr(self._honest, name)


def attack_pause(key_bits: int = 864) -> Iterator[Finding]:
    """The model of a round is read, then the task is paused until servers end it by themselves; people claim as they can."""
    for subject in ("hardened, a CSP with a last day of its own", HARDENED):
        own = (CspRetention, "lives_until", lambda _csp, stored: stored.opened.rounds_until - 2 * DAY)
        with weakened(subject, own):
            host, task = _rewarded(key_bits)
            host.requester.order(task, "pause")
            clock, sp = cast(ManualClock, host.clock), host.sp.ports
            sweeps = (
                CspRetention(host.csp.store, host.csp.bundles, clock, host.csp.blobs, host.csp.guard),
                SpRetention(sp.store, sp.bundles, clock, sp.blobs, sp.guard, NoParts()),
            )
            until = sp.store.task(task).opened
            clock.time = until.rounds_until - 4 * DAY
            while clock.time < until.claims_until - DAY / 2:
                for role in sweeps:
                    role.sweep(clock.time, counting=True)
                _pass(host, 3600)
            _claimed(host)
            _pass(host, 3 * SMALL_WINDOW)
        note = "paused to the last day of rounds; people claim on the last day"
        yield _kept(_PAUSE, subject, host.sp.core.ledger(task).returned() - PAYMENT, PAYMENT, note)


def attack_reward_given_up(key_bits: int = 864) -> Iterator[Finding]:
    """SP says once that the phone was not averaged, and then shows its reward again."""
    built = Participant.open_reward

    def believing(phone: Participant, number: int) -> int:
        try:
            return built(phone, number)
        except UnknownParticipant:
            phone.blobs.put(f"rounds/{number}/no-reward", Reason.NOT_PASSED_ON.encode())
            raise

    def not_averaged(*_: object) -> bytes:
        raise UnknownParticipant("no upload of yours was averaged")

    for subject in ("hardened, a phone that believes SP", HARDENED):
        with weakened(subject, (Participant, "open_reward", believing)):
            host, task = _rewarded(key_bits)
            phone, honest = host.people[_VICTIM], host.sp_link
            earned = phone.side.open_reward(honest.reward(task, 1, phone.keys), 1)
            host.requester.order(task, "cancel")
            phone.sp = cast(Any, _Instead(honest, reward=not_averaged))
            phone.step(_no_training)
            phone.sp = honest
            lost = earned - phone.claim()
        yield _kept(_GIVEN_UP, subject, lost, earned, "one false answer; later ones are true")


def attack_restored(key_bits: int = 864) -> Iterator[Finding]:
    """SP is set back to before a cancellation, for which the money of a round was returned."""
    for subject in ("hardened, an SP that goes on at once", HARDENED):
        host, task = _rewarded(key_bits)
        before = CopiedDisk(host.disk, "sp", with_guard=True)
        host.requester.order(task, "cancel")
        _pass(host, 0)
        returned = host.sp.core.ledger(task).returned()
        host.sp = host.new_sp(disk=before)
        mark_restored_sp(host.sp.store, host.clock.now())
        if subject != HARDENED:
            host.sp.store.change_task(task, unreconciled=False)
        send_updates(host, 2, small_updates())
        _pass(host, 0)
        booked = 0
        if subject == HARDENED:
            reconcile(host.sp.ports, task, returned=returned)
            booked = returned
        _pass(host, 0)
        paid = _claimed(host)
        _pass(host, 2 * SMALL_WINDOW)
        spent = paid + returned + host.sp.core.ledger(task).returned() - booked
        yield _kept(_RESTORED, subject, spent - 2 * PAYMENT, PAYMENT, f"{spent} of {2 * PAYMENT} millionths paid out")


def _rewarded(key_bits: int) -> tuple[Host, str]:
    """A task of two rounds, the first of which was rewarded and nothing claimed."""
    host, task = small_host(key_bits)
    send_updates(host, 1, small_updates())
    host.run()
    return host, task


def _pass(host: Host, seconds: float) -> None:
    cast(ManualClock, host.clock).time += seconds
    with suppress(ServiceUnavailable):
        host.run()


def _claimed(host: Host) -> int:
    """By everyone, as far as claims are paid."""
    paid = 0
    for person in host.people.values():
        with suppress(NotReady, TaskEnded, TooLate):
            paid += person.claim()
    return paid


def _kept(attack: Attack[float], subject: str, gained: int, most: int, note: str) -> Finding:
    return attack.score(subject, gained, 0, most, f"{gained} of {most} millionths", note)


def _no_training(*_: object) -> Any:  # noqa: ANN401 -- never called
    raise AssertionError("no round is open")
