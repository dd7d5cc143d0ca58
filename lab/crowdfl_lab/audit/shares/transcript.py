"""A round as each server saw it, read in every way that an attacker might: nothing of it must be better than a guess.

Readings take what a server holds or was sent, its own shares among it, for the numbers themselves, at their true scale and as
parts of their range. The best one counts, chosen with the truth at hand: kinder to the attacker than life is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import SealBroken
from crowdfl.protocols.claims import RewardEnvelope, reward_context
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares import profile as participant
from crowdfl.protocols.shares.chain import RoundPlace
from crowdfl.protocols.shares.circuits.scalars import added, unpack
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round import average
from crowdfl.protocols.shares.round.average import AverageReply, SharesPublication
from crowdfl.protocols.shares.round.manifest import RoundManifest, open_seals
from crowdfl.protocols.shares.round.upload import (
    UploadBody,
    expanded_samples,
    expanded_update,
    seal_context,
    upload_from_seed,
)
from crowdfl.protocols.shares.shape import REWARD_MODULUS
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Floats, relative, rms
from crowdfl_lab.audit.shares.deviating_round import (
    AVERAGE,
    BUDGET,
    LANES,
    MOST_SAMPLES,
    PAYMENT,
    PEOPLE,
    conversation,
    integers,
    paying,
    phone,
    played,
    server_csp,
    shape_of,
    switched,
    updates,
)
from crowdfl_lab.parties import LocalParties, PlayedRound

VICTIM, OTHER = "p1", "p2"
_PARAMETERS = 30  # of fewer, the best of many readings would be good by chance
_LIMITS = Limits.plain(1 << 20)
_OFF_WEIGHT = "root mean square error of a weight; blind: all zeros"
_OFF_ENTRY = "root mean square error of an entry of the update; blind: zeros"
_OFF_TOTAL = "relative error; blind: half of the largest total"
_OFF_SAMPLES = "relative error; blind: half of max_samples"
_OFF_REWARD = "relative error; blind: an equal split"


@dataclass(frozen=True, eq=False)
class AuditedRound:
    """The truth, and what attackers hold."""

    parties: LocalParties = field(repr=False)
    trained: dict[str, tuple[Floats, int]] = field(repr=False)
    played: PlayedRound = field(repr=False)
    subject: str = SHARES

    @property
    def publication(self) -> SharesPublication:
        return SharesPublication.from_bytes(self.played.publication, _LIMITS)

    @property
    def reply(self) -> AverageReply:
        return AverageReply.from_bytes(
            next(said.csp for said in conversation(self.parties) if said.step == AVERAGE), _LIMITS
        )

    def body(self, who: str = VICTIM) -> UploadBody:
        return UploadBody.from_bytes(self.played.uploads[who], _LIMITS)


def play(subject: str = SHARES) -> AuditedRound:
    parties, trained = paying(_PARAMETERS), updates(parameters=_PARAMETERS)
    trained = {who: (weights * 0.5, samples) for who, (weights, samples) in trained.items()}
    return AuditedRound(parties, trained, played(parties, 1, trained), subject)


def attack_transcript() -> Iterator[Finding]:
    """By each server alone, by a participant that overhears; and a sum without its mask, a seed that serves twice."""
    with switched(average, "mask_of", lambda _, place, shape: (bytes(shape.share_bytes), 0)):
        bare = play("shares, a sum without its mask")
    yield _average(bare, "SP")
    yield _total(bare)
    scene = play()
    yield _average(scene, "SP")
    yield _average(scene, "CSP")
    yield _total(scene)
    yield from (_upload(scene, server) for server in ("SP", "CSP"))
    yield from (_samples(scene, server) for server in ("SP", "CSP"))
    yield from (_rewards(scene, server) for server in ("SP", "CSP"))
    yield _overheard_upload(scene)
    yield _overheard_reward(scene)
    yield from attack_seed()


def _average(scene: AuditedRound, server: str) -> Finding:
    shape, truth = shape_of(scene.parties), scene.played.average.weights
    held = _held_by_sp(scene) if server == "SP" else _held_by_csp(scene)
    scale = float(sum(PEOPLE.values()) * shape.widths.unit)
    readings = [guess for words in held for guess in _readings(scene.parties, words, scale, 1.0)]
    guess = min(readings, key=lambda reading: rms(reading, truth))
    exact = int(np.count_nonzero(np.abs(guess - truth) <= 1.0 / shape.widths.unit))
    attack = Attack("average", "2", f"the global model, by {server}", (server,), rms, _OFF_WEIGHT)
    recovered, note = f"{exact} of {len(truth)} weights to 3 decimals", f"best of {len(readings)} readings"
    return attack.score(scene.subject, guess, np.zeros(len(truth)), truth, recovered, note)


def _held_by_sp(scene: AuditedRound) -> list[Words]:
    """Numbers as long as a model: what CSP sent, what was published, SP's shares, and their differences."""
    ring = shape_of(scene.parties).ring
    reply, publication = ring.decode(scene.reply.sums), ring.decode(scene.publication.sums)
    shares = [ring.decode(scene.body(who).shares) for who in PEOPLE]
    own: Words = np.array(shares).sum(axis=0, dtype=np.uint64)
    return [reply, publication, own, publication - own, reply - own, *shares]


def _held_by_csp(scene: AuditedRound) -> list[Words]:
    """What it was sealed, expanded, and the first lanes that were opened."""
    shape, ring = shape_of(scene.parties), shape_of(scene.parties).ring
    shares = [ring.decode(expanded_update(*part, shape.share_bytes)) for part in _seeds(scene)]
    said = next(said for said in conversation(scene.parties) if said.step == LANES)
    length = _PARAMETERS * ring.bytes
    lanes = [ring.decode(message[:length]) for message in (said.sp, said.csp)]
    return [*shares, np.sum(shares, axis=0, dtype=np.uint64), *lanes, lanes[0] + lanes[1]]


def _seeds(scene: AuditedRound) -> Iterator[tuple[bytes, RoundPlace, str]]:
    """What was sealed to CSP, opened with its key."""
    bundle = SharesCspBundle.from_bytes(scene.parties.dealer.dealing.csp, _LIMITS)
    manifest = RoundManifest.from_bytes(conversation(scene.parties)[0].sp, _LIMITS)
    seeds = open_seals(manifest, ReaderKey(bundle.sealing))
    return ((seed, manifest.place, who) for who, seed in seeds.items())


def _readings(parties: LocalParties, words: Words, scale: float, bound: float) -> Iterator[Floats]:
    """At its true scale, kept to the bounds; as a part of the ring; its last 16 bits as a part of theirs."""
    ring = shape_of(parties).ring
    signed = ring.signed(ring.reduced(words)).astype(np.float64)
    yield np.clip(signed / scale, -bound, bound)
    yield signed / 2.0 ** (ring.bits - 1) * bound
    yield (words % np.uint64(1 << 16)).astype(np.float64) / (1 << 15) * bound - bound


def _total(scene: AuditedRound) -> Finding:
    truth, most = sum(PEOPLE.values()), len(PEOPLE) * MOST_SAMPLES
    held = [int.from_bytes(part, "little") for part in (scene.reply.total, scene.publication.total)]
    guess = next((total for total in held if 1 <= total <= most), None)
    recovered = f"{guess} samples where {truth} is true" if guess else "no number that could be a total"
    attack = Attack("total", "3", "the total of the samples, by SP", ("SP",), relative, _OFF_TOTAL)
    return attack.score(scene.subject, guess, most // 2, truth, recovered, "of what CSP sent, and of the publication")


def _upload(scene: AuditedRound, server: str) -> Finding:
    """From the victim's share that the server holds, and from lanes."""
    truth, shape = integers(scene.parties, scene.trained[VICTIM]), shape_of(scene.parties)
    if server == "SP":
        held = [shape.ring.decode(scene.body().shares)]
    else:
        held = [
            shape.ring.decode(expanded_update(seed, place, who, shape.share_bytes))
            for seed, place, who in _seeds(scene)
            if who == VICTIM
        ] + _held_by_csp(scene)[-3:]
    largest = float(np.abs(truth).max())
    readings = [guess for words in held for guess in _readings(scene.parties, words, 1.0, largest)]
    guess = min(readings, key=lambda reading: rms(reading, truth))
    attack = Attack("upload", "5", f"a participant's upload, by {server} alone", (server,), rms, _OFF_ENTRY)
    recovered = f"{np.count_nonzero(np.abs(guess - truth) < 1)} of {len(truth)} entries"
    return attack.score(SHARES, guess, np.zeros(len(truth)), truth, recovered, f"best of {len(readings)} readings")


def _samples(scene: AuditedRound, server: str) -> Finding:
    """From the share of the number of samples, and from it behind both masks."""
    said, people, scalar = (
        next(said for said in conversation(scene.parties) if said.step == LANES),
        len(PEOPLE),
        shape_of(scene.parties).widths.R,
    )
    end, place = len(said.sp) - people * scalar // 8, sorted(PEOPLE).index(VICTIM)
    start = end - people * 16
    held = [added(unpack(said.sp[start:end], 128), unpack(said.csp[start:end], 128), 128)[place] + 1]
    held += [added(unpack(said.sp[end:], scalar), unpack(said.csp[end:], scalar), scalar)[place]]
    held += [int.from_bytes(scene.body().samples, "little")] if server == "SP" else []
    held += [expanded_samples(*part) for part in _seeds(scene) if part[2] == VICTIM] if server == "CSP" else []
    guess, truth = next((v for v in held if 1 <= v <= MOST_SAMPLES), None), PEOPLE[VICTIM]
    recovered = f"{guess} samples where {truth} is true" if guess else "no number that could be a count"
    attack = Attack("samples", "7", f"a participant's sample count, by {server}", (server,), relative, _OFF_SAMPLES)
    return attack.score(SHARES, guess, MOST_SAMPLES // 2, truth, recovered, f"{len(held)} numbers held or opened")


def _rewards(scene: AuditedRound, server: str) -> Finding:
    truth = scene.played.rewards[VICTIM]
    envelope = RewardEnvelope.from_bytes(scene.played.envelopes[VICTIM], _LIMITS)
    kept = server_csp(scene.parties).reward(1, VICTIM)
    share = -envelope.mask % REWARD_MODULUS if server == "SP" or kept is None else kept.masked
    guess = share if 0 <= share <= PAYMENT else None
    recovered = f"{guess} millionths where {truth} is true" if guess else "no number that could be a reward"
    attack = Attack("rewards", "8", f"a participant's reward, by {server}", (server,), relative, _OFF_REWARD)
    return attack.score(SHARES, guess, PAYMENT // len(PEOPLE), truth, recovered, f"its share of 128 bits; of {BUDGET}")


def _overheard_upload(scene: AuditedRound) -> Finding:
    """Another participant, with its own key and the audience's, on an upload it overheard."""
    body, guess = scene.body(), None
    context = seal_context(body.place, body.who, body.digest)
    shape, truth = shape_of(scene.parties), integers(scene.parties, scene.trained[VICTIM])
    for key in phone(scene.parties, OTHER).boxes:
        try:
            seed = key.open(body.sealed, context)
        except SealBroken:
            continue
        share = shape.ring.decode(expanded_update(seed, body.place, VICTIM, shape.share_bytes))
        guess = shape.ring.signed(shape.ring.reduced(share + shape.ring.decode(body.shares))).astype(np.float64)
    attack = Attack(
        "overheard upload", "6", "an upload that a participant overheard", ("participant",), rms, _OFF_ENTRY
    )
    recovered = "nothing opens" if guess is None else f"{np.count_nonzero(guess == truth)} of {len(truth)} entries"
    return attack.score(SHARES, guess, np.zeros(len(truth)), truth, recovered, "sealed to CSP's key of this task")


def _overheard_reward(scene: AuditedRound) -> Finding:
    envelope, guess = RewardEnvelope.from_bytes(scene.played.envelopes[VICTIM], _LIMITS), None
    context, truth = shape_of(scene.parties).spec.context(1), scene.played.rewards[VICTIM]
    for key in phone(scene.parties, OTHER).boxes:
        try:
            body = key.open(envelope.sealed, reward_context(context, VICTIM))
        except SealBroken:
            continue
        guess = (int.from_bytes(body[:16], "big") - envelope.mask) % REWARD_MODULUS
    attack = Attack(
        "overheard reward", "6", "a reward that a participant overheard", ("participant",), relative, _OFF_REWARD
    )
    recovered = "nothing opens" if guess is None else f"{guess} millionths where {truth} is true"
    return attack.score(SHARES, guess, PAYMENT // len(PEOPLE), truth, recovered, "sealed to its owner's certified key")


def attack_seed() -> list[Finding]:
    """A phone that sends twice: with one seed for both bodies, and as built."""
    with switched(participant, "make_upload", _from_one_seed):
        weakened = _sent_twice("shares, a seed for two bodies")
    return [weakened, _sent_twice(SHARES)]


def _from_one_seed(*parts: Any) -> UploadBody:  # noqa: ANN401 -- of `make_upload`
    return upload_from_seed(*parts, bytes(SEED_BYTES))  # type: ignore[call-arg, unused-ignore]


def _sent_twice(subject: str) -> Finding:
    parties, (first, second) = paying(), (updates(1), updates(2))
    ring = shape_of(parties).ring
    bodies = [
        UploadBody.from_bytes(parties.encrypt({VICTIM: trained[VICTIM]})[VICTIM], _LIMITS)
        for trained in (first, second)
    ]
    words = ring.decode(bodies[1].shares) - ring.decode(bodies[0].shares)
    truth = integers(parties, second[VICTIM]) - integers(parties, first[VICTIM])
    guess = ring.signed(ring.reduced(words)).astype(np.float64)
    attack = Attack(
        "reused seed", "7", "the difference of two uploads, by SP, if a seed served both", ("SP",), rms, _OFF_ENTRY
    )
    recovered = f"{np.count_nonzero(guess == truth)} of {len(truth)} entries"
    return attack.score(subject, guess, np.zeros(len(truth)), truth, recovered, "SP's shares of both, subtracted")
