"""A reference against poisoning: who is in, beside whole numbers; sums over rounds; what a bad reference costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BadSignature,
    FormatError,
    LengthMismatch,
    NotReady,
    ProtocolError,
    RoundEnded,
    RoundNotOpen,
    SettingsError,
    WrongBase,
)
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares import reference
from crowdfl.protocols.shares.circuits.program import SP
from crowdfl.protocols.shares.reference import ReferenceScores, in_line
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.average import RoundRecord, SharesPublication
from crowdfl.protocols.shares.round.manifest import ManifestEntry, RoundManifest, StepRequest
from crowdfl.protocols.shares.round.upload import UploadBody, make_upload
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings
from tests.protocols.shares.dealing import deal_with, run, split
from tests.protocols.shares.lane_round import widths_of
from tests.protocols.shares.parties import SETTINGS, Parties

WITH_REFERENCE: dict[str, Any] = {"weighting": "equal", "reference": True, "lanes": 1024, "max_norm": 4.0}


@dataclass(frozen=True)
class Oracle:
    """The rule in whole numbers, of updates themselves rather than of their sketches."""

    bound: int  # of a squared length

    def is_in(self, update: Sequence[int], wanted: Sequence[int], before: int) -> bool:
        a, c, g = (int(np.dot(x, y)) for x, y in ((update, update), (wanted, wanted), (update, wanted)))
        return self.judges(a, c, g, before)

    def judges(self, a: int, c: int, g: int, before: int) -> bool:
        opposed = g < 0 and 16 * g * g > a * c
        return a <= self.bound and not opposed and before + g > 0 and 4 * a <= 9 * c


@pytest.mark.parametrize("c", [10_000, 30_000])
def test_scores_of_every_kind_are_judged_as_whole_numbers_say(c):
    """Thresholds included, and numbers as large as lanes that wrap around make them; the bound is beyond one and a half times
    the first reference's length, and within that of the second."""
    widths = widths_of(60, budget=None, pay=None, max_participants=60, **WITH_REFERENCE)
    rng, oracle = np.random.default_rng(3), Oracle(50_000)
    rows = [(int(a), int(g), int(s)) for a, g, s in rng.integers((0, -5000, -5000), (60_000, 5000, 9000), size=(45, 3))]
    rows += [(22_500, 1, 0), (22_501, 1, 0), (50_000, 1, 0), (50_001, 1, 0), (400, 0, 0), (400, 0, 1), (400, -500, 501)]
    rows += [(400, -500, 500), (400, -501, 600), (1 << (2 * widths.k + 10), -(1 << (2 * widths.k + 10)), 5)]
    lengths, products, sums = ([*(row[column] for row in rows), last] for column, last in enumerate((c, c, 0)))
    slots = [*range(len(rows)), widths.participants]
    numbers = [oracle.bound - a for a in lengths], lengths, products, sums
    shares = [split(values, widths.R, seed) for seed, values in enumerate(numbers, 1)]
    given = deal_with(lambda cards: reference.deal(cards, widths))

    def half(divider: Any) -> Any:
        side = divider.side
        own = ReferenceScores(slots, *(pair[side.index] for pair in shares))
        return in_line(side, widths, given.sp if side.index == SP else given.csp, own)

    sp, csp, transcript = run(half, half)
    found = [bool(bit) for bit in sp ^ csp]
    assert found[:-1] == [oracle.judges(a, c, g, before) for a, g, before in rows]
    assert 5 < sum(found) < 50
    assert found[-1], "the reference is within the bound, and not zero"
    assert transcript.exchanges == 3


class Campaign:
    """Rounds of a task beside the oracle, in units; both servers are new in each."""

    def __init__(self, people: int = 9, cohort: int = 4096) -> None:
        # Coins are random: by so many lanes cosines are within 0.016.
        changed = {"max_participants": people, "cohort": cohort, "lanes": 4096}
        self.parties = Parties(people, 60, WITH_REFERENCE | changed)
        self.oracle = Oracle(self.parties.shape.widths.K)
        self.sums = dict.fromkeys(self.parties.names, 0)
        self.number = 0

    def crafted(self, updates: Mapping[str, Any]) -> dict[str, bytes]:
        crafted = self.parties.crafted
        return {who: crafted(self.number, who, update, 1).to_bytes() for who, update in updates.items()}

    def reference(self, update: Any, signing: SigningKey | None = None) -> bytes:
        parties, entries = self.parties, np.asarray(update, dtype=np.int64)
        place, sealing = parties.place(self.number), next(iter(parties.people.values())).bundle.csp_sealing
        signing = signing or parties.signing
        return make_upload(parties.shape, place, "requester", signing, sealing, entries, 1).to_bytes()

    def play(self, updates: Mapping[str, Any], wanted: Any) -> set[str]:
        """Who is in, by the servers, after they were found to be what the oracle says; and the average of exactly these."""
        self.number += 1
        parties, before = self.parties, self.parties.requester.chain()
        parties.csp = parties.fresh_csp(parties.csp.records)
        inside = {who for who, u in updates.items() if self.oracle.is_in(u, wanted, self.sums[who])}
        played = parties.play(self.number, self.crafted(updates), reference=self.reference(wanted))
        record = record_of(played)
        assert set(record.accepted) == inside
        assert set(record.reasons) <= {Reason.NOT_IN_LINE}
        chain = parties.read(self.number, played)
        assert before is not None or self.number == 1
        moved = np.rint((chain.weights - self.model()) * parties.shape.widths.unit)
        self.base = chain.weights
        mean = np.mean([updates[who] for who in inside], axis=0)
        assert np.abs(moved - mean).max() <= 0.5
        for who in inside:
            self.sums[who] += int(np.dot(updates[who], wanted))
        return inside

    def model(self) -> Any:
        start = np.rint(self.parties.initial * 1000) / 1000
        return getattr(self, "base", start)


def dealt_out(names: list[str], most: int) -> list[list[str]]:
    """Neighbours apart, so that no cohort has too many who are out."""
    count = -(-len(names) // most)
    return [names[place::count] for place in range(count)]


def record_of(played: Any) -> RoundRecord:
    shown = SharesPublication.from_bytes(played.publication, Limits.plain(1 << 20))
    return RoundRecord.from_bytes(shown.record, Limits.plain(1 << 20))


@pytest.mark.parametrize("cohort", [4096, 5])
def test_who_is_in_over_rounds_is_what_the_oracle_says_with_new_servers_in_each(cohort, monkeypatch):
    """Absences, who comes late, who leaves; a sleeper that is honest, then flips; a rejected upload buys nothing.

    So it is over cohorts, as long as half of each is left.
    """
    monkeypatch.setattr(sp_module, "cohorts_of", lambda names, most, _: dealt_out(sorted(names), most))
    campaign, rng = Campaign(cohort=cohort), np.random.default_rng(5)
    a, b, flips, sleeper, long, late, leaves, weak, other = campaign.parties.names
    wanted = rng.normal(size=60) * 100

    def near(factor: float = 1.0) -> Any:
        return np.rint((wanted + rng.normal(size=60) * 60) * factor)

    one = {who: near() for who in (a, b, sleeper, leaves, weak, other)}
    assert campaign.play({**one, flips: -near(), long: near(4.5)}, np.rint(wanted)) == set(one)
    # Along the reference, and too long: it is rejected, so that its next, opposed as a whole, is out as well.
    against = np.rint(rng.normal(size=60) * 100)
    against -= np.rint(wanted * (np.dot(against, wanted) / np.dot(wanted, wanted) + 0.125))
    two = {who: near() for who in (a, b, late, other)}
    found = campaign.play({**two, long: against, sleeper: -near(), weak: against}, np.rint(wanted))
    assert found == {*two, weak}, "a little against it is in for who was along it before, and out for who never was"
    three = {who: near() for who in (a, b, late, sleeper)}
    found = campaign.play({**three, weak: against, flips: near(0.1), other: near(-2.0)}, np.rint(wanted))
    assert found == {*three, weak, flips}, "all rounds before count, not the last alone"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda c: np.zeros(60), Reason.REFERENCE_UNUSABLE.words),
        (lambda c: np.full(60, 4000), Reason.REFERENCE_UNUSABLE.words),
        (lambda c: np.full(60, 2 ** (c.parties.shape.widths.k - 2)), Reason.REFERENCE_UNUSABLE.words),
    ],
)
def test_a_reference_of_zero_or_out_of_bounds_voids_its_round_and_no_other(bad, why):
    campaign = Campaign(4)
    campaign.number = 1
    ones = dict.fromkeys(campaign.parties.names, np.full(60, 100))
    uploads, wrong = campaign.crafted(ones), campaign.reference(bad(campaign))
    with pytest.raises(RoundEnded, match=why):
        campaign.parties.play(1, uploads, reference=wrong)
    assert campaign.play(ones, np.full(60, 90)) == set(ones)


def test_a_reference_of_another_round_base_or_key_is_refused_by_either_server():
    campaign = Campaign(4)
    ones = dict.fromkeys(campaign.parties.names, np.full(60, 100))
    campaign.number = 1
    old = campaign.reference(np.full(60, 100))
    campaign.number = 0
    campaign.play(ones, np.full(60, 90))
    campaign.number = 2
    parties, uploads = campaign.parties, campaign.crafted(ones)
    forged = campaign.reference(np.full(60, 100), SigningKey.fresh())
    theirs = UploadBody.from_bytes(uploads[parties.names[0]], parties.shape.limits())
    for wrong, error in ((forged, BadSignature), (old, RoundNotOpen), (theirs.to_bytes(), BadSignature)):
        with pytest.raises(error):
            parties.new_sp(2).take_reference(wrong)
    replayed = replace(UploadBody.from_bytes(old, parties.shape.limits()), number=theirs.number)
    with pytest.raises(WrongBase):
        parties.new_sp(2).take_reference(replayed.to_bytes())
    with pytest.raises(NotReady, match="reference of round 2"):
        parties.play(2, uploads)
    good = campaign.reference(np.full(60, 90))
    for entry, error in ((None, LengthMismatch), (replayed, BadSignature), (theirs, BadSignature)):
        with pytest.raises(error):
            parties.play(2, uploads, ask=with_manifest(parties, entry), reference=good)
    assert parties.play(2, uploads, reference=good).rejected == {}


def with_manifest(parties: Parties, body: UploadBody | None) -> Any:
    """An SP that says something else of the reference."""

    def ask(request: bytes) -> Any:
        step = StepRequest.from_bytes(request, parties.shape.limits(1 << 20))
        manifest = RoundManifest.from_bytes(step.payload, parties.shape.limits())
        entry = b"" if body is None else body.digest + body.sealed + body.signature
        altered = replace(step, payload=replace(manifest, reference=entry).to_bytes())
        return parties.ask(altered.to_bytes())

    return ask


def test_up_to_a_half_may_be_left_out_and_not_more():
    campaign = Campaign(8)
    ones = {who: np.full(60, 100) for who in campaign.parties.names}
    flipped = {who: -update for who, update in list(ones.items())[:4]}
    assert campaign.play({**ones, **flipped}, np.full(60, 90)) == ones.keys() - flipped.keys()
    campaign.number = 2
    fifth = {**ones, **flipped, campaign.parties.names[4]: np.full(60, -100)}
    uploads, wanted = campaign.crafted(fifth), campaign.reference(np.full(60, 90))
    with pytest.raises(RoundEnded, match=Reason.TOO_MANY_LEFT_OUT.words):
        campaign.parties.play(2, uploads, reference=wanted)


def test_a_reference_comes_of_the_model_that_the_requester_holds_and_no_other_task_takes_one():
    parties = Parties(4, 60, WITH_REFERENCE)
    models = parties.models()
    played = parties.play(1, parties.encrypt(1, models), reference=parties.reference(1, models[parties.names[0]]))
    assert set(record_of(played).accepted) == set(parties.names)
    without = Parties(4, 60)
    with pytest.raises(FormatError, match="no reference"):
        without.reference(1, models[parties.names[0]])
    with pytest.raises(FormatError, match="no reference"):
        without.new_sp(1).take_reference(b"")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"weighting": "samples"}, 'weighting = "equal"'),
        ({"lanes": 512}, "at least 1024 `lanes`"),
        ({"check": "none"}, 'check = "bounds"'),
        ({"epsilon": 8.0, "noise": "any"}, "`epsilon` rules out"),
        ({"profile": "hardened"}, 'profile = "shares"'),
    ],
)
def test_settings_without_which_a_reference_means_nothing_are_refused(other, words):
    with pytest.raises(SettingsError, match=words):
        TaskSettings.of(**SETTINGS | WITH_REFERENCE | other)


def test_all_cohorts_of_a_round_are_compared_with_one_reference():
    """Another in each would ask everyone in it for the sign of another entry. A process that has just begun refuses it too."""
    campaign = Campaign(cohort=5)
    campaign.number = 1
    parties, along = campaign.parties, np.full(60, 20)
    uploads = campaign.crafted(dict.fromkeys(parties.names, along))
    other = ManifestEntry.of(UploadBody.from_bytes(campaign.reference(along + 1), parties.shape.limits()))
    parties.play(1, uploads, reference=campaign.reference(along))
    asked = [StepRequest.from_bytes(one, parties.shape.limits(parties.shape.longest_payload)) for one in parties.asked]
    # A payload that is no message is random bytes, of which one place alone may be a message's by chance.
    places = [at for at, one in enumerate(asked) if one.payload[:6] == asked[0].payload[:6]]
    assert len(places) == 2
    second = RoundManifest.from_bytes(asked[places[1]].payload, parties.shape.limits())
    csp = parties.fresh_csp()
    for request in parties.asked[: places[1]]:
        csp.answer(request)
    wrong = replace(asked[places[1]], payload=replace(second, reference=other.packed).to_bytes())
    for side in (csp, parties.fresh_csp(csp.records.copy())):
        with pytest.raises(ProtocolError, match="another reference"):
            side.answer(wrong.to_bytes())
        assert side.answer(parties.asked[places[1]])
