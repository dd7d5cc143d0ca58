"""Several processes of CSP on one database, which SP asks at once.

A lane below zero ends a round, and each message of lanes is judged by itself. A process that did not compare the records that
it has read, in the transaction that sets its answer, would tell the sign of its own lanes: a bit for each message.
"""

from collections.abc import Iterator
from typing import cast

import numpy as np

from crowdfl.crypto.paillier.vector import CipherVector, Unchecked
from crowdfl.errors import RoundEnded, UnknownParticipant
from crowdfl.protocols.hardened import prirwd
from crowdfl.protocols.hardened.manifest import HardenedUpload
from crowdfl.protocols.hardened.prirwd import InnerSums, LanesReply, LanesRequest, RewardCsp
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.roles import csp
from crowdfl.roles.guard import Guard
from crowdfl.simulation.host import Host
from crowdfl.storage import sql
from crowdfl_lab.audit.finding import HARDENED, WRONG_GUESSES, Attack, Finding
from crowdfl_lab.audit.recorded_round import SMALL_PEOPLE, send_updates, signed_manifest, small_host
from crowdfl_lab.audit.shares.deviating_round import switched, weakened

_SIZE = 120  # parameters: several messages of lanes
_ABOVE = 1 << 20  # in the slots that are not asked about: above zero, whatever the upload has there
_TITLE = "signs of an upload, by SP that asks several processes of CSP at once"
_AT_ONCE = Attack("signs at once", "new", _TITLE, ("SP",), WRONG_GUESSES)


def attack_processes(key_bits: int = 864) -> Iterator[Finding]:
    for subject in ("hardened, a CSP that does not compare", HARDENED):
        uncompared = [(sql, "require_as_read"), (csp, "require_latest"), (Guard, "compare"), (Guard, "note")]
        off = [(*place, lambda *_: None) for place in uncompared]
        with switched(prirwd, "_LANES_A_MESSAGE", 1), weakened(subject, *off):  # as of a large model
            yield _ask_at_once(subject, key_bits)


def _ask_at_once(subject: str, key_bits: int) -> Finding:
    """Each is asked before the one before it has computed: the last one is the first to end the round."""
    host, task = small_host(key_bits, _SIZE)
    side = cast(HardenedSp, host.sp.aggregators.checking(task))
    party, packing, count = side.party, side.codec.packing, side.codec.budget.buckets
    truth = [(count - 1 - row) % 2 == 0 for row in range(count)]  # whether the first number of a row is below zero
    model = np.zeros(_SIZE)
    for row, is_below in enumerate(truth):
        place = row * packing.slots
        model[side.codec.order[place]] = side.codec.signs[place] * (-0.5 if is_below else 0.5)
    send_updates(host, 1, {who: (model, samples) for who, samples in SMALL_PEOPLE.items()})
    victim = _upload(host, task, "p0")
    names = tuple(sorted(person.keys.who for person in host.people.values()))
    people = {person.keys.who: _bytes(host, task, name) for name, person in host.people.items()}
    host.csp.answer(task, signed_manifest(1, people).to_bytes())
    processes = [host.new_csp() for _ in truth]
    lanes = RewardCsp.lanes
    told = dict[int, bool]()

    def ask(row: int) -> None:
        asked = victim.part(row, row + 1).add_plain(packing.pack_wide([0] + [_ABOVE] * (packing.slots - 1)))
        asked = party.rerandomise(CipherVector.concat([asked, party.encrypt([0] * (len(names) - 1))]))
        try:
            processes[row].answer(task, LanesRequest(1, row, asked, party.partial_decrypt(asked)).to_bytes())
            told[row] = False
        except RoundEnded:
            told[row] = True

    def later(side: RewardCsp, message: LanesRequest, participants: int) -> tuple[LanesReply, InnerSums, bool]:
        if message.start + 1 < count:
            ask(message.start + 1)
        return lanes(side, message, participants)

    with switched(RewardCsp, "lanes", later):
        ask(0)
    right = sum(told[row] == is_below for row, is_below in enumerate(truth))
    blind = sum(truth) / count
    ended, kept = sum(told.values()), host.csp.store.answer_counts()[task]["answers"]
    note = f"{ended} of {count} processes say that the round has ended; answers that are kept: {kept}"
    return _AT_ONCE.score(subject, right / count, blind, 1.0, f"{right} of {count} signs", note)


def _upload(host: Host, task: str, name: str) -> CipherVector:
    """As SP has it."""
    public = cast(HardenedSp, host.sp.aggregators.checking(task)).party.public
    return Unchecked.parse(HardenedUpload.parse(_bytes(host, task, name)).numbers, public, max_count=_SIZE).validate()


def _bytes(host: Host, task: str, name: str) -> bytes:
    who = host.people[name].keys.who
    entry = host.sp.store.upload(task, 1, who)
    if entry is None:
        raise UnknownParticipant(f"{who} has uploaded nothing")
    return host.sp.blobs.get(f"{task}/rounds/1/uploads/{entry.digest}")
