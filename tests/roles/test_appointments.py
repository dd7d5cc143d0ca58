"""KGC appoints one key for a task: whoever is dealt another refuses it, and keeps nothing of it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from crowdfl.crypto.paillier import pctd
from crowdfl.documents.signed import Appointment
from crowdfl.errors import DocumentError, KeyMismatch, NotReady, UnknownTask
from crowdfl.protocols.registry import profile_named
from crowdfl.settings import TaskSettings
from crowdfl.simulation.host import Host
from tests.hosts import HARDENED, INITIAL_MODEL, SMALL_TASK, small_definition, test_tools

PAPER = {"profile": "paper", "key_bits": 1024, "mask_bits": 40}
BY_PROFILE = {"hardened": HARDENED, "paper": PAPER}
REFUSAL = r"the key received for task [0-9a-f]{64} is [0-9a-f]{16}, and KGC appointed [0-9a-f]{16}: nothing is kept"
profiles = pytest.mark.parametrize("profile", BY_PROFILE)


@pytest.fixture
def host() -> Host:
    return Host(test_tools())


def definition_under(profile):
    return small_definition(TaskSettings.of(**(SMALL_TASK | BY_PROFILE[profile])))


def deal_wrongly(monkeypatch, profile, role):
    """From now on KGC deals one role the bundle of another key."""
    kind = type(profile_named(profile))
    honest = kind.deal

    def deal(self, spec, *, insecure_test_key):
        mine, other = (honest(self, spec, insecure_test_key=insecure_test_key) for _ in range(2))
        return replace(mine, **{role: getattr(other, role)})

    monkeypatch.setattr(kind, "deal", deal)


@profiles
@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_server_takes_no_task_over_with_another_key(monkeypatch, host, profile, role):
    """Neither the bundle nor the weights stay, and KGC's copy is not acknowledged. Of CSP's refusal SP is told."""
    deal_wrongly(monkeypatch, profile, role)
    with pytest.raises(KeyMismatch, match=REFUSAL):
        host.create(definition_under(profile), INITIAL_MODEL)
    (name,) = {name.split("/")[0] for name in host.requester.blobs.listing() if name.endswith("/definition")}
    assert host.sp.store.tasks() == []
    assert not host.disk.blobs(f"{role}/keys").has(f"{name}.{role}")
    assert role == "csp" or not host.disk.blobs("sp/blobs").has(f"{name}/initial")
    assert host.kgc.bundles.has(f"{name}.{role}")


@pytest.mark.parametrize("parts", [(0,), (1, 2), (0, 1, 2)], ids=["definition", "key", "both"])
def test_csp_takes_no_papers_of_another_task(monkeypatch, host, parts):
    """KGC made those too, and they fit each other: CSP would answer this task by other settings, or with another's key."""
    definitions = [
        host.requester._signed(small_definition(TaskSettings.of(**SMALL_TASK | {"rounds": n})), b"") for n in (2, 3)
    ]
    task, other = (host.kgc.create_task(one).task for one in definitions)
    mixed = [host.kgc.bundle(other if part in parts else task, "csp")[part] for part in range(3)]
    monkeypatch.setattr(host.csp, "kgc", SimpleNamespace(bundle=lambda _task: mixed))
    with pytest.raises(DocumentError, match="papers of another task"):
        host.csp.prepare(task)
    assert not host.csp.bundles.listing()
    with pytest.raises(UnknownTask):
        host.csp.store.task(task)


@profiles
def test_a_requester_posts_no_task_whose_model_it_could_not_read(monkeypatch, host, profile):
    """Nobody is invited or paid for a model under another key."""
    deal_wrongly(monkeypatch, profile, "requester")
    with pytest.raises(KeyMismatch, match=REFUSAL):
        host.create(definition_under(profile), INITIAL_MODEL)
    assert [name for name in host.requester.blobs.listing() if name.endswith(("/bundle", "/appointment"))] == []
    assert host.sp.store.tasks() == []


@profiles
def test_a_participant_joins_no_task_with_another_key(monkeypatch, host, profile):
    """It would encrypt for whoever owns that key. Nothing of it is kept, and SP does not hear of this participant."""
    deal_wrongly(monkeypatch, profile, "participant")
    task = host.create(definition_under(profile), INITIAL_MODEL)
    person, (invitation,) = host.new_participant(task, "p"), host.requester.invite(task, 1, 100.0)
    with pytest.raises(KeyMismatch, match=REFUSAL):
        person.join(invitation)
    assert [name for name in ("certificate", "bundle", "definition") if person.blobs.has(name)] == []
    assert host.sp.tasks.status(task)["enrolled"] == 0
    with pytest.raises(NotReady, match="join"):
        person.encrypt(1, INITIAL_MODEL, 5)


def test_the_check_is_of_the_whole_fingerprint():
    """Not of the part that is shown."""
    public = pctd.keygen(64, insecure_test_key=True).public
    name = public.fingerprint.hex()
    Appointment("0" * 64, name, "").require_key(public.fingerprint)
    for other in (name[:-1] + "0123456789abcdef"[int(name[-1], 16) - 1], name[:16], name.upper(), ""):
        with pytest.raises(KeyMismatch):
            Appointment("0" * 64, other, "").require_key(public.fingerprint)
