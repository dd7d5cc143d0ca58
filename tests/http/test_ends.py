"""A task ends over HTTP: who may say so, what is refused ever after, and what the services do by themselves."""

import hashlib
from collections import Counter
from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import BadSignature, Forbidden, NotAuthenticated, NotReady, ServiceError, TaskEnded
from crowdfl.roles.ports import ManualClock
from crowdfl.services.apps.ends import Survey
from crowdfl.services.client.peers import CspClient, KgcClient
from crowdfl.services.http.wire import PROTOCOL, PROTOCOL_HEADER
from tests.hosts import INITIAL_MODEL
from tests.http.loopback import serving, wait_for
from tests.http.world import task_definition


def test_sp_needs_its_token_and_its_key_to_end_a_task(world):
    """One alone, in somebody else's hands, erases nothing."""
    task, _ = world.open_round()
    end = TaskEnd(task, "settled", 1.0)
    good, forged = end.sign(world.receipts), end.sign(SigningKey.fresh())
    for name, client in (("kgc", KgcClient), ("csp", CspClient)):
        sp = client(world.service(name, world.token(name, "sp")))
        with pytest.raises(BadSignature):
            sp.end(task, forged)
        for stranger in (None, world.token(name, "requester"), world.token(name, "operator")):
            service = world.service(name, stranger)
            with pytest.raises((NotAuthenticated, Forbidden)):
                service.send_json("POST", f"/v1/tasks/{task}/end", {"document": good})
        assert world.kgc.store.task(task).state == "open"
        assert world.csp.bundles.has(f"{task}.csp")
    assert world.kgc.bundles.has(f"{task}.participant")


def test_after_the_end_everyone_is_told_so_by_name(world):
    """410 and `task-ended`, also for what was answered before."""
    task, _ = world.open_round()
    world.csp.blobs.put(f"{task}/answers/a/b", b"a reply")
    world.csp.store.put_answer(task, hashlib.sha256(b"a request").hexdigest(), f"{task}/answers/a/b")
    good = TaskEnd(task, "settled", 1.0).sign(world.receipts)
    kgc, csp = KgcClient(world.service("kgc", world.token("kgc", "sp"))), world._csp_for_sp()
    assert csp.answer(task, b"a request") == b"a reply"
    for peer in (kgc, csp):
        for _ in range(2):  # a repeat, after a lost answer
            peer.end(task, good)
    definition = world.kgc.store.task(task).definition
    invitation, *_ = world.requester.invite(task, 1, 60.0)
    for act in (
        lambda: kgc.bundle(task),
        lambda: KgcClient(world.service("kgc", world.owner("kgc"))).create_task(definition),
        lambda: world.new_participant(task, "late").join(invitation),
        lambda: csp.prepare(task),
        lambda: csp.answer(task, b"a request"),
    ):
        with pytest.raises(TaskEnded, match="settled by SP"):
            act()
    assert not list((world.folder / "csp/blobs").rglob("*"))
    assert not world.csp.bundles.has(f"{task}.csp")
    world.requester.close_enrolment(task)  # too late, and no harm: it stays ended
    assert world.kgc.store.task(task).state == "ended"
    reply = world.http("csp").get(f"/v1/tasks/{task}/requests/{'0' * 64}", headers=_headers(world))
    assert (reply.status_code, reply.json()["type"]) == (410, "urn:crowdfl:problem:task-ended")


def _headers(world) -> dict[str, str]:
    return {PROTOCOL_HEADER: PROTOCOL, "Authorization": f"Bearer {world.token('csp', 'sp').token}"}


def test_an_older_peer_is_unavailable_for_this_and_no_more(world):
    """It does not know the route: SP tells it again, seldom."""
    task = world.post()
    service = world.service("csp", world.token("csp", "sp"))
    with pytest.raises(ServiceError, match="Not Found"):
        service.call("POST", f"/v1/tasks/{task}/unknown")


def test_held_things_are_counted_once_a_minute():
    """Counting files takes time, and anyone who may scrape could ask for it again and again."""
    clock, looks = ManualClock(), []

    def held():
        looks.append(1)
        return {"a": Counter({"seeds": 2, "uploads": 1}), "b": Counter({"seeds": 1})}

    survey = Survey(held, lambda task, _counts: {"a": "running", "b": "claims open"}[task], clock.now)
    for _ in range(3):
        assert survey.by_kind() == {"seeds": 3, "uploads": 1}
        assert survey.by_reason() == {"running": 1, "claims open": 1}
    assert len(looks) == 1
    clock.time += 61
    assert survey.by_kind() == {"seeds": 3, "uploads": 1}
    assert len(looks) == 2


@pytest.mark.second
def test_live_services_end_a_task_by_themselves(tmp_path):
    """A task is cancelled, its claims have no time: KGC, CSP and SP hold nothing of it, and their metrics say so."""
    with serving(tmp_path) as platform:
        requester = platform.requester()
        task = requester.create(replace(task_definition(), claim_window=0.0), INITIAL_MODEL)
        platform.join(requester, task)
        keys = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(f"*/keys/{task}.*")}
        assert {f"sp/keys/{task}.sp", f"csp/keys/{task}.csp", f"kgc/keys/{task}.participant"} <= keys
        assert 'crowdfl_held{kind="key shares"} 1.0' in platform.metrics("csp")
        assert 'crowdfl_tasks_held{why="running"} 1.0' in platform.metrics("csp")
        requester.order(task, "cancel")

        def erased() -> None:
            left = {path.name for path in tmp_path.glob(f"*/keys/{task}.*")}
            if left != {f"{task}.dealt", f"{task}.appointment"}:
                raise NotReady("not yet")

        wait_for(erased)
        assert requester.sp.status(task)["ended"] == "cancelled by the requester"
        assert "crowdfl_held{" not in platform.metrics("kgc")
        assert 'crowdfl_held{kind="results"} 1.0' in platform.metrics("sp")  # the initial weights
        with pytest.raises(TaskEnded):
            requester.create(replace(task_definition(), claim_window=0.0), INITIAL_MODEL)
