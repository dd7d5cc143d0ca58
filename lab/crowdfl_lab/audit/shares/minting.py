"""KGC's signing key puts names of its own around one person, in the places of others: SP's sum is then that person's update.

All of it comes after KGC has destroyed what it dealt, in a task that is full and whose enrolment is closed. Run on the roles
themselves; SP deviates, and one phone reads for it.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.invitations import Admission, Certificate, EnrolmentRequest, Ticket
from crowdfl.documents.signed import Definition, participant_name
from crowdfl.errors import CrowdFLError
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.profile import Identity, ParticipantKeys, Tools
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.roles import csp as csp_role
from crowdfl.roles.dealt import DealtFiles
from crowdfl.roles.participant.participant import Participant
from crowdfl.settings import TaskSettings
from crowdfl.simulation.host import FOREVER, Host
from crowdfl_lab.audit.finding import ENTRY, SHARES, Attack, Finding, Floats, found_in
from crowdfl_lab.audit.shares.deviating_round import weakened

_SETTINGS = {"min_participants": 4, "max_participants": 4, "max_norm": 3.0, "clip": 3.0, "decimals": 4, "rounds": 2}
_UPDATE = np.array([0.5, -0.24, 1.0, 0.12, -0.76, 0.06])  # quarters of them are whole units
_TITLE = "an upload, by SP with KGC's signing key, which certifies devices that nobody was invited with"
_MINTED = Attack("minted names", "new", _TITLE, ("KGC", "SP", "a participant"), ENTRY)


def attack_minted() -> Iterator[Finding]:
    for subject in ("shares, a CSP that believes every certificate", SHARES):
        with weakened(subject, (csp_role, "admitted", _believed)):
            guess, note = _surrounded()
        truth = np.rint(_UPDATE * 10**4)
        yield _MINTED.score(subject, guess, np.zeros(len(truth)), truth, found_in(guess, truth), note)


def _believed(certificate: str, kgc_key: bytes, _definition: Definition) -> Admission:
    """KGC's signature, and whatever stands under it."""
    found = Certificate.open(certificate, kgc_key)
    asked = EnrolmentRequest.read(Envelope.parse(found.request, EnrolmentRequest.kind))
    return Admission(asked.identity, asked.device, FOREVER)


def _surrounded() -> tuple[Floats | None, str]:
    host = Host(Tools(Threads(1)))
    settings = TaskSettings.of(profile="shares", weighting="equal", lanes=256, **_SETTINGS)
    words, shape = "a task of the audit", ModelShape(("w",), ((len(_UPDATE),),))
    task = host.create(Definition(words, words, words, shape, settings, int(FOREVER), {}), [np.zeros(len(_UPDATE))])
    victim, reader, *others = (host.join(task, name) for name in ("victim", "reader", "b", "c"))
    host.requester.close_enrolment(task)
    host.run()
    try:
        minted = [_minted(host, task, other) for other in (reader, *others)]
    except CrowdFLError as refusal:
        return None, f"CSP takes none of them: {type(refusal).__name__}"
    return _summed(host, task, victim, reader, minted), "as many as the task takes, after its enrolment was closed"


def _minted(host: Host, task: str, other: Participant) -> ParticipantKeys:
    """Keys of KGC's in the place of somebody who is in."""
    fresh = ParticipantKeys.fresh("")
    keys = replace(fresh, who=participant_name(fresh.signing.public))
    place = host.sp.core.identity(task, other.keys.who).place
    ticket = Ticket.make(task, place, 2, FOREVER, host.signing)  # the requester's key is not KGC's
    request = EnrolmentRequest.make(ticket, keys).sign(ticket.key)
    host.csp.enrol(task, Certificate(task, keys.who, ticket.invitation, request).sign(host.signing))
    return keys


def _summed(host: Host, task: str, victim: Participant, reader: Participant, minted: list[ParticipantKeys]) -> Floats:
    """SP's own round of the victim and of them, and what a reader finds in it."""
    definition = host.sp.core.definition(task)
    profile = SharesProfile()
    tools = Tools(Threads(1))
    keys = host.disk.blobs("sp/keys")
    sp = profile.sp(definition.spec, keys.get(f"{task}.sp"), tools)
    sp.set_dealt_loader(partial(DealtFiles(keys, "sp").load, definition))
    sp.open_round(1)
    sp.load_previous(None)
    uploads = {}
    for one in (victim.keys, *minted):
        sp.enrol(Identity(one.who, one.signing.public, one.reader.public))
    victim.encrypt(1, [_UPDATE], 1)
    uploads[victim.keys.who] = victim.blobs.get("rounds/1/upload")
    for one in minted:
        phone = profile.participant(definition.spec, reader.blobs.get("bundle"), one, tools)
        phone.resume(None, np.zeros(len(_UPDATE)))
        uploads[one.who] = phone.encrypt_update(np.zeros(len(_UPDATE)), 1, 1)
    sp.add_all(uploads)
    run_exchange(sp.publish(final=False), ask_directly(lambda request: host.csp.answer(task, request)))
    average = reader.side.read(sp.publication(), 1).weights
    found: Floats = np.rint(average * len(uploads) * 10**4)
    return found
