"""The laboratory's observer: laps, messages and costs of a round that it only watches."""

import numpy as np
import pytest

from crowdfl.crypto.compute import Threads
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import MILLION, TaskSettings
from crowdfl.simulation.sides import Parties
from crowdfl_lab.recorder import RoundRecorder


@pytest.fixture(scope="module")
def played():
    """A small round, watched."""
    recorder = RoundRecorder(keep_messages=True)
    settings = TaskSettings(profile="hardened", max_participants=3, lanes=20, key_bits=1536)
    tools = Tools(Threads(1), insecure_test_key=True, observer=recorder)
    parties = Parties(TaskSpec("watched", settings, 20), tools)
    uploads = parties.encrypt({f"p{i}": (np.full(20, 0.1 * i), 10) for i in range(3)})
    return recorder, parties.play(1, uploads, payment=3 * MILLION)


def test_every_stage_has_the_seconds_of_who_worked(played):
    recorder, _ = played
    expected = {("encrypt", "participant"), ("collect", "SP"), ("average", "SP"), ("average", "CSP"), ("reward", "CSP")}
    assert expected <= {(lap.stage, lap.role) for lap in recorder.laps if lap.seconds > 0}
    assert recorder.seconds_of("CSP") == pytest.approx(recorder.seconds_of("CSP", "average", "reward"))


def test_messages_are_kept_and_counted_by_direction(played):
    recorder, done = played
    sent = [message for *ends, message in recorder.messages if ends == ["participant", "SP"]]
    assert sent == list(done.uploads.values())
    assert recorder.sent["participant", "SP"] == 3
    asked = [message for *ends, message in recorder.messages if ends == ["SP", "CSP"]]
    assert len(asked) == recorder.sent["SP", "CSP"] == recorder.sent["CSP", "SP"]


def test_views_are_not_kept_unless_asked_for(played):
    view = played[0].view("CSP")
    view.saw("quotient", [1])
    assert view.entries == []


def test_an_exchange_gives_each_party_its_own_laps():
    """SP and CSP in turn; SP has the last word."""

    def step():
        reply = yield b"CFLM\x01\x07"
        assert reply() == b"reply"

    recorder = RoundRecorder()
    run_exchange(step(), ask_directly(lambda _: b"reply", recorder), recorder)
    assert [lap.role for lap in recorder.laps] == ["SP", "CSP", "SP"]
