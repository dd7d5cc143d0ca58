"""`shares`: servers, readers, participants and requesters that deviate gain nothing, and extreme tasks give nothing away.

Attacks that still work are expected to fail, and say who gains what.
"""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    CrowdFLError,
    NotFinite,
    NotReady,
    RolledBack,
    ServiceUnavailable,
    SettingsError,
)
from crowdfl.learning.bounds import suggested_bound
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.claims import RewardEnvelope
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesReaderBundle
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.protocols.shares.round.average import (
    PARTICIPANTS,
    AverageReader,
    RoundRecord,
    SharesPublication,
    parse_record,
)
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.protocols.shares.round.upload import UploadBody
from crowdfl.roles.sp.results import read_result
from crowdfl.roles.sp.rounds import pack_envelopes
from crowdfl.simulation.federation import LocalFederation
from crowdfl.simulation.links import KgcFor
from crowdfl.storage import tables
from tests.attacks.campaign import SIZE, Campaign, error, watch_readers
from tests.attacks.cheating import BUDGET, paid_desk
from tests.hosts import ONE, Desk, heard, unchanged
from tests.protocols.shares.parties import COUNTED_ONCE

VICTIM = "p3"
AVERAGE = 6  # the step of a round that opens its sum


def test_a_csp_that_was_set_back_opens_no_second_sum() -> None:
    """Its database is of before the first round: it does not know the model that its own record has led to."""
    campaign = Campaign()
    campaign.play()
    with campaign.host.csp.store._write() as connection:
        connection.execute(sa.delete(tables.records))
    with pytest.raises(CrowdFLError):
        campaign.play([VICTIM])
    stored = campaign.host.sp.store.task(campaign.federation.task)
    assert stored.end is not None
    assert "one of the servers was set back" in stored.end.words()


def test_a_platform_that_was_set_back_gets_no_second_upload() -> None:
    """Whoever has CSP's record of a round stops where the round is shown as open, or with another record."""
    campaign = Campaign()
    campaign.play()
    person = campaign.host.people["p0"]
    status = person.sp.status(person.task)
    person._chain.require_forward(status)
    again = [entry | {"state": "open"} for entry in status["rounds"]]
    with pytest.raises(RolledBack, match="runs round 1 again"):
        person._chain.require_forward(status | {"rounds": again})
    person._chain.require_forward(status | {"rounds": again, "state": "cancelled"})  # as after `crowdfl restore`
    person.blobs.delete("rounds/1/record")
    person.blobs.put("rounds/1/record", b"another record of CSP's")
    with pytest.raises(RolledBack, match="two records of round 1"):
        person.read(1)


def usual_bound() -> float:
    """The `max_norm` that a trial on everyone's data suggests."""
    return suggested_bound(float(np.linalg.norm(wanted)) for wanted in Campaign().wanted.values()) or 0.0


@pytest.mark.parametrize(("max_norm", "works"), [(6.0, True), (usual_bound(), False)], ids=["far above", "usual"])
def test_where_everyone_counts_once_one_moves_an_average_by_max_norm_over_people(max_norm: float, works: bool) -> None:
    """Even one that knows what the others send: it holds the model still if their sum is shorter than `max_norm`, else not."""
    campaign = Campaign(**COUNTED_ONCE, max_norm=max_norm, clip=6.0)
    others = sum(campaign.wanted.values())
    campaign.play(cheat=(-others, 1000))
    moved, length = float(np.linalg.norm(campaign.models[-1])), float(np.linalg.norm(others))
    assert moved == pytest.approx(max(0.0, length - max_norm) / 7, abs=0.002)
    assert (moved < 0.002) == works


def test_a_participant_earns_no_more_by_declaring_more_samples() -> None:
    campaign = Campaign(max_samples=1000, budget="9.00")
    campaign.wanted = dict.fromkeys(campaign.wanted, np.full(SIZE, 0.5))
    rewards = campaign.play(cheat=(np.full(SIZE, 0.5), 1000)).rewards or {}
    assert set(rewards.values()) == {Decimal("1.285714")}  # a seventh of 9.00


STILL = {
    "a rate that rounds to nothing": {"server_step": "fedavgm", "server_rate": 1e-9, "server_momentum": 0.0},
    "a floor above every average": {"server_step": "fedadam", "server_rate": 1e-4, "server_floor": 1.0},
    "squares that grow": {"server_step": "fedadagrad", "server_rate": 2e-3},
    "a rate below every root": {"server_step": "fedyogi", "server_rate": 1e-4},
    "a norm below half a unit": {"max_norm": 4e-4},
}


@pytest.mark.parametrize("settings", STILL.values(), ids=STILL.keys())
def test_a_requester_cannot_hold_the_model_still(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read whoever misses a round. Its own program refuses such a task, and so does every phone."""
    with pytest.raises(SettingsError, match="would stand still"):
        Campaign(**settings).play()
    monkeypatch.setattr(SharesProfile, "check", lambda *_: None)
    with pytest.raises(SettingsError, match="would stand still"):
        Campaign(**settings).play()


def test_a_requester_that_hardly_moves_the_model_nearly_reads_whoever_misses_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `disclosures` says: a step that could move the model, and does not, is no mistake that a phone can name."""
    campaign = Campaign(server_step="fedavgm", server_rate=1e-3, server_momentum=0.0)
    read = watch_readers(monkeypatch)
    campaign.play()
    campaign.play([VICTIM])
    (sums, total), (fewer, rest) = read[1], read[2]
    assert error(sums - fewer, campaign.uploaded(VICTIM, 1)) < 0.1
    assert total - rest == campaign.samples[VICTIM]


def _read_by_a_participant(campaign: Campaign) -> dict[int, tuple[Any, set[str]]]:
    """Totals and names, of a round with the victim and one without."""
    read = {}
    for number, absent in ((1, []), (2, [VICTIM])):
        campaign.play(absent)
        reader = campaign.host.people["p0"]
        message = SharesPublication.from_bytes(reader._publication(number), campaign.shape.limits())
        record = parse_record(message.record, campaign.shape, reader.side._reader._csp_key)
        read[number] = reader.read(number).total, set(record.accepted)
        assert (message.total == b"") == (reader.read(number).total is None)
    return read


def test_where_everyone_counts_once_nothing_depends_on_anyones_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what a reader computes, nor the length of an upload, nor what is in it but its shares of the update."""
    seen, read = [], watch_readers(monkeypatch)
    for most in (1, 10**6):
        campaign = Campaign(**COUNTED_ONCE)
        campaign.samples = {who: 1 + most * place for place, who in enumerate(campaign.samples)}
        totals = [total for total, _ in _read_by_a_participant(campaign).values()]
        sp, task = campaign.host.sp, campaign.federation.task
        names = [sp.store.upload(task, 1, campaign.pseudonym(who)).digest for who in campaign.wanted]
        bodies = [sp.blobs.get(f"{task}/rounds/1/uploads/{name}") for name in names]
        assert {UploadBody.from_bytes(body, campaign.shape.limits()).samples for body in bodies} == {b""}
        seen.append((totals, list(map(len, bodies)), [(list(sums), total) for sums, total in read.values()]))
    assert seen[0] == seen[1]
    assert seen[0][0] == [None, None]


@pytest.mark.parametrize("silent", ["sp", "csp"])
def test_no_server_takes_a_step_while_kgc_keeps_the_source(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that never acknowledges, KGC keeps the seeds of both: with KGC's disk it would read every upload.

    The other server asks KGC itself, and takes no step. Once KGC has nothing left, the round goes on.
    """
    acknowledge, claims_all = KgcFor.acknowledge, [silent]

    def one_is_silent(self: KgcFor, task: str) -> bool:
        return self.role in claims_all or acknowledge(self, task)

    monkeypatch.setattr(KgcFor, "acknowledge", one_is_silent)
    campaign, answered = Campaign(), []
    answer = campaign.host.csp.answer
    campaign.host.csp.answer = lambda *request: answered.append(answer(*request)) or answered[-1]
    with pytest.raises(NotReady, match="KGC still has what it dealt"):
        campaign.play()
    kgc, source = campaign.host.disk.blobs("kgc/keys"), f"{campaign.federation.task}.source"
    assert kgc.has(source)
    assert answered == []
    claims_all.clear()
    acknowledge(KgcFor(campaign.host.kgc, silent), str(campaign.federation.task))
    campaign.host.run()
    assert not kgc.has(source)


@pytest.mark.parametrize("closed", [False, True], ids=["enrolment open", "enrolment closed"])
def test_kgc_and_sp_read_averages_while_people_can_enrol_and_no_longer(closed: bool) -> None:
    """As `disclosures` says: what KGC keeps for people who join holds the readers' key."""
    campaign = Campaign()
    result = campaign.play()
    kgc, sp, task, shape = (
        campaign.host.disk.blobs("kgc/keys"),
        campaign.host.sp,
        campaign.federation.task,
        campaign.shape,
    )
    if closed:
        campaign.host.requester.close_enrolment(task)
    read = None
    for name in kgc.listing():
        if "participant" in name:
            bundle = SharesReaderBundle.from_bytes(kgc.get(name), Limits.plain())
            reader = AverageReader(shape, PARTICIPANTS, bundle.reader(PARTICIPANTS), bundle.csp_signing)
            publication = read_result(sp.blobs, task, sp.store.round(task, 1), "average")
            start = ModelChain.start(shape.spec.name, np.zeros(SIZE), shape.widths.unit)
            read = reader.read(publication, 1, start)
    if closed:
        assert read is None
    else:
        assert read is not None
        assert (read.total, error(read.average / shape.widths.unit, result.average[0])) == (result.total, 0)


def train_all(desk: Desk) -> None:
    """Everyone does what is due, and SP its part."""
    for place, person in enumerate(desk.crowd):

        def train(arrays: Any, _settings: Any, number: int, place: int = place) -> tuple[Any, int]:
            rng = np.random.default_rng([number, place])
            return [array + 0.1 + rng.normal(size=array.shape) * 0.02 for array in arrays], 5

        person.step(train)
    desk.run()


DESK = {"profile": "shares", "lanes": 128, "max_norm": 3.0}


def test_a_task_whose_opened_sum_is_lost_ends_before_the_next_round(tmp_path: Path) -> None:
    """CSP has opened a sum that SP never got: every later model would follow from it, so that no phone trains for nothing."""
    desk = paid_desk(tmp_path, 4, rounds=3, **DESK)
    answer = desk.csp.answer

    def losing(task: str, request: bytes, _longest: int) -> bytes:
        reply = answer(task, request)
        is_step = Message.kind_of(request) == StepRequest.kind
        if is_step and StepRequest.from_bytes(request, Limits.plain(1 << 24)).step == AVERAGE:
            raise ConnectionError
        return reply

    desk.csp.answer = losing  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        train_all(desk)
    desk.later(2 * desk.options.csp_patience)
    desk.csp.answer = answer  # type: ignore[method-assign]
    train_all(desk)
    status = desk.sp.tasks.status(desk.task)
    assert [entry["state"] for entry in status["rounds"]] == ["aborted"]
    assert (status["state"], status["ended"]["why"]) == ("settled", "cancelled")  # nobody is owed anything
    assert desk.sp.core.ledger(desk.task).balance("requester") == 0


def at_the_end(desk: Desk) -> tuple[SharesPublication, SigningKey]:
    """What SP has published of the last of two rounds, and the key that CSP signs with."""
    kept = desk.csp.bundles.get(f"{desk.task}.csp")
    train_all(desk)
    train_all(desk)
    data = desk.sp.publication(desk.task, 2, None)
    signing = SigningKey(SharesCspBundle.from_bytes(kept, Limits.plain()).signing)
    return SharesPublication.from_bytes(data, Limits.plain(1 << 24)), signing


def signed_again(record: bytes, signing: SigningKey, **changes: Any) -> bytes:
    """Another record of the same round, by a CSP that was set back or deviates."""
    changed = replace(RoundRecord.from_bytes(record, Limits.plain(1 << 24)), **changes)
    return replace(changed, signature=signing.sign(changed.statement)).to_bytes()


def test_everyone_keeps_the_record_of_the_last_round(tmp_path: Path) -> None:
    """Its average is the requester's. Whoever shows the round as unfinished after that is refused."""
    desk = paid_desk(tmp_path, 4, rounds=2, pay="equal", **DESK)
    published, _ = at_the_end(desk)
    person = desk.crowd[0]
    assert person.step(unchanged)
    assert person.blobs.get("rounds/2/record") == published.record
    assert not person.blobs.has("rounds/2/average")
    status = person.sp.status(desk.task) | {"state": "running"}
    again = [entry | {"state": "open"} if entry["number"] == 2 else entry for entry in status["rounds"]]
    with pytest.raises(RolledBack, match="runs round 2 again"):
        person._chain.require_forward(status | {"rounds": again})
    assert person.claim() == 2 * (BUDGET // 4)


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("nothing", "record missing"),
        ("a failure", "record missing"),
        ("the round before", "record missing"),
        ("its own record", "record missing"),
        ("few people", "record missing"),
        ("another model", "stopped"),
    ],
)
def test_a_platform_gains_nothing_by_another_record_of_the_last_round(
    shown: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not kept, its owner is told, and the claim is made and paid all the same."""
    desk = paid_desk(tmp_path, 4, rounds=2, pay="equal", **DESK)
    published, signing = at_the_end(desk)
    person = desk.crowd[0]

    def average(*_: Any) -> bytes:
        if shown == "nothing":
            raise NotReady("not yet")
        if shown == "a failure":
            raise ServiceUnavailable("away")
        if shown == "the round before":
            return desk.sp.publication(desk.task, 1, person.keys.who)
        signer = SigningKey.fresh() if shown == "its own record" else signing
        names = tuple(other.keys.who for other in desk.crowd[1:3])  # not its reader, who would earn nothing
        changes = {"few people": {"accepted": names}, "another model": {"base": bytes(32)}}.get(shown, {})
        return replace(published, record=signed_again(published.record, signer, **changes)).to_bytes()

    said = heard(person)
    with monkeypatch.context() as lying:
        lying.setattr(person.sp, "average", average)
        person.step(unchanged)
        person.step(unchanged)
        assert [what for what, _ in said] == [told, "rewarded"]
        assert not person.blobs.has("rounds/2/record")
        assert person.claim() == 2 * (BUDGET // 4)
    assert person.step(unchanged)
    assert person.blobs.get("rounds/2/record") == published.record


def test_a_reward_by_another_record_than_the_published_one_is_not_taken(tmp_path: Path) -> None:
    """With more names in it everyone would claim less. The published one says what it pays: SP is not asked."""
    desk = paid_desk(tmp_path, 4, rounds=2, pay="equal", **DESK)
    published, signing = at_the_end(desk)
    person, name = desk.crowd[0], desk.result(2, "rewards")
    names = (*RoundRecord.from_bytes(published.record, Limits.plain(1 << 24)).accepted, "f" * 20)
    second = signed_again(published.record, signing, accepted=names)
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, pack_envelopes({person.keys.who: RewardEnvelope(0, b"", second).to_bytes()}))
    said = heard(person)
    person.step(unchanged)
    assert [what for what, _ in said] == ["rewarded"]
    assert person.claim() == 2 * (BUDGET // 4)


def test_a_request_that_was_answered_while_its_repetition_waited_gets_that_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request comes twice, and the second one looks for an answer a moment before the first has one."""
    desk = paid_desk(tmp_path, 3, rounds=1, **DESK)
    answer, answered = desk.csp.answer, desk.csp.store.answered
    too_early: list[str] = []

    def look(task: str, name: str) -> str | None:
        return too_early.clear() if too_early else answered(task, name)

    def twice(task: str, request: bytes, _longest: int) -> bytes:
        first = answer(task, request)
        too_early.append("one look")
        assert answer(task, request) == first
        return first

    monkeypatch.setattr(desk.csp.store, "answered", look)
    desk.csp.answer = twice  # type: ignore[method-assign]
    train_all(desk)
    assert [entry["state"] for entry in desk.sp.tasks.status(desk.task)["rounds"]] == ["rewarded"]


_WIDE = {"max_participants": 3, "max_samples": 10**6, "decimals": 6, "max_norm": 2.0}
# Parameters, people, settings; and what is paid for a round, at least and at most.
TASKS: dict[str, tuple[int, int, dict[str, Any], tuple[float, float]]] = {
    "one parameter": (1, 5, {"budget": "9.00"}, (8.99, 9)),
    "a norm that bounds nothing": (50, 5, {"max_norm": 1e15}, (0, 0)),
    "one sample each": (20, 5, {"max_samples": 1, "budget": "9.00"}, (8.99, 9)),
    "as many as the least": (20, 3, {"max_participants": 3, "min_participants": 3, "budget": "9.00"}, (8.99, 9)),
    "the widest ring": (200, 3, _WIDE, (0, 0)),
    "paid by a million samples": (30, 3, _WIDE | {"decimals": 4, "budget": "9.00", "pay": "samples"}, (8.999997, 9)),
    "less than a millionth for each": (5, 3, {"budget": "0.000002"}, (0, 0)),
}


@pytest.mark.second
@pytest.mark.parametrize(("parameters", "people", "settings", "pay"), TASKS.values(), ids=TASKS.keys())
def test_extreme_tasks_are_averaged_exactly(
    parameters: int, people: int, settings: dict[str, Any], pay: tuple[float, float]
) -> None:
    bounds = {"max_participants": 5, "max_samples": 20, "decimals": 3, "clip": 2.0, "max_norm": 1.0, "lanes": 128}
    chosen = bounds | settings
    federation = LocalFederation(profile="shares", rounds=2, backend=ONE, **chosen)
    rng, unit = np.random.default_rng(1), 10 ** chosen["decimals"]
    common = rng.normal(size=parameters)
    updates = {f"p{i}": 0.5 * (common + 0.1 * rng.normal(size=parameters)) for i in range(people)}
    counts = {who: max(1, chosen["max_samples"] - i) for i, who in enumerate(updates)}

    def shared(change: Any) -> Any:
        within = change * min(1, chosen["max_norm"] / np.linalg.norm(change))
        return np.rint(np.clip(within, -chosen["clip"], chosen["clip"]) * unit)

    found = federation.round({who: Update([update], counts[who]) for who, update in updates.items()})
    expected = np.rint(sum(shared(u) * counts[who] for who, u in updates.items()) / sum(counts.values()))
    assert np.array_equal(np.rint(found.average[0] * unit), expected)
    assert found.rejected == {}
    assert pay[0] <= float(sum((found.rewards or {}).values())) <= pay[1]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_no_number_never_leaves_the_phone(value: float) -> None:
    federation = LocalFederation(profile="shares", max_participants=3, rounds=1, max_norm=1.0, backend=ONE)
    with pytest.raises(NotFinite):
        federation.round({f"p{i}": Update([np.array([value, 0.0])], 1) for i in range(3)})
