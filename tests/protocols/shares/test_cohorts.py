"""A round of more people than are checked together: cohorts of their own manifests, coins and checks, and one sum."""

from dataclasses import replace

import pytest

from crowdfl.errors import AlreadyCounted, OutOfTurn, ProtocolError, RoundEnded, SettingsError
from crowdfl.protocols.exchange import ask_directly
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.average import RoundRecord, SharesPublication
from crowdfl.protocols.shares.round.manifest import ManifestEntry, RoundManifest, StepRequest, cohorts_of
from crowdfl.protocols.shares.round.upload import parse_upload
from tests.protocols.shares.parties import (
    COUNTED_ONCE,
    NOISY,
    PAYING,
    UNCHECKED,
    Parties,
    expected,
    in_units,
    initial_units,
)

CROWD, SIZE = 11, 4  # three cohorts of three or four
KINDS = {"checks": {}, "no checks": UNCHECKED, "pay": PAYING | COUNTED_ONCE, "noise": NOISY | UNCHECKED}


def crowd(settings=None, count=CROWD):
    return Parties(count, settings={"cohort": SIZE} | dict(settings or {}))


def manifests(parties):
    asked = [StepRequest.from_bytes(one, parties.shape.limits(parties.shape.longest_payload)) for one in parties.asked]
    found = (one.payload for one in asked if one.payload[:6] == b"CFLM\x02" + bytes([RoundManifest.kind]))
    return [RoundManifest.from_bytes(payload, parties.shape.limits()) for payload in found]


def record_of(parties, played):
    publication = SharesPublication.from_bytes(played.publication, parties.shape.limits())
    return RoundRecord.from_bytes(publication.record, parties.shape.limits())


def too_long(parties, number, who):
    """An upload that the checks reject."""
    return parties.crafted(number, who, [2000 * 10] * parties.parameters, 1).to_bytes()


@pytest.mark.parametrize("settings", [{}, UNCHECKED, COUNTED_ONCE | PAYING], ids=["checks", "no checks", "pay"])
def test_one_sum_of_all_cohorts_is_the_average_in_the_clear(settings):
    parties, base = crowd(settings), None
    for number in (1, 2):
        models, parties.asked = parties.models(number), []
        base = initial_units(parties) if base is None else base
        played = parties.play(number, parties.encrypt(number, models))
        average = parties.read(number, played)
        base = expected(parties, base, models, parties.samples())
        assert in_units(parties, average) == base
        found = manifests(parties)
        assert [(one.cohort, one.cohorts, len(one.names)) for one in found] == [(1, 3, 4), (2, 3, 4), (3, 3, 3)]
        assert sorted(who for one in found for who in one.names) == parties.names
        assert sorted(record_of(parties, played).accepted) == parties.names
        if parties.shape.payment:
            assert set(parties.rewards(number, played).values()) == {9_000_000 // CROWD}


def test_a_smaller_round_of_the_same_task_is_one_cohort():
    parties = crowd()
    models = {who: model for who, model in parties.models().items() if who in parties.names[:SIZE]}
    parties.play(1, parties.encrypt(1, models))
    assert [(one.cohort, one.cohorts) for one in manifests(parties)] == [(1, 1)]


def test_nobody_chooses_who_is_checked_with_whom():
    """Names are made by their owners: in the order of names, few of them could fill a third of many cohorts."""
    names = [f"{place:04}" for place in range(1000)]
    first, second = (cohorts_of(names, 100, seed) for seed in (b"a" * 32, b"b" * 32))
    assert [len(one) for one in first] == [100] * 10
    assert sorted(who for one in first for who in one) == names
    assert max(sum(who < "0100" for who in one) for one in first) < 30
    assert [set(one) for one in first] != [set(one) for one in second]


def test_dealt_files_are_of_one_cohort_each():
    parties = crowd()
    files = {parties.dealt("csp", place)[:64] for place in range(1, 7)}
    assert len(files) == 6
    assert (parties.shape.file_number(1, 3), parties.shape.file_number(2, 1)) == (3, 4)
    assert parties.shape.widths.cohort == SIZE


def test_an_upload_out_of_bounds_is_left_out_of_its_cohort_alone():
    parties, bad = crowd(COUNTED_ONCE), Parties(CROWD).names[0]
    uploads = parties.encrypt(1, parties.models()) | {bad: too_long(parties, 1, bad)}
    played = parties.play(1, uploads)
    models = {who: model for who, model in parties.models().items() if who != bad}
    assert in_units(parties, parties.read(1, played)) == expected(parties, initial_units(parties), models, {})
    assert list(played.rejected) == list(record_of(parties, played).rejected) == [bad]


class Arranged:
    """SP's draw of cohorts, by the test."""

    def __init__(self, monkeypatch, *cohorts):
        monkeypatch.setattr(sp_module, "cohorts_of", lambda *_: [list(one) for one in cohorts])


def test_a_void_cohort_is_left_out_alone_and_named_nowhere(monkeypatch):
    parties = crowd(COUNTED_ONCE | PAYING, 16)
    names = parties.names
    Arranged(monkeypatch, names[:4], names[4:8], names[8:12], names[12:])
    for number in (1, 2, 3):
        uploads = parties.encrypt(number, parties.models(number))
        uploads |= {who: too_long(parties, number, who) for who in names[4:6]}
        played = parties.play(number, uploads)
        record = record_of(parties, played)
        assert list(record.accepted) == names[:4] + names[8:]
        assert record.rejected == ()
        assert sorted(played.rejected) == names[4:8]
        parties.read(number, played)
    # Everyone in it was judged three times, and no record names them: CSP opens no seal of theirs any more.
    again = parties.play(4, parties.encrypt(4, parties.models(4)))
    assert list(record_of(parties, again).accepted) == names[:4] + names[8:]


def test_too_many_void_cohorts_void_the_round(monkeypatch):
    parties = crowd(COUNTED_ONCE)
    names = parties.names
    Arranged(monkeypatch, names[:4], names[4:8], names[8:])
    uploads = parties.encrypt(1, parties.models())
    uploads |= {who: too_long(parties, 1, who) for who in names[2:6]}
    with pytest.raises(RoundEnded, match="than a round may leave out"):
        parties.play(1, uploads)
    assert not [one for one in manifests(parties) if one.number != 1]
    second = parties.play(2, parties.encrypt(2, parties.models()))
    assert len(record_of(parties, second).accepted) == CROWD


def test_csp_refuses_a_name_of_an_earlier_cohort_after_a_restart_too():
    """An upload in very many cohorts could be read off their sum."""
    parties = crowd()
    parties.play(1, parties.encrypt(1, parties.models()))
    asked = [StepRequest.from_bytes(one, parties.shape.limits(parties.shape.longest_payload)) for one in parties.asked]
    first, second = manifests(parties)[:2]
    place = next(at for at, one in enumerate(asked) if one.payload == second.to_bytes())
    csp = parties.fresh_csp()
    for request in parties.asked[:place]:
        csp.answer(request)
    columns = ("names", "digests", "sealed", "signatures")
    stolen = replace(second, **{name: getattr(first, name)[:1] for name in columns})
    for side in (csp, parties.fresh_csp(csp.records.copy())):
        for wrong, refusal in {
            stolen: AlreadyCounted,
            replace(second, cohorts=2): ProtocolError,
            replace(second, cohort=3): OutOfTurn,
            replace(second, cohort=1): OutOfTurn,
            replace(second, base=bytes(32)): Exception,
        }.items():
            with pytest.raises(refusal):
                side.answer(replace(asked[place], payload=wrong.to_bytes()).to_bytes())
        assert side.answer(parties.asked[place])


def test_csp_refuses_more_people_in_all_cohorts_than_an_average_may_be_of(monkeypatch):
    """Each of them has signed, and no cohort is too large: where SP recruits, the twelfth would be its own."""
    parties = crowd({"max_participants": CROWD}, CROWD + 1)
    *names, extra = parties.names
    Arranged(monkeypatch, names[:4], names[4:8], names[8:])
    uploads = parties.encrypt(1, parties.models())
    entry = ManifestEntry.of(parse_upload(uploads.pop(extra), parties.shape, parties.place(1)))
    parties.play(1, uploads)
    last = manifests(parties)[-1]
    asked = [StepRequest.from_bytes(one, parties.shape.limits(parties.shape.longest_payload)) for one in parties.asked]
    place = next(at for at, one in enumerate(asked) if one.payload == last.to_bytes())
    more = {"names": extra, "digests": entry.digest, "sealed": entry.sealed, "signatures": entry.signature}
    larger = replace(last, **{column: (*getattr(last, column), one) for column, one in more.items()})
    csp = parties.fresh_csp()
    for request in parties.asked[:place]:
        csp.answer(request)
    with pytest.raises(ProtocolError, match=f"more than the {CROWD} people"):
        csp.answer(replace(asked[place], payload=larger.to_bytes()).to_bytes())
    assert csp.answer(parties.asked[place])


def of_one_person(csp, *names):
    """A CSP to which these are devices of one person."""
    csp.side.roster.places |= dict.fromkeys(names, "7")
    return csp


@pytest.mark.parametrize("cohort", [1, 2, 3])
def test_csp_refuses_two_devices_of_one_person_in_a_round_after_a_restart_too(monkeypatch, cohort):
    """In one manifest or in two: a person whom its requester gives a second device counts once."""
    parties = crowd()
    names = parties.names
    Arranged(monkeypatch, names[:4], names[4:8], names[8:])
    same = names[0], names[4 * cohort - 2]
    of_one_person(parties.csp, *same)
    with pytest.raises(AlreadyCounted, match="another device"):
        parties.play(1, parties.encrypt(1, parties.models()))
    assert [one.cohort for one in manifests(parties)] == list(range(1, cohort + 1))
    restarted = of_one_person(parties.fresh_csp(parties.csp.records.copy()), *same)
    with pytest.raises(AlreadyCounted, match="another device"):
        restarted.answer(parties.asked[-1])


def test_no_sum_is_opened_before_every_cohort_has_its_verdict():
    parties = crowd(UNCHECKED)
    parties.play(1, parties.encrypt(1, parties.models()))
    *_, offer = (StepRequest.from_bytes(one, parties.shape.limits()) for one in parties.asked)
    csp = parties.fresh_csp()
    csp.answer(parties.asked[0])
    step = StepRequest.from_bytes(parties.asked[1], parties.shape.limits())
    with pytest.raises(Exception, match="message of kind"):
        csp.answer(replace(step, payload=offer.payload).to_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_both_servers_die_around_every_answer(kind):
    """What CSP has recorded is all that its next process has; SP's is asked for the same once more."""
    parties = crowd(KINDS[kind])
    uploads, asked, kept = parties.encrypt(1, parties.models()), [], {}

    def ask(request):
        asked.append(request)
        if request not in kept:
            parties.csp = parties.fresh_csp(parties.csp.reserved(request).records)
            kept[request] = parties.csp.answer(request)
            parties.csp = parties.fresh_csp(parties.csp.records.copy())
        return ask_directly(lambda _: kept[request])(request)

    played, parties.left = parties.play(1, uploads, ask), None
    assert parties.play(1, uploads, ask).publication == played.publication
    assert len(set(asked)) == len(kept)
    if kind != "noise":
        assert in_units(parties, parties.read(1, played)) == expected(
            parties, initial_units(parties), parties.models(), parties.samples()
        )


def test_widths_fit_the_crowd_and_lanes_the_cohort():
    whole, parts = Parties(400, settings=UNCHECKED).shape.widths, crowd(UNCHECKED, 400).shape.widths
    assert whole.k == parts.k
    small, large = crowd(count=SIZE).shape.widths, crowd(count=100 * SIZE).shape.widths
    assert (large.cohort, large.sum_bound) == (SIZE, 100 * small.sum_bound)
    assert large.drop_chance <= small.drop_chance


def test_only_equal_pay_goes_with_cohorts():
    with pytest.raises(SettingsError, match="at most `cohort` people"):
        crowd(PAYING | {"pay": "samples"})
    assert Parties(SIZE, settings=PAYING | {"pay": "samples", "cohort": SIZE})
