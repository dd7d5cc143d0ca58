"""A round as each server saw it, read in every way that an attacker might: nothing of it must be better than a guess.

Readings take what a server holds or was sent, its own shares among it, for the numbers themselves, at their true scale and as
parts of their range. The best one counts, chosen with the truth at hand: kinder to the attacker than life is.

Hashes are tried too: CSP sees those of SP's shares and of the seed of SP's mask, and tests true uploads and known seeds.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_bytes
from typing import Any

import numpy as np

from crowdfl.crypto.leaves import leaves_of
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.shares.expansion import expand
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import SealBroken
from crowdfl.protocols.claims import RewardEnvelope, reward_context
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares import profile as participant
from crowdfl.protocols.shares.chain import sha256
from crowdfl.protocols.shares.circuits.scalars import added, unpack
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round import average
from crowdfl.protocols.shares.round.average import MaskedPart, SharesPublication, SumOffer, SumReply
from crowdfl.protocols.shares.round.manifest import AcceptedSet, RoundManifest, open_seals
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.round.upload import (
    UploadBody,
    expanded_samples,
    expanded_update,
    seal_context,
    share_digest,
    upload_from_seed,
)
from crowdfl.protocols.shares.shape import REWARD_MODULUS
from crowdfl_lab.audit.finding import (
    ENTRY,
    REWARD_OFF,
    SAMPLES_OFF,
    SHARES,
    TOTAL_OFF,
    WEIGHT,
    Attack,
    Finding,
    Floats,
    found_in,
    rms,
)
from crowdfl_lab.audit.shares.deviating_round import (
    AVERAGE,
    BUDGET,
    LANES,
    MOST_SAMPLES,
    NAMES,
    PAYMENT,
    PEOPLE,
    DeviatingRound,
    switched,
    updates,
)

_VICTIM, _OTHER = "p1", "p2"
_PARAMETERS = 30  # of fewer, the best of many readings would be good by chance
_LIMITS = Limits.plain(1 << 20)


def attack_transcript() -> Iterator[Finding]:
    """By each server alone, and by a participant that overhears; and of a sum without its mask."""
    with switched(average, "mask_of", lambda _, place, shape: (bytes(shape.share_bytes), 0)):
        bare = _Transcript("shares, a sum without its mask")
    yield bare.average("SP")
    yield bare.total()
    built = _Transcript(SHARES)
    yield from (built.average("SP"), built.average("CSP"), built.total())
    for read in (built.upload, built.samples, built.rewards):
        yield from (read("SP"), read("CSP"))
    yield from (built.overheard_upload(), built.overheard_reward())


def attack_hashes() -> Iterator[Finding]:
    """CSP tests guesses at what it sees the hash of, with all that it knows: of phones without salt, of an SP without coins."""

    def without_salt(*parts: Any) -> UploadBody:  # noqa: ANN401 -- of `make_upload`
        return upload_from_seed(*parts, token_bytes(32), bytes(32))  # type: ignore[call-arg, unused-ignore]

    with switched(participant, "make_upload", without_salt), switched(SharesSp, "_part", known_part):
        bare = _Hashes("shares, hashes without salt")
    yield from (bare.upload(), bare.average())
    built = _Hashes(SHARES)
    yield from (built.upload(), built.average())


def known_part(sp: SharesSp, members: AcceptedSet) -> MaskedPart:
    """Of an SP whose mask is no secret."""
    with switched(average, "secret_bytes", bytes):
        return MaskedPart.drawn(members, sp._shape, sp._place, average.SP, sp._audiences)


@dataclass
class _Drawn:
    """What CSP draws for a round: it keeps neither after its end, but a curious one would."""

    seed: bytes = b""
    part: MaskedPart = field(default_factory=lambda: MaskedPart(b"", b"", b"", ()))


@contextmanager
def _watched_coins(round_: DeviatingRound) -> Iterator[_Drawn]:
    seen, draw = _Drawn(), MaskedPart.drawn

    def fresh(size: int) -> bytes:
        seen.seed = secrets.token_bytes(size)
        return seen.seed

    def drawn(*arguments: Any) -> MaskedPart:  # noqa: ANN401 -- as they come
        made = draw(*arguments)
        if arguments[3] == average.CSP:
            seen.part = made
        return made

    round_.csp.records.fresh = fresh
    with switched(MaskedPart, "drawn", staticmethod(drawn)):
        yield seen


class _Hashes:
    """Two rounds, by what CSP has of them: seeds, masks, and hashes of what it does not have."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.round = DeviatingRound(check="none", lanes=0)
        self.updates = updates()
        self.shape, self.ring = self.round.shape, self.round.shape.ring
        with _watched_coins(self.round) as drawn:
            self.round.play_all(1, self.updates)
        first, last = self.round.conversation[0], self.round.conversation[-1]
        self.first = RoundManifest.from_bytes(first.sp, _LIMITS)
        self.offer = SumOffer.from_bytes(last.sp, _LIMITS)
        self.reply = SumReply.from_bytes(last.csp, _LIMITS)
        bundle = SharesCspBundle.from_bytes(self.round.dealing.csp, _LIMITS)
        self.seeds = open_seals(self.first, ReaderKey(bundle.sealing))
        own, part = drawn.seed, drawn.part
        self.t = part.t
        derived = [expand(seed, b"", 32) for seed in (*self.seeds.values(), self.t)]
        self.salts = [b"", bytes(32), *self.seeds.values(), own, self.t, part.noise, self.first.base, *derived]

    def upload(self) -> Finding:
        """Everyone's true upload is tried for the victim's."""
        tried = {who: self.round.integers(update) for who, update in self.updates.items()}
        fitting = [who for who in tried if self._is_victims(who, tried[who])]
        truth, guess = tried[_VICTIM], tried[fitting[0]] if fitting else None
        attack = Attack("searched upload", "5", "a participant's upload, by CSP: a guess that fits", ("CSP",), ENTRY)
        note = f"{len(tried)} guesses, with {len(self.salts)} salts each"
        return attack.score(self.subject, guess, np.zeros(len(truth)), truth, found_in(guess, truth), note)

    def _is_victims(self, who: str, integers: Floats) -> bool:
        place, digest = self.first.place, self.first.digests[self.first.names.index(_VICTIM)]
        seed = self.seeds[_VICTIM]
        own = self.ring.decode(expanded_update(seed, place, _VICTIM, self.shape.share_bytes)[:])
        shares = self.ring.encode(self.ring.of_signed(integers.astype(np.int64)) - own)
        count = (PEOPLE[who] - expanded_samples(seed, place, _VICTIM)) % REWARD_MODULUS
        return any(
            share_digest(salt, count.to_bytes(16, "little"), len(shares), leaves_of(shares)) == digest
            for salt in self.salts
        )

    def average(self) -> Finding:
        """Everything that CSP knows is tried for the seed of SP's mask, whose hash it sees."""
        sums = np.sum([self.round.integers(update) for update in self.updates.values()], axis=0)
        t = next((known for known in self.salts if sha256(known) == self.offer.mask), None)
        guess = None
        if t is not None:
            masks = [average.mask_of(seed, self.first.place, self.shape)[0][:] for seed in (t, self.t)]
            words = self.ring.decode(self.offer.sums) + self.ring.decode(self.reply.sums)
            words = words - self.ring.decode(masks[0]) - self.ring.decode(masks[1])
            guess = self.ring.signed(self.ring.reduced(words)).astype(np.float64)
        attack = Attack("searched average", "2", "a round's sum, by CSP: a seed that fits", ("CSP",), ENTRY)
        note = f"{len(self.salts)} guesses at the seed of SP's mask"
        return attack.score(self.subject, guess, np.zeros(len(sums)), sums, found_in(guess, sums), note)


class _Transcript:
    """A round that was played, the truth of it, and what attackers hold."""

    def __init__(self, subject: str) -> None:
        self.subject, self.round = subject, DeviatingRound.paying(_PARAMETERS)
        halved = {who: (w * 0.5, samples) for who, (w, samples) in updates(parameters=_PARAMETERS).items()}
        self.played = self.round.play_all(1, halved)
        self.truth = self.round.integers(halved[_VICTIM])
        self.shape, self.ring = self.round.shape, self.round.shape.ring
        self.publication = SharesPublication.from_bytes(self.played.publication, _LIMITS)
        self.reply = SumReply.from_bytes(self.round.said(AVERAGE).csp, _LIMITS)
        self.lanes = self.round.said(LANES)
        self.envelope = RewardEnvelope.from_bytes(self.played.envelopes[_VICTIM], _LIMITS)
        self.bodies = {who: UploadBody.from_bytes(upload, _LIMITS) for who, upload in self.played.uploads.items()}
        # What was sealed to CSP, opened with its key.
        bundle = SharesCspBundle.from_bytes(self.round.dealing.csp, _LIMITS)
        self.manifest = RoundManifest.from_bytes(self.round.conversation[0].sp, _LIMITS)
        self.seeds = open_seals(self.manifest, ReaderKey(bundle.sealing))

    @cached_property
    def held(self) -> dict[str, list[Words]]:
        """Numbers as long as a model: what CSP sent, what was published, SP's shares and their differences; of CSP, what it was
        sealed, expanded, and the first lanes that were opened."""
        decode, length = self.ring.decode, _PARAMETERS * self.ring.bytes
        reply, publication = decode(self.reply.sums), decode(self.publication.sums)
        shares = [decode(self.bodies[who].shares) for who in PEOPLE]
        own: Words = np.array(shares).sum(axis=0, dtype=np.uint64)
        expanded = [self._expanded(seed, who) for who, seed in self.seeds.items()]
        lanes = [decode(message[:length]) for message in (self.lanes.sp, self.lanes.csp)]
        summed: Words = np.array(expanded).sum(axis=0, dtype=np.uint64)
        csp = [*expanded, summed, *lanes, lanes[0] + lanes[1]]
        return {"SP": [reply, publication, own, publication - own, reply - own, *shares], "CSP": csp}

    def _expanded(self, seed: bytes, who: str) -> Words:
        return self.ring.decode(expanded_update(seed, self.manifest.place, who, self.shape.share_bytes)[:])

    def _best(self, held: list[Words], scale: float, bound: float, truth: Floats) -> tuple[Floats, str]:
        """Readings at the true scale, kept to the bounds; as a part of the ring; of the last 16 bits as a part of theirs."""
        readings: list[Floats] = []
        for words in held:
            signed = self.ring.signed(self.ring.reduced(words)).astype(np.float64)
            readings.append(np.clip(signed / scale, -bound, bound))
            readings.append(signed / 2.0 ** (self.ring.bits - 1) * bound)
            readings.append((words % np.uint64(1 << 16)).astype(np.float64) / (1 << 15) * bound - bound)
        return min(readings, key=lambda reading: rms(reading, truth)), f"best of {len(readings)} readings"

    def average(self, server: str) -> Finding:
        truth, unit = self.played.average.weights, self.shape.widths.unit
        guess, note = self._best(self.held[server], float(sum(PEOPLE.values()) * unit), 1.0, truth)
        attack = Attack("average", "2", f"the global model, by {server}", (server,), WEIGHT)
        recovered = found_in(guess, truth, "weights to 3 decimals", 1.0 / unit)
        return attack.score(self.subject, guess, np.zeros(len(truth)), truth, recovered, note)

    def total(self) -> Finding:
        truth, most = sum(PEOPLE.values()), len(PEOPLE) * MOST_SAMPLES
        held = [int.from_bytes(part, "little") for part in (self.reply.total, self.publication.total)]
        guess = next((total for total in held if 1 <= total <= most), None)
        recovered = f"{guess} samples where {truth} is true" if guess else "no number that could be a total"
        attack = Attack("total", "3", "the total of the samples, by SP", ("SP",), TOTAL_OFF)
        note = "of what CSP sent, and of the publication"
        return attack.score(self.subject, guess, most // 2, truth, recovered, note)

    def upload(self, server: str) -> Finding:
        """From the victim's share that the server holds, and from lanes."""
        held = [self.ring.decode(self.bodies[_VICTIM].shares)]
        if server == "CSP":
            held = [self._expanded(self.seeds[_VICTIM], _VICTIM), *self.held["CSP"][-3:]]
        guess, note = self._best(held, 1.0, float(np.abs(self.truth).max()), self.truth)
        attack = Attack("upload", "5", f"a participant's upload, by {server} alone", (server,), ENTRY)
        recovered = found_in(guess, self.truth, within=0.99)
        return attack.score(SHARES, guess, np.zeros(_PARAMETERS), self.truth, recovered, note)

    def samples(self, server: str) -> Finding:
        """From the share of the number of samples, and from it behind both masks."""
        said = self.lanes
        people = len(PEOPLE)
        scalar = self.shape.widths.R
        place = NAMES.index(_VICTIM)
        end = len(said.sp) - people * scalar // 8
        start = end - people * 16
        held = [added(unpack(said.sp[start:end], 128), unpack(said.csp[start:end], 128), 128)[place] + 1]
        held += [added(unpack(said.sp[end:], scalar), unpack(said.csp[end:], scalar), scalar)[place]]
        own = int.from_bytes(self.bodies[_VICTIM].samples, "little")
        held += [own if server == "SP" else expanded_samples(self.seeds[_VICTIM], self.manifest.place, _VICTIM)]
        guess = next((v for v in held if 1 <= v <= MOST_SAMPLES), None)
        truth = PEOPLE[_VICTIM]
        recovered = f"{guess} samples where {truth} is true" if guess else "no number that could be a count"
        attack = Attack("samples", "7", f"a participant's sample count, by {server}", (server,), SAMPLES_OFF)
        return attack.score(SHARES, guess, MOST_SAMPLES // 2, truth, recovered, f"{len(held)} numbers held or opened")

    def rewards(self, server: str) -> Finding:
        csp, truth = self.round.csp, self.played.rewards[_VICTIM]
        kept = csp.reward(Look(csp.records), 1, _VICTIM)
        share = -self.envelope.mask % REWARD_MODULUS if server == "SP" or kept is None else kept.masked
        guess = share if 0 <= share <= PAYMENT else None
        recovered = f"{guess} millionths where {truth} is true" if guess else "no number that could be a reward"
        attack = Attack("rewards", "8", f"a participant's reward, by {server}", (server,), REWARD_OFF)
        note = f"its share of 128 bits; of {BUDGET}"
        return attack.score(SHARES, guess, PAYMENT // len(PEOPLE), truth, recovered, note)

    def overheard_upload(self) -> Finding:
        """By another participant, with its own key and the audience's."""
        body = self.bodies[_VICTIM]
        seed = self._unsealed(body.sealed, seal_context(body.place, body.who, body.digest))
        guess = None
        if seed is not None:
            share = self._expanded(seed, _VICTIM) + self.ring.decode(body.shares)
            guess = self.ring.signed(self.ring.reduced(share)).astype(np.float64)
        title, note = "an upload that a participant overheard", "sealed to CSP's key of this task"
        attack = Attack("overheard upload", "6", title, ("participant",), ENTRY)
        recovered = "nothing opens" if guess is None else found_in(guess, self.truth)
        return attack.score(SHARES, guess, np.zeros(_PARAMETERS), self.truth, recovered, note)

    def overheard_reward(self) -> Finding:
        context, truth = self.shape.spec.context(1), self.played.rewards[_VICTIM]
        body = self._unsealed(self.envelope.sealed, reward_context(context, _VICTIM))
        guess = None if body is None else (int.from_bytes(body[:16], "big") - self.envelope.mask) % REWARD_MODULUS
        title, note = "a reward that a participant overheard", "sealed to its owner's certified key"
        attack = Attack("overheard reward", "6", title, ("participant",), REWARD_OFF)
        recovered = "nothing opens" if guess is None else f"{guess} millionths where {truth} is true"
        return attack.score(SHARES, guess, PAYMENT // len(PEOPLE), truth, recovered, note)

    def _unsealed(self, sealed: bytes, context: bytes) -> bytes | None:
        for key in self.round.phone(_OTHER).boxes:
            try:
                return key.open(sealed, context)
            except SealBroken:
                continue
        return None
