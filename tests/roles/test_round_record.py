"""What SP has decided about a round is one record: of two processes one sets it, and a crash leaves it as it was or as it is.

Two processes meet where it hurts: one is about to set a record, and the other takes the same step first.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import Conflict, NotReady, RoundEnded
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.round.sp import SharesSpRound
from crowdfl.roles.records import Round, RoundState
from crowdfl.roles.sp import rounds
from crowdfl.roles.sp.csp_link import replies_folder
from crowdfl.roles.sp.operator import retry_round
from crowdfl.roles.sp.results import KINDS, is_surplus, keep_results, result_name
from tests.hosts import Desk
from tests.roles.test_dealt import files_of, sp_retention

TASK: dict[str, Any] = {"profile": "shares", "lanes": 256, "max_norm": 2.0, "mask_bits": None, "min_participants": 3}
TASK |= {"cohort": 2, "rounds": 3}
STEPS = {"weigh": RoundState.WEIGHED, "publish": RoundState.REWARDED}
every_step = pytest.mark.parametrize("step", STEPS)


class Died(BaseException):
    """A process is gone."""


def before_step(folder: Path, step: str, **settings: Any) -> Desk:
    """A round of four people in two cohorts, whose next step is this one."""
    desk = Desk.funded(folder, 4, **TASK | settings)
    desk.upload()
    while not round_of(desk).asked or (step == "publish" and round_of(desk).state is RoundState.CLOSED):
        assert desk.sp.steps.step(desk.task)
    return desk


def round_of(desk: Desk, number: int = 1) -> Round:
    return desk.sp.store.round(desk.task, number)


def asked_of(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The requests that reach CSP from now on."""
    asked, answer = list[bytes](), desk.csp.answer
    monkeypatch.setattr(desk.csp, "answer", lambda task, request, *rest: asked.append(request) or answer(task, request))
    return asked


def once(first: Callable[[], object], then: Callable[..., Any]) -> Callable[..., Any]:
    """Something comes before the first of these calls."""
    left = [first]

    def call(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return then(*arguments)

    return call


def die(*_: object) -> None:
    raise Died


def results(desk: Desk) -> set[str]:
    return {name for name in desk.sp.blobs.listing() if name.split("/")[3:4] and name.split("/")[3] in KINDS}


def named(desk: Desk) -> set[str]:
    """By the records."""
    found = desk.sp.store.rounds(desk.task)
    digests = ((one, kind, getattr(one, kind)) for one in found for kind in KINDS)
    return {result_name(desk.task, one.number, kind, digest) for one, kind, digest in digests if digest}


def overtaken(
    monkeypatch: pytest.MonkeyPatch, late: Callable[[], object], first: Callable[[], object], more: bytes
) -> None:
    """One process has written its results, with so much more at their ends, when the other takes the same step."""

    def kept(blobs: Any, task: str, round_: Round, **made: bytes | None) -> Round:
        monkeypatch.undo()
        found = keep_results(blobs, task, round_, **{kind: data and data + more for kind, data in made.items()})
        assert first()
        return found

    monkeypatch.setattr(rounds, "keep_results", kept)
    assert late()


@every_step
@pytest.mark.parametrize("more", [b"", b" "], ids=["the same bytes", "other bytes"])
def test_of_two_processes_one_sets_the_record(tmp_path, monkeypatch, step, more):
    """The other's files go, unless they are the ones that the record names; money moves once."""
    desk = before_step(tmp_path, step)
    late = desk.new_sp()
    overtaken(monkeypatch, lambda: late.steps.step(desk.task), lambda: desk.sp.steps.step(desk.task), more)
    assert round_of(desk).state is STEPS[step]
    assert results(desk) == named(desk)
    desk.run()
    assert desk.states()[0] == "rewarded"
    assert results(desk) == named(desk)
    assert [person.open_reward(1) for person in desk.crowd] == [9_000_000] * 4
    movements = [one.name for one in desk.ledger.movements]
    assert len(movements) == len(set(movements))


@every_step
def test_a_process_that_dies_before_the_record_has_shown_nothing(tmp_path, monkeypatch, step):
    """Its files are there, and nobody finds them. Another takes the step again, from what is durable: CSP is asked nothing."""
    desk = before_step(tmp_path, step)
    before, dying, who = round_of(desk), desk.new_sp(), desk.crowd[0].keys.who
    dying.store.set_round = die  # type: ignore[method-assign]
    with pytest.raises(Died):
        dying.steps.step(desk.task)
    assert round_of(desk) == before
    assert results(desk) > named(desk)
    for read in (desk.sp.publication, desk.sp.envelope):
        with pytest.raises(NotReady):
            read(desk.task, 1, who)
    assert files_of(desk, "sp") == list(range(1, 10))
    replies = [name for name in desk.sp.blobs.listing() if name.startswith(replies_folder(desk.task, 1))]
    assert replies
    asked = asked_of(desk, monkeypatch)
    desk.sp = desk.new_sp()
    desk.run()
    assert asked == []
    assert desk.states()[0] == "rewarded"
    assert results(desk) == named(desk)


def test_a_process_that_dies_after_the_record_leaves_what_the_next_step_erases(tmp_path):
    """Replies, what was dealt for the round, and what the round before left: after the record, and again."""
    desk = before_step(tmp_path, "publish")
    desk.run()
    desk.upload()
    while round_of(desk, 2).state is not RoundState.WEIGHED:
        desk.sp.steps.step(desk.task)
    dying, left = desk.new_sp(), desk.result(1, "left_over")
    dying.steps.burn = die  # type: ignore[method-assign]
    with pytest.raises(Died):
        dying.steps.step(desk.task)
    assert round_of(desk, 2).state is RoundState.REWARDED
    assert files_of(desk, "sp") == list(range(4, 10))
    assert desk.sp.store.replies(desk.task, 2)
    assert desk.sp.blobs.has(left)
    desk.sp = desk.new_sp()
    desk.run()
    assert desk.states() == ["rewarded", "rewarded", "open"]
    assert files_of(desk, "sp") == [7, 8, 9]
    assert not desk.sp.store.replies(desk.task, 2)
    assert not desk.sp.blobs.has(left)
    assert desk.sp.blobs.has(desk.result(2, "left_over"))


@every_step
def test_what_a_record_names_is_there_and_events_come_after_it(tmp_path, step):
    desk = before_step(tmp_path, step)
    sp, seen = desk.sp, list[str]()
    set_round = sp.store.set_round

    def looking(task: str, known: Round | None, changed: Round) -> None:
        for kind in KINDS:
            digest = getattr(changed, kind)
            assert digest is None or sp.blobs.has(result_name(task, changed.number, kind, digest))
        set_round(task, known, changed)
        seen.append("record")

    sp.store.set_round = looking  # type: ignore[method-assign]
    desk.options.events = lambda event, **_: seen.append(event)
    assert sp.steps.step(desk.task)
    assert seen == (["record"] if step == "weigh" else ["record", "average published"])


@every_step
@pytest.mark.parametrize("order", ["pause", "cancel"])
def test_a_task_that_changed_during_a_step_is_looked_at_again(tmp_path, monkeypatch, step, order):
    """Nothing of the step counts; a paused task stands still, a cancelled one ends its round with the same results."""
    desk = before_step(tmp_path, step)
    before = round_of(desk)
    overtaken(
        monkeypatch,
        lambda: desk.sp.steps.step(desk.task),
        lambda: desk.requester.order(desk.task, order) is None,
        b"",
    )
    assert round_of(desk) == before
    desk.run()
    if order == "pause":
        assert round_of(desk) == before
        desk.requester.order(desk.task, "resume")
        desk.run()
    assert desk.states()[0] == "rewarded"
    assert results(desk) == named(desk)


def test_a_round_that_another_process_went_on_with_is_not_given_up(tmp_path):
    """CSP has ended it for one process, which is late; the other has its rewards."""
    desk = before_step(tmp_path, "weigh")
    late = desk.new_sp()

    def ended(*_: object) -> None:
        assert desk.sp.steps.step(desk.task)
        raise RoundEnded("CSP has ended this round")

    late.ports.csp.answer = ended  # type: ignore[method-assign]
    assert late.steps.step(desk.task)
    assert round_of(desk).state is RoundState.WEIGHED
    assert desk.ledger.balance("round 1") > 0
    desk.run()
    assert desk.states()[0] == "rewarded"


def test_of_two_processes_with_masks_of_their_own_the_second_sends_nothing(tmp_path, monkeypatch):
    """Both have read an empty record. One has set its own and waits for CSP: the other does not replace it."""
    desk = before_step(tmp_path, "weigh")
    late, asked, core = desk.new_sp(), asked_of(desk, monkeypatch), desk.sp.steps._core

    def begin() -> None:
        renew = core.renew_lease
        calls = [renew, die]

        def renewed(task: str) -> None:
            calls.pop(0)(task)

        core.renew_lease = renewed  # type: ignore[method-assign]
        with pytest.raises(Died):  # before its second request
            desk.sp.steps.step(desk.task)
        core.renew_lease = renew  # type: ignore[method-assign]

    late.steps._core.renew_lease = once(begin, lambda _task: None)  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        late.steps.step(desk.task)
    assert len(asked) == 1
    record = desk.sp.store.sp_record(desk.task, 1)
    assert record.round
    desk.run()
    assert len(asked) == len(set(asked))
    drawn = SharesSpRound.from_bytes(desk.sp.store.sp_record(desk.task, 1).round, Limits.plain())
    assert drawn.seeds[0] in record.round
    assert desk.states()[0] == "rewarded"


def test_nothing_is_drawn_for_a_round_that_was_given_up(tmp_path, monkeypatch):
    """Before the first request leaves, its operator has voided it: nothing is sent, and no seed stays."""
    desk = before_step(tmp_path, "weigh")
    late, asked = desk.new_sp(), asked_of(desk, monkeypatch)
    core = late.steps._core
    void = partial(retry_round, desk.sp.ports, desk.task, 1, 0.0, void=True)
    core.renew_lease = once(void, lambda _task: None)  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        late.steps.step(desk.task)
    assert round_of(desk).state is RoundState.ABORTED
    assert (asked, desk.sp.store.seed_counts()) == ([], {})


def test_of_two_processes_one_delivers_the_model(tmp_path, monkeypatch):
    """Of a profile whose requester has an average of its own, made after the end; it is found through the record too."""
    desk = Desk.funded(tmp_path, 3, profile="hardened", rounds=2, budget=None, lanes=0, key_bits=512)
    desk.play()
    desk.requester.order(desk.task, "cancel")
    late = desk.new_sp()
    overtaken(
        monkeypatch,
        lambda: late.settlement.deliver(desk.task),
        lambda: desk.sp.settlement.deliver(desk.task),
        b" ",
    )
    assert results(desk) == named(desk)
    assert round_of(desk).model is not None
    assert not desk.sp.settlement.deliver(desk.task)
    desk.run()
    assert desk.requester.model(desk.task) is not None


def test_a_model_that_was_not_named_before_a_crash_is_made_again(tmp_path):
    desk = Desk.funded(tmp_path, 3, profile="hardened", rounds=2, budget=None, lanes=0, key_bits=512)
    desk.play()
    desk.requester.order(desk.task, "cancel")
    dying = desk.new_sp()
    dying.store.set_round = die  # type: ignore[method-assign]
    with pytest.raises(Died):
        dying.settlement.deliver(desk.task)
    assert round_of(desk).model is None
    with pytest.raises(NotReady):
        desk.sp.publication(desk.task, 1, None)
    desk.run()
    assert desk.requester.model(desk.task) is not None
    assert results(desk) == named(desk)


FIRST, SECOND = "1" * 64, "2" * 64


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_left_alone_while_a_record_may_name_it(kind):
    """Each kind is named once; what a round that is over does not name, no record will, but for the requester's model."""
    for state in RoundState:
        bare, naming = Round(1, 0.0, state), Round(1, 0.0, state, **{kind: FIRST})
        may_come = state not in (RoundState.REWARDED, RoundState.ABORTED) or (
            (kind, state) in (("model", RoundState.REWARDED), ("word", RoundState.ABORTED))
        )
        assert is_surplus(bare, kind, FIRST) is not may_come
        assert not is_surplus(naming, kind, FIRST)
        assert is_surplus(naming, kind, SECOND)


def test_the_sweep_removes_results_that_no_record_names(tmp_path):
    """Of a process that died; those of a round under way may be named yet."""
    desk = before_step(tmp_path, "publish")
    desk.run()
    for number in (1, 2):
        for kind in KINDS:
            desk.sp.blobs.put(result_name(desk.task, number, kind, FIRST), b"left behind")
    sp_retention(desk).sweep(desk.clock.now(), counting=False)
    kept = {result_name(desk.task, 2, kind, FIRST) for kind in KINDS}
    kept.add(result_name(desk.task, 1, "model", FIRST))
    assert results(desk) - named(desk) == kept
    assert named(desk) <= results(desk)


def test_the_sweep_maps_a_dealt_file_to_its_round(tmp_path):
    """Files are counted through rounds and cohorts: of a finished round all go, and no other round's."""
    desk = before_step(tmp_path, "publish")
    keys = desk.sp.ports.bundles
    before = {name: keys.get(name) for name in keys.listing() if ".dealt." in name}
    desk.run()
    desk.play()
    assert desk.states() == ["rewarded", "rewarded", "open"]
    keys.put_all(before)  # as if nothing had been burnt before a crash
    sp_retention(desk).sweep(desk.clock.now(), counting=False)
    assert files_of(desk, "sp") == [7, 8, 9]
