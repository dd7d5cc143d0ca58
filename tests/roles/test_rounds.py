from dataclasses import replace

import pytest

from crowdfl.errors import RoundNotOpen, TooLate
from crowdfl.roles.records import Round, RoundState, taking_uploads
from crowdfl.settings import UNTIL_PUBLISHED, TaskSettings

DISCARD = TaskSettings(window=100, max_participants=5)
RETRANSMIT = DISCARD.changed(late=50)
AGAIN = RETRANSMIT.changed(profile="paper", key_bits=512, late=UNTIL_PUBLISHED)
ROUND = Round(1, opened_at=1000)


def test_a_round_closes_early_once_everyone_is_in():
    assert ROUND.decide(DISCARD, 1001, uploads=3, enrolled=3).state is RoundState.CLOSED
    assert ROUND.decide(DISCARD, 1001, uploads=3, enrolled=4) == ROUND


def test_everyone_must_be_a_quorum():
    """Two of two enrolled are too few to protect each other."""
    assert ROUND.decide(DISCARD, 1001, uploads=2, enrolled=2) == ROUND


def test_discard_closes_at_the_end_of_the_window():
    assert ROUND.decide(DISCARD, 1099.9, 3, 5) == ROUND
    assert ROUND.decide(DISCARD, 1100, 3, 5).state is RoundState.CLOSED


def test_retransmit_waits_for_late_uploads():
    """Late uploads are taken for `late` after the window, and everyone in ends the wait."""
    assert ROUND.decide(RETRANSMIT, 1149.9, 3, 5) == ROUND
    assert ROUND.decide(RETRANSMIT, 1150, 3, 5).state is RoundState.CLOSED
    assert ROUND.decide(RETRANSMIT, 1101, 5, 5).state is RoundState.CLOSED


def test_where_late_uploads_are_averaged_in_a_round_closes_with_its_window():
    """Section 5.2, in `paper`: then it is averaged, and held until one fixed time, or until nobody can come any more."""
    assert ROUND.decide(AGAIN, 1099.9, 3, 5) == ROUND
    assert ROUND.decide(AGAIN, 1100, 3, 5).state is RoundState.CLOSED
    extended = ROUND.decide(AGAIN, 1100, 2, 5)
    assert (extended.state, extended.extended) == (RoundState.OPEN, True)
    assert extended.decide(AGAIN, 1299.9, 2, 5) == extended
    assert extended.decide(AGAIN, 1300, 2, 5).state is RoundState.ABORTED
    held = replace(ROUND, state=RoundState.HELD)
    assert not held.is_gathered(AGAIN, 1199.9, 4, 5)
    assert held.is_gathered(AGAIN, 1200, 4, 5)
    assert held.is_gathered(AGAIN, 1101, 5, 5)


@pytest.mark.parametrize("state", list(RoundState))
def test_late_uploads_are_taken_until_they_are_gathered(state):
    taking = {"open", "closed", "held"}
    assert {str(one) for one in taking_uploads(AGAIN)} == taking
    assert [str(one) for one in taking_uploads(RETRANSMIT)] == ["open"]
    done = replace(ROUND, state=state)
    if state in taking:
        done.require_upload_welcome(AGAIN, 1200)
        with pytest.raises(TooLate):
            done.require_upload_welcome(AGAIN, 1200.1)
    else:
        with pytest.raises(RoundNotOpen, match=str(state)):
            done.require_upload_welcome(AGAIN, 1101)


@pytest.mark.parametrize(("settings", "end"), [(DISCARD, 1200), (RETRANSMIT, 1250)])
def test_below_the_quorum_a_round_is_extended_once_then_aborted(settings, end):
    extended = ROUND.decide(settings, 1100, 2, 5)
    assert (extended.state, extended.extended) == (RoundState.OPEN, True)
    assert extended.decide(settings, end - 0.1, 2, 5) == extended
    assert extended.decide(settings, end, 2, 5).state is RoundState.ABORTED
    assert extended.decide(settings, end, 3, 5).state is RoundState.CLOSED


def test_uploads_are_welcome_until_the_last_call():
    ROUND.require_upload_welcome(DISCARD, 1100)
    with pytest.raises(TooLate, match="next round"):
        ROUND.require_upload_welcome(DISCARD, 1100.1)
    ROUND.require_upload_welcome(RETRANSMIT, 1150)
    with pytest.raises(TooLate):
        ROUND.require_upload_welcome(RETRANSMIT, 1150.1)
    assert not ROUND.is_late(RETRANSMIT, 1100)
    assert ROUND.is_late(RETRANSMIT, 1101)


@pytest.mark.parametrize("state", [state for state in RoundState if state is not RoundState.OPEN])
def test_a_round_that_is_not_open_takes_nothing_and_stays(state):
    """Whatever the time, and its decision is made."""
    done = replace(ROUND, state=state)
    with pytest.raises(RoundNotOpen, match=str(state)):
        done.require_upload_welcome(RETRANSMIT, 1001)
    assert done.decide(RETRANSMIT, 9999, 5, 5) == done
