"""Claims: what CSP attests of a person and a round, and what SP owes beside it, is booked once.

SP compares a claim with its books item by item. What CSP has attested is paid. An unused upload that the books owe for is paid
too, once its round is over. Any other is disputed: what its round has kept for unused uploads is held until the operator has
looked at both proofs, the signed claim and the books. Whatever is refused of one item, the others are paid.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from crowdfl.crypto.long_bytes import whole
from crowdfl.documents.destination import SEALED_BYTES, destination_name
from crowdfl.errors import (
    ClaimRefused,
    Conflict,
    FormatError,
    NotReady,
    OlderDestination,
    SettingsError,
    TooLate,
    UnknownPayment,
    WrongAmount,
)
from crowdfl.protocols.capabilities import PaysBonus, PaysOpenly, ReadsUnclaimed
from crowdfl.protocols.claim_steps import CLAIM, PLACE, UNCLAIMED, ClaimFacts
from crowdfl.protocols.claims import BONUS, Attested, Claim, ClaimsSp, PlaceNote, UnclaimedRequest
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import ChecksClaims, Profile
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import (
    DisputeState,
    PaidClaim,
    PayWord,
    Round,
    RoundState,
    StoredDispute,
    StoredTask,
    TaskState,
    unclaimed_from,
)
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.core import ENDED, UNDER_WAY, LedgerPorts, SpCore
from crowdfl.roles.sp.instalments import book_instalment
from crowdfl.roles.sp.ledger import Ledger, disputed_account, earned_account, owed_account, unused_account
from crowdfl.roles.sp.payees import keep_statement, offer_destination
from crowdfl.roles.sp.payments import pay_words
from crowdfl.roles.sp.results import read_result
from crowdfl.roles.sp.rounds import find_envelope


class Claims:
    """`pay` can be repeated: the same claim again is the same payment."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core, self._ports, self._aggregators = core, core.ports, aggregators
        self._asked: dict[str, set[str]] = {}  # by task: whose unclaimed items this process has asked for

    def pay(self, task: str, request: bytes) -> PaidClaim:
        """Book what is new in a claim that CSP attests; each round pays from its own budget."""
        if self._ports.store.task(task).state == TaskState.SETTLED:
            return self._settled(task, request)
        self._require_open(task)
        sp = self._aggregators.claiming(task, request)
        claim = sp.check_claim(request)
        known = self._booked(claim)
        if known is not None:
            return known
        self._core.require_in_time_to_claim(task)
        attested = sp.attested(request, self._attested(request, claim, sp))
        with self._ports.store.transaction():
            stored = self._ports.store.task(task)
            _require_not_settled(stored.state)  # CSP may have taken its time
            keep_statement(self._ports.store, attested.statement)
            self._book(stored, request, attested)
            return self._answer(claim, attested.amounts)

    def _settled(self, task: str, request: bytes) -> PaidClaim:
        """Of books that are closed, by this very claim perhaps, whose answer was lost."""
        spec = self._core.definition(task).spec
        people: dict[str, bytes] = {}
        books = ClaimsSp(spec, b"", people, len(request))
        who = books.read(request).participant
        people[who] = self._core.identity(task, who).signing
        claim = books.check(request)
        known = self._booked(claim)
        if known is None:
            raise _settled()
        return known

    def _require_open(self, task: str) -> None:
        """Where anyone can compute what a round pays, as soon as one is rewarded; else after the last round, so that no amount
        tells anything between rounds."""
        found = self._ports.store.status(task)
        _require_not_settled(found.state)
        profile = self._profile(task)
        if isinstance(profile, PaysOpenly) and profile.pays_openly(self._core.definition(task).settings):
            return
        last = found.rounds[-1][0] if found.rounds else None
        if found.state not in ENDED or (last is not None and last.state in UNDER_WAY):
            raise NotReady("rewards of this task are claimed after its last round: ask again then")

    def _profile(self, task: str) -> Profile:
        return profile_named(self._core.definition(task).settings.profile)

    def _attested(self, request: bytes, claim: Claim, sp: ChecksClaims) -> bytes:
        """A CSP that was set back is told of the claimant again, and shown its own signed records, which SP has kept."""
        csp = self._ports.csp
        task = claim.task
        longest = CLAIM.longest_reply(self._facts(task))
        who = claim.participant
        try:
            return whole(csp.answer(task, sp.claim_request(request, lambda: self._served(claim)), longest))
        except (WrongAmount, OlderDestination):
            raise
        except ClaimRefused:
            csp.enrol(task, self._ports.store.participant(task, who).certificate)
            return whole(csp.answer(task, sp.shown_claim(request, self._served(claim)), longest))

    def _served(self, claim: Claim) -> dict[int, bytes]:
        """The envelopes of the claimed rounds, those that are here."""
        task, store, blobs = claim.task, self._ports.store, self._ports.blobs
        rewarded = [one for one in store.rounds(task) if one.rewards is not None and one.number in claim.rounds]
        served = {
            one.number: find_envelope(read_result(blobs, task, one, "rewards"), claim.participant) for one in rewarded
        }
        word, sp = store.task(task).bonus, self._aggregators.checking(task)
        if BONUS in claim.rounds and word and isinstance(sp, PaysBonus):
            served[BONUS] = sp.bonus_envelope(bytes.fromhex(word))
        return {number: envelope for number, envelope in served.items() if envelope is not None}

    def limit(self, task: str) -> int:
        """Bytes that are read of a claim: no honest one is longer."""
        settings = self._core.definition(task).settings
        return self._profile(task).claim_bytes(settings, settings.rounds)

    def _facts(self, task: str) -> ClaimFacts:
        """What the sizes of CSP's answers follow from."""
        return ClaimFacts.of(self._core.definition(task).settings.rounds)

    def pay_to(self, task: str, who: str, placed: bytes) -> bytes:
        """Where a participant is to be paid, for the payer alone; another takes its place until all is paid.

        Where CSP's records say what everyone has earned, the owner's signed note comes behind it: CSP's signed word that it has
        kept that is the answer, and what stays unclaimed goes there.
        """
        sealed, note = placed[:SEALED_BYTES], placed[SEALED_BYTES:]
        if not self._core.definition(task).payer:
            raise Conflict("this task asks nobody where to be paid")
        if len(sealed) != SEALED_BYTES or (note and not self.pays_unclaimed(task)):
            raise FormatError(f"a sealed destination has {SEALED_BYTES} bytes, not {len(placed)}")
        if not note:
            offer_destination(self._ports.store, task, who, sealed)
            return b""
        said = PlaceNote.from_bytes(note, Limits.plain())
        if (said.task, said.participant, said.destination) != (task, who, destination_name(sealed)):
            raise FormatError("this note is of another destination")
        offer_destination(self._ports.store, task, who, sealed)
        return whole(self._ports.csp.answer(task, note, PLACE.longest_reply(self._facts(task))))

    def pays_unclaimed(self, task: str) -> bool:
        """Whether anyone can compute from CSP's record what somebody has earned."""
        profile, definition = self._profile(task), self._core.definition(task)
        opened = isinstance(profile, PaysOpenly) and profile.pays_openly(definition.settings)
        return opened and bool(definition.payer)

    def unclaimed_due(self, stored: StoredTask) -> bool:
        """In the last days of claims: whether somebody who said where to be paid has not claimed."""
        if stored.state not in (TaskState.FINISHED, TaskState.CANCELLED) or stored.ended_at is None:
            return False
        now, until = self._core.now(), stored.claims_until
        if not unclaimed_from(stored.opened, until) <= now < stored.attests_until or not self.pays_unclaimed(
            stored.task
        ):
            return False
        return bool(self._silent(stored.task))

    def _silent(self, task: str) -> list[str]:
        """Who said where to be paid, and has items of rounds that are not booked; asked once by this process."""
        store, paid = self._ports.store, self._core.ledger(task).paid()
        done = self._asked.setdefault(task, set())
        return [
            who
            for who, payee in store.payees(task).items()
            if payee.offered and who not in done and len(paid.get(who, {})) < len(self._core.ledger(task).budgets())
        ]

    def pay_unclaimed(self, task: str) -> bool:
        """One person's, booked as its claim would be: whichever comes first, it is booked once."""
        who = next(iter(self._silent(task)), None)
        if who is None:
            return False
        self._asked[task].add(who)
        sp = self._aggregators.checking(task)
        request = UnclaimedRequest(task, who).to_bytes()
        try:
            reply = whole(self._ports.csp.answer(task, request, UNCLAIMED.longest_reply(self._facts(task))))
        except ClaimRefused:  # CSP was told no place: only its own claim says what it gets
            return True
        except BaseException:
            self._asked[task].discard(who)
            raise
        if not isinstance(sp, ReadsUnclaimed):
            return True
        amounts, statement = sp.unclaimed(who, reply)
        with self._ports.store.transaction():
            stored = self._ports.store.task(task)
            _require_not_settled(stored.state)
            keep_statement(self._ports.store, statement)
            self._book_attested(stored, who, amounts)
        return True

    def pay_words(self, task: str, who: str) -> dict[int, PayWord]:
        """Where somebody's money stands, round by round, of all that is booked."""
        return pay_words(self._ports.store, task, who, self._core.probably_now())

    def _booked(self, claim: Claim) -> PaidClaim | None:
        """What this claim comes to, if there is nothing new in it; CSP need not be asked."""
        ledger = self._core.ledger(claim.task)
        store = self._ports.store
        task = claim.task
        who = claim.participant
        payee, paid = store.payee(task, who), ledger.paid().get(who, {})
        settled = ledger.paid_unused().get(who, {}).keys() | {one.number for one in store.disputes(task, who)}
        is_said = bool(payee.statement) and payee.named == claim.destination
        if is_said and set(claim.rounds) <= paid.keys() and set(claim.unused) <= settled:
            return self._answer(claim, dict(zip(claim.rounds, claim.amounts, strict=True)))
        return None

    def _book(self, stored: StoredTask, request: bytes, attested: Attested) -> None:
        """Movements, disputes and payment together. The caller holds a transaction."""
        who = attested.claim.participant
        self._book_attested(stored, who, attested.amounts, request, attested.claim.unused)

    def _book_attested(
        self,
        stored: StoredTask,
        who: str,
        amounts: Mapping[int, int],
        request: bytes = b"",
        unused: Sequence[int] = (),
    ) -> None:
        task, store = stored.task, self._ports.store
        ledger = self._core.ledger(task)
        before, budgets = ledger.paid().get(who, {}), ledger.budgets()
        _require_within(amounts, budgets)
        new = {n: amount for n, amount in amounts.items() if n in budgets and n not in before}
        paid = {number: min(amount, ledger.balance(earned_account(number))) for number, amount in new.items()}
        store.post(task, *(ledger.pay(who, number, amount) for number, amount in paid.items()))
        word = sum(self._book_unused(stored, who, number, request) for number in unused)
        ledger = self._core.ledger(task)
        booked = len(ledger.paid().get(who, {})) + len(ledger.paid_unused().get(who, {}))
        book_instalment(store, stored, who, booked, sum(paid.values()), word, self._core.probably_now())

    def _book_unused(self, stored: StoredTask, who: str, number: int, request: bytes) -> int:
        """Millionths that are paid for an unused upload: what the books owe for it, once its round is over. What they do not
        owe waits until nobody can come in time for the round any more.

        What is owed to whoever was counted after all, and what the books do not owe, is held for the operator.
        """
        task = stored.task
        store = self._ports.store
        ledger = self._core.ledger(stored.task)
        is_decided = number in ledger.paid_unused().get(who, {}) or store.dispute(task, who, number) is not None
        round_ = next((one for one in store.rounds(task) if one.number == number), None)
        is_over = round_.is_over if round_ is not None else stored.state in ENDED
        if is_decided or not is_over or not 1 <= number <= self._core.definition(task).settings.rounds:
            return 0
        counted = store.upload_context(task, number, [who]).uploads.get(who)
        owed = ledger.unused(who).get(number, 0)
        if not owed and self._may_be_owed(stored, round_):  # what is held now, whoever comes in time would miss
            return 0
        if owed and counted is None:
            store.post(task, ledger.pay_unused(who, number, owed))
            return owed
        amount = self._core.definition(task).plan.each_unused
        source = owed_account(who) if owed else unused_account(number)
        held = owed or min(amount, ledger.balance(source))
        books = {
            "round": "unknown" if round_ is None else str(round_.state),
            "upload": None if counted is None else counted.digest,
            "owed": owed,
            "held": held,
        }
        if held:
            store.post(task, ledger.dispute(who, number, source, held))
        now = self._core.probably_now()
        store.add_dispute(StoredDispute(task, who, number, amount, request, json.dumps(books), DisputeState.OPEN, now))
        return 0

    def _may_be_owed(self, stored: StoredTask, round_: Round | None) -> bool:
        """Whether somebody may still come in time for a round that is over, and be owed for an unused upload."""
        if round_ is None or round_.state is RoundState.ABORTED or stored.state in ENDED:
            return False
        now = self._core.probably_now() if stored.paused_at is None else stored.paused_at
        return now <= round_.last_call(self._core.definition(stored.task).settings)

    def _answer(self, claim: Claim, attested: Mapping[int, int]) -> PaidClaim:
        """By the books. A round of which nothing can be said yet is left out; an unused upload that the operator refused pays
        nothing."""
        task, who = claim.task, claim.participant
        ledger = self._core.ledger(task)
        paid, unused = ledger.paid().get(who, {}), ledger.paid_unused().get(who, {})
        disputes = {one.number: one for one in self._ports.store.disputes(task, who) if one.number not in unused}
        answer = PaidClaim(
            {number: paid.get(number, 0) for number in claim.rounds},
            {n: unused.get(n, 0) for n in claim.unused if n in unused or _is_refused(disputes.get(n))},
            {n: disputes[n].amount for n in claim.unused if n in disputes and not _is_refused(disputes[n])},
        )
        short = sorted(number for number, amount in attested.items() if answer.paid[number] < amount)
        if short:
            self._core.options.events("a round held less than was claimed of it", task=task, rounds=short)
        return answer


def _is_refused(dispute: StoredDispute | None) -> bool:
    return dispute is not None and dispute.state is DisputeState.REFUSED


def _settled() -> TooLate:
    return TooLate("the books of this task are closed: what was unclaimed went back to the requester")


def _require_not_settled(state: str) -> None:
    if state == TaskState.SETTLED:
        raise _settled()


def _require_within(attested: Mapping[int, int], budgets: Mapping[int, int]) -> None:
    """A reward is a part of its round's budget, whatever CSP signs. A round that SP has not rewarded, or lost, pays nothing."""
    for number, amount in attested.items():
        if not 0 <= amount <= budgets.get(number, amount):
            raise WrongAmount(f"the claim for round {number} is outside what the round had to give")


_DECIDED = {"pay": DisputeState.PAID, "refuse": DisputeState.REFUSED}


def resolve_dispute(ports: LedgerPorts, task: str, who: str, number: int, how: str) -> None:
    """What the operator has decided about an unused upload. Final; safe to repeat."""
    if how not in _DECIDED:
        raise SettingsError(f"a dispute is resolved as {' or '.join(_DECIDED)}, not {how!r}")
    store, state = ports.store, _DECIDED[how]
    with store.transaction():
        known = store.dispute(task, who, number)
        if known is None:
            raise UnknownPayment(f"nothing of {who} in round {number} of task {task} is disputed")
        if known.state is state:
            return
        if known.state is not DisputeState.OPEN:
            raise Conflict(f"this dispute was decided before, as {known.state}, and that is final")
        stored = store.task(task)
        ledger = Ledger(store.movements(task))
        now = ports.clock.now()
        held = ledger.balance(disputed_account(who, number))
        if state is DisputeState.PAID:
            if not held:
                raise Conflict("its round has nothing left for unused uploads: pay it yourself, and refuse it here")
            store.post(task, ledger.pay_disputed(who, number, held))
            ledger = Ledger(store.movements(task))
            booked = len(ledger.paid().get(who, {})) + len(ledger.paid_unused().get(who, {}))
            book_instalment(store, stored, who, booked, 0, held, now)
        elif held:
            ledger.post(back := ledger.release(who, number, held))
            store.post(task, back)
            if stored.state == TaskState.SETTLED:  # its other money has gone back already
                store.post(task, ledger.refund(f"disputed {who} round {number}"))
        store.change_dispute(replace(known, state=state, since=now))
