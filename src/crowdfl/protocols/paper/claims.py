"""Claims of `paper`: CSP opens the encrypted reward less what is claimed of it, and answers whether that is zero.

A participant signs, for each round, the hash of [[mu_i]] as it was served it and the integer that it opened (in units of 10^-L:
in millionths an honest claim could be off). SP shows CSP the ciphertext and its half of the decryption of the difference.

Such a CSP decrypts for SP, so that it takes nothing of SP's on trust. It forms the difference itself, from what the participant
has signed: an SP that formed it could ask about any number that it holds. It opens one difference of a person and round, ever,
and keeps which, with its answer: with a second integer, another ciphertext or another half SP would ask again. That matters:
SP can shift what is opened (a half times 1 + kN is a half too), so that each honest claim answers one question of SP's, yes or
no. A half that does not belong to the ciphertext opens nothing, and consumes nothing: which one belongs to it SP can compute.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crowdfl.crypto.paillier.vector import CipherVector, combine, signed_values
from crowdfl.errors import MasksDoNotFit, SharesDoNotMatch, WrongAmount
from crowdfl.protocols.claims import AttestingCsp, Claim, OpenedClaim
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.steps import CLAIM, PaperFacts
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import KeyedTask
from crowdfl.protocols.records import Look, Outcome
from crowdfl.settings import MILLION, TaskSettings, to_millionths


class KeptDifference(Message, kind=91, repr=False):
    """CSP's record of the one difference of a person and round that it has opened: of what, and whether it was zero."""

    mu: bytes  # the hash of the ciphertext
    claimed: int
    is_zero: int


@dataclass(frozen=True)
class Units:
    """Money as [[mu_i]] has it, in units of 10^-L."""

    scale: int
    largest: int  # millionths that any round may pay

    @classmethod
    def of(cls, settings: TaskSettings, largest: int) -> "Units":
        return cls(10**settings.decimals, largest if settings.budget is None else to_millionths(settings.budget))

    def of_millionths(self, amount: int) -> int:
        return amount * self.scale // MILLION

    def millionths(self, opened: int) -> int:
        return opened * MILLION // self.scale

    def is_payable(self, opened: int) -> bool:
        return 0 <= opened <= self.of_millionths(self.largest)


def digest(mu: CipherVector) -> bytes:
    """Of an encrypted reward, as its owner signs it."""
    return hashlib.sha256(mu.to_bytes()).digest()


def differences(party: KeyedParty, mu: CipherVector, claimed: Sequence[int]) -> CipherVector:
    """[[mu_i - claimed_i]]."""
    return party.add_plain(mu, [-amount for amount in claimed])


def open_claim(party: KeyedParty, claim: Claim, request: bytes, served: Sequence[CipherVector]) -> bytes:
    """SP: a claim with the rewards that its rounds' envelopes hold, and SP's halves."""
    mu = CipherVector.concat(served)
    return OpenedClaim(request, mu, party.partial_decrypt(differences(party, mu, claim.masks))).to_bytes()


@dataclass
class PaperClaimsCsp(AttestingCsp):
    """CSP's side."""

    task: KeyedTask
    party: KeyedParty = field(repr=False)
    units: Units

    def answer(self, records: Look, request: bytes) -> Outcome:
        """A claim that is not what was encrypted is refused, and what was opened for it stays opened."""
        asked = OpenedClaim.from_bytes(request, self._limits(request))
        claim, before = self.checked(records, asked.claim)
        CLAIM.require_message(asked, PaperFacts(self.task, 0, len(claim.rounds)))
        fresh = [place for place, number in enumerate(claim.rounds) if number not in before.rounds]
        for place in fresh:
            self._require_claimable(claim, place, asked.mu.part(place, place + 1))
        zero = self._zero(records, claim, asked, fresh)
        try:
            attestation = self.attest(records, claim, before, lambda at: claim.amounts[at] if zero[at] else None)
        except WrongAmount as refusal:
            if not records.written:  # nothing was opened
                raise
            return refusal
        return self.party.send(attestation)

    def _limits(self, request: bytes) -> Limits:
        most = self.spec.settings.rounds
        return replace(self.party.limits(most), max_entries=most, longest=len(request))

    def _require_claimable(self, claim: Claim, place: int, mu: CipherVector) -> None:
        """Before anything is opened: a round of the task, the ciphertext that its owner has signed for, an amount within b."""
        who = claim.participant
        number = claim.rounds[place]
        claimed = claim.masks[place]
        if not 1 <= number <= self.spec.settings.rounds:
            raise MasksDoNotFit(f"round {number} of {self.spec.settings.rounds}")
        if digest(mu) != claim.shown[place]:
            raise MasksDoNotFit(f"the ciphertext shown of round {number} is not the one that {who} has signed for")
        if not self.units.is_payable(claimed) or claim.amounts[place] != self.units.millionths(claimed):
            raise WrongAmount(f"{who} claims what no reward of round {number} can be")

    def _zero(self, records: Look, claim: Claim, asked: OpenedClaim, fresh: Sequence[int]) -> dict[int, bool]:
        """By place, whether the difference is zero: by what is kept, else opened now, and kept."""
        who = claim.participant
        answers = dict[int, bool]()
        unopened = list[int]()
        for place in fresh:
            kept = records.get(KeptDifference, claim.rounds[place], who=who)
            if kept is None:
                unopened.append(place)
            elif (kept.mu, kept.claimed) != (claim.shown[place], claim.masks[place]):
                raise WrongAmount(
                    f"{who} has claimed another amount of round {claim.rounds[place]}, and that was compared"
                )
            else:
                answers[place] = bool(kept.is_zero)
        if unopened:
            answers |= zip(unopened, self._opened(claim, asked, unopened), strict=True)
        for place in unopened:
            what = KeptDifference(claim.shown[place], claim.masks[place], int(answers[place]))
            records.put(what, claim.rounds[place], who=who)
        return answers

    def _opened(self, claim: Claim, asked: OpenedClaim, places: Sequence[int]) -> list[bool]:
        mu = CipherVector.concat([asked.mu.part(at, at + 1) for at in places])
        halves = replace(asked.differences_1, block=asked.differences_1.block[list(places)])
        own = self.party.partial_decrypt(differences(self.party, mu, [claim.masks[at] for at in places]))
        try:
            opened = combine(halves, own, backend=self.party.compute)
        except SharesDoNotMatch:
            raise MasksDoNotFit("SP's half is not of this ciphertext: nothing was opened") from None
        return [value == 0 for value in signed_values(opened, self.party.public)]
