"""Files that KGC deals for single rounds: fetched once, kept as key shares are, burnt with their round."""

import pytest

from crowdfl.errors import DealtMaterialDamaged, Forbidden, NotReady, RoundsExhausted, TaskEnded
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.protocols.shares.round.ends import EndRequest
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.dealt import DealtFiles, dealt_sizes, dealt_words
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.restored import end_doubtful_csp
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.settings import TaskSettings
from crowdfl.storage.memory_blobs import MemoryBlobs
from tests.hosts import HARDENED, INITIAL_MODEL, SMALL_TASK, Desk, moved_by, small_definition

TASK = {"rounds": 3}


@pytest.fixture
def desk(tmp_path, dealt) -> Desk:
    """A task of three rounds, with three people and the money for it."""
    return Desk.funded(tmp_path, 3, **TASK)


class NoParts:
    def places(self):
        return []

    def key(self, task, who):
        return ""

    def remove(self, key, number):
        """Nothing."""

    def sweep(self):
        return 0


def sp_retention(desk) -> SpRetention:
    return SpRetention(desk.sp.store, desk.sp.ports.bundles, desk.clock, desk.sp.blobs, desk.sp.ports.guard, NoParts())


def files_of(desk, role):
    """The rounds whose files a role has."""
    names = desk.disk.blobs(f"{role}/keys").listing()
    return sorted(int(name.rpartition(".")[2]) for name in names if ".dealt." in name)


def play_round(desk, moved=0.5):
    """Everyone uploads, and the round goes through."""
    desk.run()
    desk.play(train=moved_by(moved, 3))


def test_both_servers_have_every_file_before_kgc_destroys_its_source(desk, dealt):
    """Each is made once, and the source is gone with the second acknowledgement."""
    assert files_of(desk, "sp") == files_of(desk, "csp") == [1, 2, 3]
    assert sorted(dealt) == [(role, number) for role in ("csp", "sp") for number in (1, 2, 3)]
    assert not desk.kgc.bundles.has(f"{desk.task}.source")
    for role in ("sp", "csp"):
        with pytest.raises(NotReady, match="handed over and destroyed"):
            desk.kgc.dealt(desk.task, role, 1)


def test_kgc_deals_a_file_to_its_own_server_and_for_rounds_that_there_are(tmp_path):
    desk = Desk(tmp_path, **TASK)
    other = small_definition(TaskSettings.of(**SMALL_TASK | TASK | {"rounds": 2}))
    task = desk.kgc.create_task(desk.requester._signed(other, b"")).task
    first, again, second = (b"".join(desk.kgc.dealt(task, "csp", number)) for number in (1, 1, 2))
    assert first == again != second
    assert dealt_sizes(other) == {"sp": len(b"".join(desk.kgc.dealt(task, "sp", 1))), "csp": len(second)}
    for number in (0, 3, -1):
        with pytest.raises(RoundsExhausted):
            desk.kgc.dealt(task, "sp", number)
    for role in ("requester", "participant", "kgc"):
        with pytest.raises(Forbidden):
            desk.kgc.dealt(task, role, 1)
    desk.kgc.acknowledge(task, "csp")
    assert b"".join(desk.kgc.dealt(task, "sp", 1))
    with pytest.raises(NotReady):
        desk.kgc.dealt(task, "csp", 1)
    desk.kgc.acknowledge(task, "sp")
    assert not desk.kgc.bundles.has(f"{task}.source")


def test_kgc_hands_a_bundle_to_its_own_server_until_that_has_it(tmp_path):
    """No server gets what reads averages, and a server that was set back does not get its share again."""
    desk = Desk(tmp_path, **TASK)
    other = small_definition(TaskSettings.of(**SMALL_TASK | TASK | {"rounds": 2}))
    task = desk.kgc.create_task(desk.requester._signed(other, b"")).task
    for role in ("requester", "participant", "kgc"):
        with pytest.raises(Forbidden):
            desk.kgc.bundle(task, role)
    assert desk.kgc.bundle(task, "csp")[2] == desk.kgc.bundles.get(f"{task}.csp")
    desk.kgc.acknowledge(task, "csp")
    with pytest.raises(NotReady, match="handed over and destroyed"):
        desk.kgc.bundle(task, "csp")
    assert desk.kgc.bundle(task, "sp")[2]


def test_a_profile_without_such_files_is_dealt_none(tmp_path):
    """And its folder of keys is as before."""
    desk = Desk(tmp_path, **HARDENED)
    assert dealt_sizes(desk.sp.core.definition(desk.task)) == {}
    assert dealt_words(desk.sp.core.definition(desk.task)) == ""
    assert sorted(desk.sp.ports.bundles.listing()) == [f"{desk.task}.sp"]
    with pytest.raises(NotReady):
        desk.kgc.dealt(desk.task, "sp", 1)


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_fetching_goes_on_where_it_stopped(tmp_path, dealt, role):
    """What is durable is not fetched again, and nothing is acknowledged before the last."""
    desk = Desk(tmp_path, **TASK)
    definition = small_definition(TaskSettings.of(**SMALL_TASK | TASK | {"rounds": 4}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharesProfile, "dealt", failing_at(role, 3, SharesProfile.dealt))
        with pytest.raises(ConnectionError):
            desk.requester.create(definition, INITIAL_MODEL)
    dealt.clear()
    task = desk.requester.create(definition, INITIAL_MODEL)
    assert [number for asked, number in dealt if asked == role] == [3, 4]
    for keys in (desk.sp.ports.bundles, desk.csp.bundles):
        assert all(keys.has(f"{task}.dealt.{number}") for number in (1, 2, 3, 4))


def failing_at(role, number, dealt):
    """KGC is away when this file is asked for."""

    def fail(self, spec, source, asked, place):
        if (asked, place) == (role, number):
            raise ConnectionError("away")
        return dealt(self, spec, source, asked, place)

    return fail


def test_a_file_of_another_length_is_not_kept(tmp_path, monkeypatch):
    """By the name of what is wrong, and before KGC is told that all is well."""
    monkeypatch.setattr(SharesProfile, "dealt", lambda *_: iter([b"too short"]))
    with pytest.raises(DealtMaterialDamaged, match="9 bytes as file 1 where the task's settings say 32297"):
        Desk(tmp_path, **TASK)


def test_a_file_is_burnt_with_its_round_on_both_servers(desk):
    for number in (1, 2):
        play_round(desk, moved=0.1 * number)
        assert desk.sp.store.round(desk.task, number).state == "rewarded"
        assert files_of(desk, "sp") == files_of(desk, "csp") == list(range(number + 1, 4))


def test_a_round_that_is_given_up_burns_sp_s_file(desk):
    """Too few people came; the next round has another one."""
    desk.run()
    desk.later(10_000.0)
    desk.later(10_000.0)
    assert desk.sp.store.round(desk.task, 1).state == "aborted"
    play_round(desk)
    assert 1 not in files_of(desk, "sp")


@pytest.mark.parametrize("damage", ["gone", "altered", "another"])
@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_lost_or_altered_file_costs_its_round_and_no_money(desk, role, damage):
    """Nothing is computed without it, and the round after it goes on."""
    keys = desk.disk.blobs(f"{role}/keys")
    kept = keys.get(f"{desk.task}.dealt.1")
    keys.delete(f"{desk.task}.dealt.1")
    if damage == "altered":
        keys.put(f"{desk.task}.dealt.1", kept[:-1] + bytes([kept[-1] ^ 1]))
    if damage == "another":
        keys.put(f"{desk.task}.dealt.1", keys.get(f"{desk.task}.dealt.2"))
    told = []
    desk.sp.options.events = lambda event, **fields: told.append((event, fields.get("error")))
    play_round(desk)
    assert desk.sp.store.round(desk.task, 1).state == "aborted"
    assert ("round void", "DealtMaterialDamaged") in told
    play_round(desk)
    assert desk.sp.store.round(desk.task, 2).state == "rewarded"


def test_a_file_that_another_process_has_burnt_meanwhile_is_not_called_damaged(desk, monkeypatch):
    """It has ended the round while this one looked for the file: SP hears that, and no operator of a fault."""
    other, load, told = desk.new_csp(name="csp2"), DealtFiles.load, []

    def late(files, definition, number):
        if files.role == "csp" and files.bundles is desk.csp.bundles:
            other.answer(desk.task, EndRequest(1).to_bytes())
            other.tidy(desk.task)
        return load(files, definition, number)

    monkeypatch.setattr(DealtFiles, "load", late)
    desk.sp.options.events = lambda event, **fields: told.append((event, fields.get("error")))
    play_round(desk)
    assert desk.sp.store.round(desk.task, 1).state == "aborted"
    assert ("round void", "DealtMaterialDamaged") not in told


def test_what_is_dealt_is_counted_and_erased_with_the_task(desk):
    """On both servers, and what a round left to the next at SP too."""
    play_round(desk)
    csp = CspRetention(desk.csp.store, desk.csp.bundles, desk.clock, desk.csp.blobs, desk.csp.guard)
    held = sp_retention(desk).held()[desk.task]
    assert (held["dealt files"], held["left-overs"]) == (2, 1)
    assert csp.held()[desk.task]["dealt files"] == 2
    csp.erase(desk.task)
    sp_retention(desk).erase(desk.task)
    assert "dealt files" not in csp.held().get(desk.task, {})
    left = sp_retention(desk).held()[desk.task]
    assert {kind for kind, count in left.items() if count} == {"results"}


def test_the_source_is_counted_and_erased_with_the_task(desk):
    """A task that nobody takes over keeps it until its end, or until it is swept."""
    holdings = KgcRetention(desk.kgc.store, desk.kgc.bundles, desk.clock)
    other = small_definition(TaskSettings.of(**SMALL_TASK | TASK | {"rounds": 2}))
    task = desk.kgc.create_task(desk.requester._signed(other, b"")).task
    assert holdings.held()[task]["key shares"] == 5
    holdings.erase(task)
    assert task not in holdings.held()
    with pytest.raises(NotReady):
        desk.kgc.dealt(task, "sp", 1)
    holdings.forget_unknown(task)
    assert not [name for name in desk.kgc.bundles.listing() if name.startswith(task)]


def test_a_task_that_ends_while_csp_fetches_leaves_nothing_there(tmp_path, monkeypatch):
    """The last file may have come after the end was heard."""
    desk = Desk(tmp_path, **TASK)
    task, bundles = desk.task, desk.csp.bundles
    desk.csp.store.change_task(task, sole_holder=False)
    for number in (1, 2, 3):
        bundles.delete(f"{task}.dealt.{number}")

    class Tombstone:
        def dealt(self, _task, number):
            desk.csp.store.change_task(task, state="ended")
            return bytes(dealt_sizes(desk.sp.core.definition(task))["csp"])

        def acknowledge(self, _task):
            raise AssertionError

    monkeypatch.setattr(desk.csp, "kgc", Tombstone())
    with pytest.raises(TaskEnded):
        desk.csp._become_sole_holder(task)
    assert files_of(desk, "csp") == []


def test_the_sweep_removes_files_of_rounds_that_are_over(desk):
    """A crash came after the round and before its file was burnt."""
    kept = desk.sp.ports.bundles.get(f"{desk.task}.dealt.1")
    play_round(desk)
    desk.sp.ports.bundles.put(f"{desk.task}.dealt.1", kept)
    sp_retention(desk).remove_unfinished(0.0)
    assert files_of(desk, "sp") == [2, 3]


def test_a_restored_csp_uses_nothing_that_was_dealt(desk):
    """Its files are there again, and no step of the task is answered."""
    end_doubtful_csp(desk.csp.store)
    play_round(desk)
    assert desk.sp.store.round(desk.task, 1).state == "aborted"


def test_creating_a_task_again_fetches_nothing_that_was_burnt(desk, dealt):
    """The same definition is the same task, whatever has happened to it since."""
    play_round(desk)
    dealt.clear()
    assert desk.requester.create(small_definition(desk.settings), INITIAL_MODEL) == desk.task
    desk.csp.prepare(desk.task)
    assert dealt == []
    assert files_of(desk, "sp") == [2, 3]


def test_the_words_name_every_server_and_both_sums(desk):
    assert (
        dealt_words(desk.sp.core.definition(desk.task))
        == "SP 32.3 kB a round, 96.9 kB in all; CSP 95.2 kB a round, 0.3 MB in all"
    )


def test_a_file_is_bound_to_its_task_role_and_round(desk):
    """One that was copied elsewhere is not used."""
    definition, bundles = desk.sp.core.definition(desk.task), MemoryBlobs()
    kept = desk.sp.ports.bundles.get(f"{desk.task}.dealt.1")
    bundles.put(f"{desk.task}.dealt.1", kept)
    bundles.put(f"{desk.task}.dealt.2", kept)
    assert len(DealtFiles(bundles, "sp").load(definition, 1)) == dealt_sizes(definition)["sp"]
    for role, number in (("csp", 1), ("sp", 2), ("sp", 3)):
        with pytest.raises(DealtMaterialDamaged):
            DealtFiles(bundles, role).load(definition, number)
