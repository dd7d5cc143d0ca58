"""The laboratory's observer: laps, messages and costs of a round that it only watches."""

import numpy as np
import pytest

from crowdfl.crypto.compute import Threads
from crowdfl.lab.observe import RoundRecorder, TimedBackend, seconds_by_kernel
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.parties import LocalParties
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import MILLION, TaskSettings


@pytest.fixture(scope="module")
def played():
    """A small round, watched."""
    recorder, backend = RoundRecorder(keep_messages=True), TimedBackend(Threads(1))
    settings = TaskSettings(max_participants=3, lanes=20, key_bits=1280)
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


def test_messages_and_their_bytes_are_counted_by_direction(played):
    recorder, _, done = played
    assert recorder.sent["participant", "SP"] == 3
    assert recorder.sent_bytes["participant", "SP"] == sum(map(len, done.uploads.values()))
    asked = [message for sender, receiver, message in recorder.messages if (sender, receiver) == ("SP", "CSP")]
    assert len(asked) == recorder.sent["SP", "CSP"] == recorder.sent["CSP", "SP"]


def test_costs_are_those_of_the_parties_and_views_are_not_kept(played):
    recorder, _, _ = played
    assert recorder.total("CSP", "PDec") > 0
    assert len(recorder.costs_by_role["participant"]) == 3
    assert not any(view.entries for views in recorder.views_by_role.values() for view in views)


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
