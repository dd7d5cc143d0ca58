"""The laboratory's observer: laps, messages and costs of a round that it only watches."""

from itertools import pairwise

import numpy as np
import pytest

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier.kernels import MulMod
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import MILLION, TaskSettings
from crowdfl_lab.observe import Lap, RoundRecorder, Span, TimedBackend, seconds_by_kernel
from crowdfl_lab.parties import LocalParties


@pytest.fixture(scope="module")
def played():
    """A small round, watched."""
    recorder, backend = RoundRecorder(keep_messages=True), TimedBackend(Threads(1))
    settings = TaskSettings(max_participants=3, lanes=20, key_bits=1536)
    tools = Tools(backend, insecure_test_key=True, observer=recorder)
    parties = LocalParties(TaskSpec("watched", settings, 20), tools)
    uploads = parties.encrypt({f"p{i}": (np.full(20, 0.1 * i), 10) for i in range(3)})
    done = parties.play(1, uploads, payment=3 * MILLION)
    return recorder, backend, done


def test_every_stage_has_the_seconds_of_who_worked(played):
    recorder, _, _ = played
    expected = {("encrypt", "participant"), ("collect", "SP"), ("average", "SP"), ("average", "CSP"), ("reward", "CSP")}
    assert expected <= {key for key, seconds in recorder.seconds.items() if seconds > 0}
    assert recorder.seconds_of("CSP") == pytest.approx(recorder.seconds_of("CSP", "average", "reward"))


def test_laps_know_the_messages_around_them(played):
    recorder, _, _ = played
    laps = [lap for lap in recorder.laps if lap.stage == "average"]
    kind = OpenRequest.kind
    assert [(lap.role, lap.before, lap.after) for lap in laps[:3]] == [
        ("SP", 0, kind),
        ("CSP", kind, kind),
        ("SP", kind, 0),
    ]
    assert all(lap.seconds >= 0 for lap in laps)


def test_messages_are_kept_and_counted_by_direction(played):
    recorder, _, done = played
    assert recorder.sent["participant", "SP"] == 3
    sent = [message for sender, receiver, message in recorder.messages if (sender, receiver) == ("participant", "SP")]
    assert sent == list(done.uploads.values())
    asked = [message for sender, receiver, message in recorder.messages if (sender, receiver) == ("SP", "CSP")]
    assert len(asked) == recorder.sent["SP", "CSP"] == recorder.sent["CSP", "SP"]


def test_costs_are_those_of_the_parties_and_views_are_not_kept(played):
    recorder, _, _ = played
    assert recorder.total("CSP", "PDec") > 0
    assert len(recorder.costs_by_role["participant"]) == 3
    view = recorder.view("CSP")
    view.saw("quotient", [1])
    assert view.entries == []


def test_kernels_account_for_the_laps(played):
    recorder, backend, _ = played
    laps = [lap for lap in recorder.laps if lap.stage == "reward"]
    spent = seconds_by_kernel(backend.spans, laps)
    assert sum(spent.values()) == pytest.approx(sum(lap.seconds for lap in laps))
    assert spent["PartialDecrypt"] > 0
    assert "other" in spent


def test_reset_forgets_laps_but_not_parties(played):
    recorder, _, _ = played
    recorder.reset()
    assert not recorder.laps
    assert recorder.total("CSP", "PDec") > 0


def test_an_exchange_gives_each_party_its_own_laps():
    """SP and CSP in turn, the request before and after each lap by its kind; SP has the last word."""

    def step():
        reply = yield b"CFLM\x01\x07"
        assert reply() == b"reply"

    recorder = RoundRecorder()
    run_exchange(step(), ask_directly(lambda _: b"reply", recorder), recorder)
    assert [(lap.role, lap.before, lap.after) for lap in recorder.laps] == [("SP", 0, 7), ("CSP", 7, 7), ("SP", 7, 0)]
    assert all(first.end <= second.start for first, second in pairwise(recorder.laps))


def test_kernels_outside_the_laps_do_not_count():
    """What no kernel accounts for is `other`."""
    spans = [Span(MulMod, 0.0, 0.5), Span(MulMod, 1.0, 1.25), Span(MulMod, 3.0, 4.0)]
    laps = [Lap("average", "SP", 0, 7, 1.0, 2.0), Lap("average", "CSP", 7, 7, 2.0, 2.5)]
    assert seconds_by_kernel(spans, laps) == {"other": 1.25, "MulMod": 0.25}


def test_a_timed_backend_computes_what_the_inner_one_does(keys):
    """And notes one span a call."""
    backend = TimedBackend(Threads(1))
    a, b = keys.encrypt([1, 2]), keys.encrypt([3, 4])
    assert a.add(b, backend=backend) == a.add(b)
    assert [span.kernel for span in backend.spans] == [MulMod]
    assert backend.name == "threads"
