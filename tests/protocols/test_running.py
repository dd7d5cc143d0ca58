"""Running aggregation: any order, late uploads, repeats, and an SP that crashes and starts again."""

from dataclasses import replace
from itertools import count, pairwise, permutations

import numpy as np
import pytest

from crowdfl.errors import (
    AlreadyCounted,
    BadSignature,
    CiphertextError,
    CrowdFLError,
    KeyMismatch,
    LengthMismatch,
    LimitExceeded,
    OutOfTurn,
    RoundsExhausted,
    SeedReused,
    TooFewParticipants,
    TooManyUploads,
)
from crowdfl.protocols.common import keyed
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.hardened.manifest import HardenedUpload
from crowdfl.protocols.hardened.profile import HardenedSpRound
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import SpRecord
from tests.protocols.driving import SMALL, Tape, Wire, converse, deal

PAYMENT = 36_000_000
REWARDED = SMALL | {"max_participants": 4, "rounds": 5}


def four(parameters=3, **settings):
    """A task of four with everyone's upload at hand."""
    sides = deal(4, parameters, **settings)
    return sides, uploads_of(sides, 1, parameters)


def uploads_of(sides, number, parameters=3):
    models = {who: [0.1 * i, -0.5] + [1.5] * (parameters - 2) for i, who in enumerate(sides.people)}
    return {who: sides.upload(model, i + 1, who, number) for i, (who, model) in enumerate(models.items())}


def signed(sides, who, numbers):
    """These ciphertexts as an upload of round 1: in `hardened` its owner signs it."""
    if sides.spec.settings.profile == "paper":
        return numbers
    return HardenedUpload.signed(sides.spec.name, 1, who, numbers, sides.keys[who].signing).to_bytes()


def fill(sp, uploads, order=None):
    for who in order or uploads:
        sp.add_all({who: uploads[who]})
    return sp


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_any_order_and_grouping_gives_the_same_sum_bit_for_bit(profile):
    """All 24 orders of four uploads; in groups too, with one that is in already: a retry after a lost answer counts once."""
    sides, uploads = four(profile=profile)
    filled = [fill(sides.fresh_sp(), uploads, order) for order in permutations(uploads)]
    grouped = sides.fresh_sp()
    grouped.add_all({"p1": uploads["p1"]})
    grouped.add_all(uploads)
    assert len({sp._products.result().block.tobytes() for sp in [*filled, grouped]}) == 1
    assert grouped._products.count == 4


@pytest.mark.parametrize(
    ("most", "uploads_of_bytes", "groups"),
    [(15, 99, [4]), (3, 99, [3, 1]), (15, 2.5, [2, 2]), (15, 0.5, [1, 1, 1, 1])],
)
def test_stored_uploads_are_counted_in_groups_of_bounded_size(monkeypatch, most, uploads_of_bytes, groups):
    """By number and by bytes; an upload beyond the bound goes in alone."""
    sides, uploads = four()
    sp, seen = sides.fresh_sp(), []
    whole = sp.add_all
    monkeypatch.setattr(sp, "add_all", lambda group, *, validated: [seen.append(len(group)), whole(group)])
    monkeypatch.setattr(keyed, "_GROUP", most)
    monkeypatch.setattr(keyed, "_GROUP_BYTES", int(uploads_of_bytes * sp.upload_bytes()))
    sp.add_stored("in/", {who: who for who in uploads}, lambda name: uploads[name[3:]])
    assert seen == groups
    assert sp._products.result() == fill(sides.fresh_sp(), uploads)._products.result()


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_refused_upload_in_a_group_counts_nobody_twice(profile):
    """Whoever was in the group may be sent again."""
    sides, uploads = four(profile=profile)
    sp = sides.fresh_sp()
    with pytest.raises(CrowdFLError):
        sp.add_all(uploads | {"p2": uploads["p2"][:-1]})
    sp.add_all({"p0": uploads["p0"]})
    with pytest.raises(AlreadyCounted, match="p0"):
        sp.add_all({"p3": uploads["p3"], "p0": uploads["p1"]})
    sp.add_all(uploads)
    assert sp._products.result() == fill(sides.fresh_sp(), uploads)._products.result()
    assert sp._products.count == 4


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_other_bytes_of_the_same_participant_are_refused(profile):
    """The same model encrypted anew is another upload; the sum stays as it was."""
    sides, uploads = four(profile=profile)
    sp = fill(sides.sp, uploads)
    before = sp._products.result()
    with pytest.raises(AlreadyCounted, match="p1"):
        sp.add_all({"p1": sides.upload([0.1, -0.5, 1.5], 2, "p1")})
    assert sp._products.result() == before


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_uploads_that_are_not_uploads_are_refused_by_name(profile):
    sides, uploads = four(profile=profile)
    good, width = numbers_of(uploads["p0"], profile), sides.task.public.ciphertext_bytes
    shorter = bytearray(good[:-width])
    shorter[51] -= 1  # the count, last byte of the header
    stranger = numbers_of(deal(4, 3, profile=profile).upload([0.0] * 3, 1, "p0"), profile)
    longer = bytearray(good + good[-width:])
    longer[51] += 1
    for data, error in (
        (good[:-width] + bytes(width), CiphertextError),
        (good[:-width] + b"\xff" * width, CiphertextError),
        (stranger, KeyMismatch),
        (bytes(shorter), LengthMismatch),
        (bytes(longer), (LimitExceeded, LengthMismatch)),
    ):
        with pytest.raises(error):
            sides.sp.add_all({"p0": signed(sides, "p0", data)})
    assert sides.sp._products.count == 0


def numbers_of(upload, profile):
    return upload if profile == "paper" else HardenedUpload.parse(upload).numbers


@pytest.mark.parametrize(("who", "number"), [("p1", 1), ("p0", 2)])
def test_an_upload_of_somebody_else_or_of_another_round_is_refused(who, number):
    sides, _ = four()
    other = sides.upload([0.1, -0.5, 1.5], 1, who, number)
    with pytest.raises(BadSignature, match="not signed by p0 for round 1"):
        sides.sp.add_all({"p0": other})
    assert sides.sp._products.count == 0


def test_one_upload_too_many_is_refused():
    """The width budget was computed for so many."""
    sides, uploads = four(max_participants=3)
    with pytest.raises(TooManyUploads):
        fill(sides.sp, uploads)


@pytest.mark.parametrize(("profile", "needed"), [("hardened", 3), ("paper", 3), ("hardened", 4)])
def test_too_few_uploads_publish_nothing(profile, needed):
    sides, uploads = four(profile=profile, min_participants=needed)
    fill(sides.sp, uploads, ["p0", "p1", "p2"][: needed - 1])
    wire = Wire(sides.csp)
    with pytest.raises(TooFewParticipants, match=f"{needed - 1} uploads, {needed} needed"):
        converse(sides.sp.publish(final=False), wire)
    assert wire.requests == []


def test_rounds_beyond_the_task_are_refused():
    """The masks were sized for so many rounds."""
    sides, _ = four(rounds=2)
    sides.sp.open_round(2)
    with pytest.raises(RoundsExhausted, match="3 of 2"):
        sides.sp.open_round(3)


def test_a_second_publication_after_another_upload_is_refused():
    """The difference of the two sums would be the late participant's model in the clear."""
    sides, uploads = four()
    fill(sides.sp, uploads, ["p0", "p1", "p2"])
    converse(sides.sp.publish(final=False), sides.csp.answer)
    sides.sp.add_all({"p3": uploads["p3"]})
    wire = Wire(sides.csp)
    with pytest.raises(SeedReused):
        converse(sides.sp.publish(final=False), wire)
    assert wire.requests == []


def test_a_second_publication_of_the_same_sum_sends_the_same_bytes():
    sides, uploads = four()
    fill(sides.sp, uploads)
    first, second = Wire(sides.csp), Wire(sides.csp)
    converse(sides.sp.publish(final=False), first)
    converse(sides.sp.publish(final=False), second)
    assert first.requests == second.requests


WAYS = {
    "average": (["uploads", "opening"], {}),
    "average, total hidden": (["uploads", "scaling", "opening"], {"total": "hidden", "key_bits": 640}),
    "rewards": (["uploads", "rewards", "opening"], REWARDED),
    "sketched rewards": (["uploads", "rewards", "opening"], REWARDED | {"lanes": 8, "parameters": 40}),
    "rewards, total hidden": (["uploads", "rewards", "scaling", "opening"], REWARDED | {"total": "hidden"}),
}


def decided(sp):
    """What there is in a record."""
    kept = HardenedSpRound.from_bytes(sp.record.round, Limits.plain()) if sp.record.round else HardenedSpRound()
    return {name for name, value in vars(kept).items() if value}


def run_all(sp, answer, *, rewarded):
    """Reward where the task does, and publish."""
    if rewarded:
        converse(sp.reward(PAYMENT), answer)
    converse(sp.publish(final=False), answer)


@pytest.mark.parametrize("way", WAYS)
def test_a_restarted_sp_sends_the_same_bytes(way):
    """Rebuilt from its bundle, the stored uploads and the stored record, and given CSP's answers again."""
    purposes, settings = WAYS[way]
    rewarded = "rewards" in purposes
    sides, uploads = four(**settings)
    wire = Wire(sides.csp)
    run_all(fill(sides.sp, uploads), wire, rewarded=rewarded)
    assert decided(sides.sp) - {"payment"} == set(purposes)

    again = sides.fresh_sp()
    fill(again, uploads, sorted(uploads, reverse=True))
    again.record = sides.sp.record
    tape = Tape(wire.replies)
    run_all(again, tape, rewarded=rewarded)
    assert tape.requests == wire.requests
    assert again.publication() == sides.sp.publication()
    assert again.envelopes() == sides.sp.envelopes()


def test_without_its_record_a_restarted_sp_sends_other_bytes():
    sides, uploads = four()
    first, second = Wire(sides.csp), Wire(sides.fresh_csp())
    run_all(fill(sides.sp, uploads), first, rewarded=False)
    run_all(fill(sides.fresh_sp(), uploads), second, rewarded=False)
    assert first.requests != second.requests


def restarted(sides, uploads, record):
    """Another SP with the same bundle, uploads and record."""
    again = fill(sides.fresh_sp(), uploads)
    again.record = record
    return again


@pytest.mark.second
@pytest.mark.parametrize("way", ["average, total hidden", "rewards"])
def test_a_restarted_sp_can_finish_from_every_request_on(way):
    """A crash anywhere strands no round: the first SP is given up after each request in turn."""
    purposes, settings = WAYS[way]
    sides, uploads = four(**settings)
    kept = SpRecord()

    class Crash(Exception):
        """The process dies."""

    for after in count():
        asked = set()

        def answer(request, asked=asked, after=after):
            if len(asked) == after and request not in asked:
                raise Crash
            asked.add(request)
            return sides.csp.answer(request)

        again = restarted(sides, uploads, kept)
        try:
            run_all(again, answer, rewarded="rewards" in purposes)
        except Crash:
            kept = again.record
            continue
        break
    assert len(sides.csp.records.answers) == after
    assert np.abs(sides.people["p0"].read(again.publication(), 1).weights - [0.2, -0.5, 1.5]).max() < 0.01


@pytest.mark.parametrize("way", WAYS)
def test_what_masks_a_request_is_in_the_record_before_it_leaves(way):
    """One purpose after the other; nothing that was decided changes."""
    purposes, settings = WAYS[way]
    sides, uploads = four(**settings)
    fill(sides.sp, uploads)
    seen = []

    def answer(request):
        seen.append(HardenedSpRound.from_bytes(sides.sp.record.round, Limits.plain()))
        return sides.csp.answer(request)

    run_all(sides.sp, answer, rewarded="rewards" in purposes)
    found = [name for name in purposes if getattr(seen[0], name)]
    for before, after in pairwise(seen):
        found += [name for name in purposes if getattr(after, name) and not getattr(before, name)]
        assert all(getattr(before, name) in (b"", getattr(after, name)) for name in purposes)
    assert found == purposes
    assert seen[-1].to_bytes() == sides.sp.record.round


@pytest.mark.parametrize("forgotten", ["", "uploads"])
def test_restored_seeds_are_refused_for_other_uploads(forgotten):
    """After a crash that lost an upload, the old seed does not mask the new sum: it is bound to the other one by itself too."""
    sides, uploads = four()
    run_all(fill(sides.sp, uploads), sides.csp.answer, rewarded=False)
    again = fill(sides.fresh_sp(), uploads, ["p0", "p1", "p2"])
    kept = HardenedSpRound.from_bytes(sides.sp.record.round, Limits.plain())
    again.record = SpRecord(round=replace(kept, **{forgotten: b""} if forgotten else {}).to_bytes())
    with pytest.raises(OutOfTurn if forgotten else SeedReused):  # CSP knows the manifest that SP has forgotten
        run_all(again, sides.csp.answer, rewarded=False)


def test_every_purpose_and_round_has_a_seed_of_its_own():
    """Nothing is shared between an opening and a reward, or between rounds."""
    sides, _ = four(**REWARDED)
    seeds = []
    for number in (1, 2):
        sides.sp.open_round(number)
        assert sides.sp.record == SpRecord()
        run_all(fill(sides.sp, uploads_of(sides, number)), sides.csp.answer, rewarded=True)
        kept = HardenedSpRound.from_bytes(sides.sp.record.round, Limits.plain())
        seeds += [MaskSeed.from_bytes(state).seed for state in (kept.opening, kept.rewards)]
    assert len(set(seeds)) == 2 * 2


def test_a_second_payment_under_the_same_masks_is_refused():
    """CSP would open mu + m and mu' + m: their difference is the participant's share."""
    sides, uploads = four(**REWARDED)
    run_all(fill(sides.sp, uploads), sides.csp.answer, rewarded=True)
    with pytest.raises(SeedReused):
        converse(sides.sp.reward(2 * PAYMENT), sides.csp.answer)


def test_only_what_was_rewarded_is_averaged():
    """An upload that came after the rewards has no part in the average, nor the other way round."""
    sides, _ = four(**REWARDED)
    for first, second in (("reward", "publish"), ("publish", "reward")):
        sides.sp.open_round(sides.sp.round_number + (first == "publish"))
        uploads = uploads_of(sides, sides.sp.round_number)
        fill(sides.sp, uploads, ["p0", "p1", "p2"])
        steps = {"reward": lambda: sides.sp.reward(PAYMENT), "publish": lambda: sides.sp.publish(final=False)}
        converse(steps[first](), sides.csp.answer)
        sides.sp.add_all({"p3": uploads["p3"]})
        wire = Wire(sides.csp)
        with pytest.raises(SeedReused):
            converse(steps[second](), wire)
        assert wire.requests == []


def test_only_what_was_rewarded_is_averaged_after_a_restart():
    """The stored record says which uploads were rewarded; one that came after has no part in the average."""
    sides, uploads = four(**REWARDED)
    fill(sides.sp, uploads, ["p0", "p1", "p2"])
    converse(sides.sp.reward(PAYMENT), sides.csp.answer)
    again = restarted(sides, uploads, sides.sp.record)
    wire = Wire(sides.csp)
    with pytest.raises(SeedReused):
        converse(again.publish(final=False), wire)
    assert wire.requests == []


def test_two_uploads_earn_no_rewards():
    """With two, one's own reward gives the other's sample count away."""
    sides, uploads = four(**REWARDED)
    fill(sides.sp, uploads, ["p0", "p1"])
    with pytest.raises(TooFewParticipants):
        converse(sides.sp.reward(PAYMENT), sides.csp.answer)


def test_lanes_of_another_sketch_get_other_masks():
    """A CSP that lost its nonces gives new ones; the same masks on another sketch would open the difference."""
    sides, uploads = four(**WAYS["sketched rewards"][1])
    assert sides.sp._shape.budget.buckets < sides.sp._shape.budget.ciphertexts
    converse(fill(sides.sp, uploads).reward(PAYMENT), sides.csp.answer)
    (before,) = sides.csp.party.view.of("lanes")
    forgetful = sides.fresh_csp()
    converse(sides.sp.reward(PAYMENT), forgetful.answer)
    (after,) = forgetful.party.view.of("lanes")
    differences = [abs(a - b) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)]
    bound = 2 * sides.sp._shape.budget.lane_bound
    assert max(differences) > bound


def test_lengths_are_part_of_what_is_checked():
    """An upload of a smaller model under the same key does not fit."""
    sides, _ = four(key_bits=128, max_samples=10)
    vector = sides.sp.party.encrypt([0, 0])
    with pytest.raises(LengthMismatch):
        sides.sp.add_all({"p0": signed(sides, "p0", vector.part(0, 1).to_bytes())})
