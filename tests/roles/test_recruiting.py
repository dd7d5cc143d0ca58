"""SP recruits where the signed definition names its key: who joins from the list, what SP cannot do, places that are freed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.invitations import EnrolmentRequest, Invitation, Ticket
from crowdfl.documents.signed import Definition
from crowdfl.errors import (
    BadSignature,
    CrowdFLError,
    DocumentError,
    EnrolmentOver,
    Forbidden,
    InvitationRefused,
    PlaceFreed,
    SettingsError,
    TaskFull,
    TaskNotRunning,
    TooFewParticipants,
    TooManyJoins,
)
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.turnout import compliance
from crowdfl.settings import MOST_DEVICES
from tests.hosts import BUDGET, Desk, small_definition
from tests.roles.test_chain_of_invitations import SHARES, minted, recruited
from tests.roles.test_enrolment import new_keys

WEEKLY = {"every": 604800.0}  # places are freed between two rounds


@pytest.fixture
def sp_key() -> SigningKey:
    return SigningKey.fresh()


def desk_of(folder: Path, sp_key: SigningKey, plan: dict[str, Any] | None = None, **settings: Any) -> Desk:
    usual = SHARES if settings.get("profile", "shares") == "shares" else {}
    return Desk(folder, plan, recruiter=sp_key, **usual | settings)


def come(desk: Desk, *names: str) -> list[Participant]:
    """People who join from the list."""
    for name in names:
        person = desk.new_participant(desk.task, name)
        person.join("")
        desk.people[name] = person
    return [desk.people[name] for name in names]


def rows(desk: Desk) -> list[tuple[str, str]]:
    return [(one["came"], one["state"]) for one in compliance(desk.sp.store, desk.sp.blobs, desk.task)["people"]]


def test_who_comes_from_the_list_takes_part_and_is_paid_as_whoever_was_invited(tmp_path: Path, sp_key: SigningKey):
    desk = desk_of(tmp_path, sp_key)
    assert [definition.task for definition, _ in desk.sp.recruiting.listed()] == [desk.task]
    come(desk, "a", "b")
    desk.invite(1)
    come(desk, "c")
    desk.requester.fund(desk.task, desk.settings.rounds * BUDGET, "all")
    desk.run()
    desk.play(2)
    assert rows(desk) == [("listed", "in"), ("listed", "in"), ("invited", "in"), ("listed", "in")]
    desk.upload()
    assert desk.states() == ["rewarded", "rewarded"]
    assert {person.claim() for person in desk.crowd} == {2 * BUDGET // 4}


def test_a_definition_says_who_recruits_and_sp_takes_no_other(tmp_path: Path, sp_key: SigningKey):
    """The requester signs SP's key, and the task's name covers it; nobody recruits where it says nothing."""
    desk = desk_of(tmp_path, sp_key)
    assert desk.requester.definition(desk.task).recruiter == sp_key.public
    desk.requester.sp_key = SigningKey.fresh().public
    with pytest.raises(SettingsError, match="recruits by the key"):
        desk.requester.create(replace(small_definition(desk.settings), recruits=True), desk.initial)
    invited = Desk(tmp_path / "invited", **SHARES)
    assert invited.requester.definition(invited.task).recruiter == b""
    invited.requester.sp_key = sp_key.public
    with pytest.raises(SettingsError, match="recruits by the key"):  # nor does an SP that has no key for it
        invited.requester.create(replace(small_definition(invited.settings), recruits=True), invited.initial)
    own = replace(
        desk.requester.definition(desk.task), requester=desk.signing.public, recruiter=desk.signing.public
    ).sign(desk.signing)
    with pytest.raises(DocumentError, match="requester as the recruiter"):
        Definition.open(own)


# What SP can do with its key, and cannot.


def test_sp_gives_nobody_a_place_in_a_task_that_says_invitations(tmp_path: Path, sp_key: SigningKey):
    """Nor does KGC or CSP believe it."""
    desk = Desk(tmp_path, **SHARES)
    desk.options.signing = sp_key
    with pytest.raises(Forbidden, match="not listed"):
        desk.sp.recruiting.give(desk.task, SigningKey.fresh().public)
    assert desk.sp.recruiting.listed() == []
    with pytest.raises(InvitationRefused, match="ask its requester"):
        desk.new_participant(desk.task, "a").join("")
    ticket, keys = recruited(desk, sp_key), new_keys()
    with pytest.raises(BadSignature):
        desk.kgc.enrol(desk.task, ticket.invitation, EnrolmentRequest.make(ticket, keys).sign(ticket.key))
    for enrol in (desk.csp.enrol, desk.sp.people.enrol):
        with pytest.raises(BadSignature):
            enrol(desk.task, minted(desk, ticket, keys))


def test_kgc_alone_recruits_nobody(tmp_path: Path, sp_key: SigningKey):
    """Its signing key certifies; what it certifies must be of the requester's word or SP's."""
    desk = desk_of(tmp_path, sp_key)
    for enrol in (desk.csp.enrol, desk.sp.people.enrol):
        with pytest.raises(BadSignature):
            enrol(desk.task, minted(desk, recruited(desk, desk.signing), new_keys()))


def test_sp_replaces_nobodys_device_and_takes_no_place_that_the_requester_keeps(tmp_path: Path, sp_key: SigningKey):
    desk = desk_of(tmp_path, sp_key)
    desk.invite(1)
    (old,) = desk.crowd
    place = desk.csp.store.participant(desk.task, old.keys.who).identity.place
    key = SigningKey.fresh()
    second = Ticket(Invitation(desk.task, place, 2, key.public, 1e9).sign(sp_key), key)
    same = Ticket(Invitation(desk.task, place, 1, key.public, 1e9).sign(sp_key), key)
    for enrol in (desk.csp.enrol, desk.sp.people.enrol):
        with pytest.raises(BadSignature):
            enrol(desk.task, minted(desk, second, new_keys()))
        with pytest.raises(InvitationRefused, match="another place"):
            enrol(desk.task, minted(desk, same, new_keys()))


def test_sp_gets_no_more_people_into_a_round_than_the_task_has_places_for(tmp_path: Path, sp_key: SigningKey):
    """However many keys it signs, CSP takes as many as devices could be in any task; an honest SP lets in no more than fit."""
    desk = desk_of(tmp_path, sp_key, max_participants=3)
    for _ in range(3 * MOST_DEVICES):
        desk.csp.enrol(desk.task, minted(desk, recruited(desk, sp_key), new_keys()))
    with pytest.raises(TaskFull):
        desk.csp.enrol(desk.task, minted(desk, recruited(desk, sp_key), new_keys()))
    honest = desk_of(tmp_path / "honest", sp_key, max_participants=3)
    come(honest, "a", "b", "c")
    with pytest.raises(TaskFull):
        come(honest, "d")
    with pytest.raises(TaskFull):  # also of who was given a place in time, and comes too late
        honest.sp.people.enrol(honest.task, minted(honest, recruited(honest, sp_key), new_keys()))


# Who joins.


def test_an_owner_says_all_the_same_where_no_noise_hides_anyone(tmp_path: Path, sp_key: SigningKey):
    """However many people it takes: `min_participants` protects nobody against SP there."""
    desk = desk_of(tmp_path, sp_key)
    person = desk.new_participant(desk.task, "a")
    person.all_the_same = False
    with pytest.raises(TooFewParticipants, match="everybody else"):
        person.join("")
    assert desk.csp.store.participants(desk.task) == []
    person.all_the_same = True
    person.join("")
    later = desk.new_participant(desk.task, "a")
    later.all_the_same = False
    later.require_company(later.definition)  # it is kept


def test_whoever_is_invited_to_a_listed_task_hears_the_same(tmp_path: Path, sp_key: SigningKey):
    desk = desk_of(tmp_path, sp_key)
    person = desk.new_participant(desk.task, "a")
    person.all_the_same = False
    with pytest.raises(TooFewParticipants, match="everybody else"):
        person.join(desk.requester.invite(desk.task, 1, 1000.0)[0])
    assert "it can be a reader and everybody else" in person.summary(person.look())


def test_with_epsilon_nothing_need_be_accepted(tmp_path: Path, sp_key: SigningKey):
    desk = desk_of(
        tmp_path, sp_key, epsilon=8.0, weighting="equal", max_norm=5.0, decimals=2, noise="any", budget=None, pay=None
    )
    person = desk.new_participant(desk.task, "a")
    person.all_the_same = False
    assert "the noise of the second server alone does" in person.summary(person.look())
    person.join("")


def test_in_paper_it_is_for_trials_and_says_so(tmp_path: Path, sp_key: SigningKey):
    desk = Desk(tmp_path, recruiter=sp_key, profile="paper", key_bits=512, mask_bits=45)
    person = desk.new_participant(desk.task, "a")
    assert "it then reads every upload, which is for trials" in person.summary(person.look())
    person.join("")


def test_the_same_key_has_one_place_however_often_it_asks(tmp_path: Path, sp_key: SigningKey):
    """A device that lost an answer asks again; one that joins twice with one key is one person."""
    desk = desk_of(tmp_path, sp_key)
    desk.options.max_joins = 1
    key = SigningKey.fresh()
    first, again = (Invitation.open_in(desk.sp.recruiting.give(desk.task, key.public), definition(desk)) for _ in "12")
    assert first.number == again.number
    ticket = Ticket(desk.sp.recruiting.give(desk.task, key.public), key)
    desk.sp.people.enrol(desk.task, minted(desk, ticket, new_keys()))
    with pytest.raises(CrowdFLError, match="first keys stand"):
        desk.sp.people.enrol(desk.task, minted(desk, ticket, new_keys()))


def definition(desk: Desk) -> Definition:
    return desk.requester.definition(desk.task)


def test_places_are_given_so_many_in_an_hour(tmp_path: Path, sp_key: SigningKey):
    desk = desk_of(tmp_path, sp_key, max_participants=36)
    desk.options.max_joins = 3
    come(desk, "a", "b", "c")
    with pytest.raises(TooManyJoins):
        come(desk, "d")
    desk.restart()  # nor by another process
    with pytest.raises(TooManyJoins):
        come(desk, "d")
    desk.invite(1)  # whom the requester invites is not counted
    desk.clock.time += 3601
    come(desk, "d")


def test_a_device_believes_no_place_that_is_not_its_own(
    tmp_path: Path, sp_key: SigningKey, monkeypatch: pytest.MonkeyPatch
):
    """Another key, a replacement, an invitation of a stranger's."""
    desk = desk_of(tmp_path, sp_key)
    give = desk.sp.recruiting.give

    def other(task: str, _key: bytes) -> str:
        return give(task, SigningKey.fresh().public)

    monkeypatch.setattr(desk.sp.recruiting, "give", other)
    with pytest.raises(DocumentError, match="another key"):
        come(desk, "a")
    monkeypatch.setattr(
        desk.sp.recruiting,
        "give",
        lambda task, key: Invitation.recruiting(task, key, 1e9).sign(SigningKey.fresh()),
    )
    with pytest.raises(BadSignature):
        come(desk, "b")


def test_nobody_joins_after_the_end_or_when_it_is_full(tmp_path: Path, sp_key: SigningKey):
    desk = desk_of(tmp_path, sp_key, {"enrol_until": "1970-01-01T00:20:00+00:00"}, max_participants=3)
    come(desk, "a", "b", "c")
    assert desk.sp.recruiting.listed() == []
    with pytest.raises(TaskFull):
        desk.sp.recruiting.give(desk.task, SigningKey.fresh().public)
    desk.clock.time = 1300.0
    with pytest.raises(EnrolmentOver):
        desk.sp.recruiting.give(desk.task, SigningKey.fresh().public)
    desk.requester.order(desk.task, "cancel")
    with pytest.raises(TaskNotRunning):
        desk.sp.recruiting.give(desk.task, SigningKey.fresh().public)


# Places of which nothing came.


def played(desk: Desk, senders: list[Participant]) -> None:
    """A round in which these send, and its window."""
    desk.run()
    desk.upload(senders)
    desk.clock.time += 2 * desk.settings.window + 1
    desk.run()


def test_a_place_of_which_nothing_came_is_freed_after_a_round(tmp_path: Path, sp_key: SigningKey):
    desk = desk_of(tmp_path, sp_key, WEEKLY, max_participants=4, budget=None)
    senders = come(desk, "a", "b", "c")
    (idle,) = come(desk, "idle")
    desk.clock.time += 1
    with pytest.raises(TaskFull):
        come(desk, "e")
    played(desk, senders)
    assert rows(desk) == [("listed", "in")] * 3 + [("listed", "freed")]
    assert desk.sp.tasks.status(desk.task)["places_left"] == 1
    come(desk, "e")
    with pytest.raises(TaskFull):
        come(desk, "f")
    with pytest.raises(TaskFull, match="freed"):
        idle.join("")
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 4


def test_whoever_was_invited_or_has_sent_once_or_came_during_the_round_keeps_the_place(
    tmp_path: Path, sp_key: SigningKey
):
    desk = desk_of(tmp_path, sp_key, WEEKLY, max_participants=9, budget=None, rounds=3)
    senders = come(desk, "a", "b", "c")
    desk.invite(1)
    desk.clock.time += 1
    desk.run()
    desk.clock.time += 1
    come(desk, "during")
    played(desk, senders)
    assert [state for _, state in rows(desk)] == ["in"] * 5
    desk.clock.time += 604800
    played(desk, [*senders[1:], desk.people["3"]])
    assert [state for _, state in rows(desk)] == ["in", "in", "in", "in", "freed"]


def test_who_comes_back_to_a_freed_place_takes_part_again(tmp_path: Path, sp_key: SigningKey):
    """Its device joins again by itself when it sends, if there is a place; what it earns is its own."""
    desk = desk_of(tmp_path, sp_key, WEEKLY, max_participants=4, rounds=2)
    senders = come(desk, "a", "b", "c")
    (idle,) = come(desk, "idle")
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    desk.clock.time += 1
    played(desk, senders)
    assert isinstance(desk.sp.store.participant(desk.task, idle.keys.who).refusal(), PlaceFreed)
    desk.clock.time += 604800
    desk.run()
    desk.upload([*senders, idle])
    desk.clock.time += 2 * desk.settings.window
    desk.run()
    assert [state for _, state in rows(desk)] == ["in"] * 4
    assert idle.claim() == BUDGET // 4


def test_a_round_that_has_all_the_uploads_it_takes_frees_nobody(tmp_path: Path, sp_key: SigningKey):
    """Whoever has not sent when enough others had keeps the place; of a round that found too few, whoever has sent does."""
    plan = WEEKLY | {"goal": 3, "closes": "deadline"}
    desk = desk_of(tmp_path, sp_key, plan, max_participants=4, budget=None)
    senders = come(desk, "a", "b", "c")
    come(desk, "slow")
    desk.clock.time += 1
    desk.run()
    desk.upload(senders)
    desk.run()
    assert desk.states() == ["rewarded"]
    played(desk, [])
    assert [state for _, state in rows(desk)] == ["in"] * 4
    aborted = desk_of(tmp_path / "aborted", sp_key, WEEKLY, max_participants=4, budget=None)
    few = come(aborted, "a", "b", "c", "d")[:2]
    aborted.clock.time += 1
    played(aborted, few)
    aborted.later(2 * aborted.settings.window)
    assert aborted.states() == ["aborted"]
    assert [state for _, state in rows(aborted)] == ["in", "in", "freed", "freed"]
