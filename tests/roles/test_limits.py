"""What a service grants a new task: named limits, and tasks that are there already go on."""

import hashlib
import re
from dataclasses import replace

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import CrowdFLError, LimitExceeded, ModelMismatch, QuotaExceeded
from crowdfl.learning.models.forms import to_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.roles.limits import SpQuotas, TaskBounds
from crowdfl.roles.sp.core import SpOptions
from crowdfl.settings import TaskSettings
from crowdfl.simulation.host import Host
from crowdfl.storage.memory_blobs import MemoryBlobs
from tests.hosts import INITIAL_MODEL, SMALL_TASK, small_definition, test_tools

BOUNDS = TaskBounds(rounds=10, claim_window=1000.0, days=61.0)


def definition(claim_window=500.0, **settings):
    return small_definition(TaskSettings.of(**(SMALL_TASK | settings)), claim_window=claim_window)


TOO_MUCH = [
    ({"rounds": 11}, "rounds", "max_rounds"),
    ({"claim_window": 10.0**11}, "100,000,000,000", "max_claim_window"),
    ({"window": 10.0**6}, "days until its last day of claims", "fewer `rounds`, a shorter `window`.*max_task_time"),
    ({"late": 10.0**5}, "days until", "max_task_time"),
]


@pytest.mark.parametrize(("changes", "what", "setting"), TOO_MUCH)
@pytest.mark.parametrize("role", ["kgc", "sp"])
def test_a_task_that_lasts_too_long_is_refused_by_both(role, changes, what, setting):
    """KGC before it makes keys; SP for itself. The text says what was asked for, and what to do."""
    host = Host(test_tools(), options=SpOptions(test_tools(), min_claim_window=0.0))
    if role == "kgc":
        host.kgc.bounds = BOUNDS
    else:
        host.options.quotas = SpQuotas(BOUNDS)
    host.create(definition(), INITIAL_MODEL)
    with pytest.raises(QuotaExceeded, match=what) as refusal:
        host.create(definition(**changes), INITIAL_MODEL)
    assert re.search(setting, str(refusal.value))
    assert len(host.sp.store.tasks()) == 1
    assert len(host.kgc.store.tasks()) == (1 if role == "kgc" else 2)


def test_a_task_whose_rounds_are_over_is_refused():
    """It was defined long ago, and nobody has made its keys."""
    host = Host(test_tools(), options=SpOptions(test_tools(), min_claim_window=0.0))
    host.clock.time = 100 * 86400.0
    with pytest.raises(LimitExceeded, match="last day of this task's rounds is over"):
        host.create(definition().dated(0.0), INITIAL_MODEL)
    assert host.kgc.store.tasks() == []


@pytest.fixture
def host():
    """SP takes two tasks of each requester."""
    options = SpOptions(test_tools(), min_claim_window=0.0, quotas=SpQuotas(tasks=2, initial_bytes=5000))
    return Host(test_tools(), options=options)


def test_a_requester_has_so_many_tasks_at_a_time(host):
    """Until one is settled. Another requester's do not count, and a task that is there is taken over again."""
    first = host.create(definition(rounds=1), INITIAL_MODEL)
    host.create(definition(rounds=2), INITIAL_MODEL)
    with pytest.raises(QuotaExceeded, match="has 2 tasks here that are not settled"):
        host.create(definition(rounds=3), INITIAL_MODEL)
    assert host.create(definition(rounds=1), INITIAL_MODEL) == first
    other = host.new_requester()
    other.blobs = MemoryBlobs()
    assert other.create(definition(rounds=3), INITIAL_MODEL)
    host.requester.order(first, "cancel")
    host.clock.time += 10**6
    host.run()
    assert host.create(definition(rounds=3), INITIAL_MODEL)


def test_tasks_that_are_there_go_on_under_smaller_limits(host):
    task = host.create(definition(), INITIAL_MODEL)
    host.options.quotas = SpQuotas(TaskBounds(rounds=1, claim_window=1.0, days=0.001), tasks=1, initial_bytes=1)
    host.kgc.bounds = host.options.quotas.bounds
    assert host.create(definition(), INITIAL_MODEL) == task
    assert len(host.join(task, "p").keys.who) == 20


def test_initial_weights_must_be_the_models_and_not_too_large(host):
    """Compared with the definition before anything is kept, or fetched from KGC."""
    first = INITIAL_MODEL[0]
    for arrays in ({"w": first}, {"w": first, "b": first}):
        with pytest.raises(ModelMismatch):
            post(host, to_safetensors(ModelShape.of(arrays), list(arrays.values())))
    with pytest.raises(CrowdFLError, match="not a readable safetensors"):
        post(host, b"initial")
    with pytest.raises(LimitExceeded, match="max_initial_bytes"):
        post(host, bytes(5001))
    assert host.sp.store.tasks() == []
    assert sorted(host.disk.blobs("sp/keys").listing()) == []


def post(host, initial):
    """As a requester does whose program checks nothing."""
    key = SigningKey.fresh()
    made = replace(definition(), requester=key.public, initial=hashlib.sha256(initial).hexdigest())
    made = made.dated(host.clock.now())
    text = made.sign(key)
    host.sp.tasks.create(text, host.kgc.create_task(text).appointment, initial)
