"""SP with a reader against CSP's order: one manifest a round, of enough people, and one sum for each model.

Each rule is broken the way a platform would: a manifest of one, a name three times, a second manifest without the victim, and
the same model once more in the next round. Where CSP opens a second sum, the difference of the two is the victim's update.

What KGC deals covers lanes once. If it served twice, or were opened, or were still known to KGC, lanes would show uploads.

A lane is a sum of entries with known signs. Of a model with fewer weights than there are lanes, all lanes of an upload together
are a system of equations with one solution: the upload. Of a larger model they are as many sums of it as there are lanes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from crowdfl.crypto.shares.ring import Words
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import CrowdFLError, DealtMaterialDamaged
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.profile import InProcessMemory
from crowdfl.protocols.shares.dealing import rounds as dealing
from crowdfl.protocols.shares.dealing.keys import seeds_of
from crowdfl.protocols.shares.dealing.rounds import CSP_ROLE, SP_ROLE, low_words
from crowdfl.protocols.shares.round import csp as csp_module
from crowdfl.protocols.shares.round import manifest as manifest_module
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.average import PARTICIPANTS, SharesPublication, mask_of
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.csp_state import CspBooks
from crowdfl.protocols.shares.round.manifest import RoundManifest, StepRequest
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Floats, rms
from crowdfl_lab.audit.shares.deviating_round import (
    LANES,
    PEOPLE,
    coins_of,
    conversation,
    integers,
    phone,
    played,
    server_csp,
    server_sp,
    shape_of,
    source_of,
    stage,
    switched,
    updates,
)
from crowdfl_lab.parties import LocalParties

VICTIM, READER = "p1", "p0"
_OFF = "root mean square error of an entry of the update; blind: zeros"
_READERS = ("SP", "participant")


@dataclass(frozen=True)
class _Way:
    """One way to an upload: how SP goes about it, and which rule of CSP's stands against it."""

    name: str
    title: str
    weakened: str
    go: Callable[[LocalParties], Floats]
    off: Callable[[LocalParties, ExitStack], None]


def attack_order() -> Iterator[Finding]:
    """Each way with the rule switched off, and as built."""
    for way in _WAYS:
        yield _try(way, f"shares, {way.weakened}", weakened=True)
        yield _try(way, SHARES, weakened=False)


def _try(way: _Way, subject: str, *, weakened: bool) -> Finding:
    parties = stage(check="none", lanes=0)
    truth, guess, note = integers(parties, updates()[VICTIM]), None, "CSP opens what it is asked for"
    with ExitStack() as switches:
        if weakened:
            way.off(parties, switches)
        try:
            guess = way.go(parties)
        except CrowdFLError as refusal:
            note = f"CSP refuses: {type(refusal).__name__}"
    exact = 0 if guess is None else int(np.count_nonzero(guess == truth))
    attack = Attack(way.name, "new", f"an upload, by SP with a reader: {way.title}", _READERS, rms, _OFF)
    return attack.score(subject, guess, np.zeros(len(truth)), truth, f"{exact} of {len(truth)} entries", note)


def _sum(parties: LocalParties, number: int, sp: SharesSp, uploads: Mapping[str, bytes]) -> Floats:
    """What a reader takes out of a round of these uploads; SP itself has no scruples."""
    sp.check = lambda: None  # type: ignore[method-assign]
    sp.open_round(number)
    sp.add_all(uploads)
    run_exchange(sp.publish(final=False), ask_directly(parties.csp.answer))
    return _read(parties, sp.publication(), number)


def _read(parties: LocalParties, publication: bytes, number: int) -> Floats:
    """As `AverageReader` does, but without its scruples: SP's reader is an accomplice."""
    shape, reader = shape_of(parties), phone(parties, READER)
    place = shape.place(number, reader.base())
    message = SharesPublication.from_bytes(publication, shape.limits())
    t = reader.boxes[1].open(message.participants, place.bind("crowdfl mask seed 1", PARTICIPANTS.encode()))
    mask, _ = mask_of(t, place, shape)
    sums = shape.ring.decode(message.sums) - shape.ring.decode(mask)
    return shape.ring.signed(shape.ring.reduced(sums)).astype(np.float64)


def _everyone(parties: LocalParties, number: int = 1) -> dict[str, bytes]:
    return parties.encrypt(updates(), number)


def _alone(parties: LocalParties) -> Floats:
    uploads = _everyone(parties)
    return _sum(parties, 1, server_sp(parties), {VICTIM: uploads[VICTIM]})


def _twice_named(parties: LocalParties) -> Floats:
    """The victim, and a sybil that stands in the manifest twice, whose update is known."""
    uploads = _everyone(parties)
    with switched(sp_module, "manifest_of", lambda *parts: _repeated(manifest_module.manifest_of(*parts))):
        both = _sum(parties, 1, server_sp(parties), {who: uploads[who] for who in (READER, VICTIM)})
    return both - integers(parties, updates()[READER])


def _repeated(manifest: RoundManifest) -> RoundManifest:
    doubled: dict[str, Any] = {
        name: (values[0], *values)
        for name in ("names", "digests", "sealed", "signatures")
        if (values := getattr(manifest, name))
    }
    return replace(manifest, **doubled)


def _second_manifest(parties: LocalParties) -> Floats:
    """Everyone; then, in the same round, everyone but the victim."""
    uploads = _everyone(parties)
    whole = _sum(parties, 1, server_sp(parties), uploads)
    return whole - _sum(parties, 1, _another(parties), _without(uploads))


def _same_base(parties: LocalParties) -> Floats:
    """Everyone; then SP says that nothing came of it, and everyone but the victim sends the same again."""
    whole = _sum(parties, 1, server_sp(parties), _everyone(parties))
    return whole - _sum(parties, 2, _another(parties), _without(_everyone(parties, 2)))


def _without(uploads: Mapping[str, bytes]) -> dict[str, bytes]:
    return {who: upload for who, upload in uploads.items() if who != VICTIM}


def _another(parties: LocalParties) -> SharesSp:
    """SP without the memory that keeps an honest one from doing this."""
    return cast(SharesSp, parties.dealer.sp())


def _any_manifest(parties: LocalParties, switches: ExitStack) -> None:
    del parties
    switches.enter_context(switched(csp_module, "check_manifest", lambda *_: None))
    switches.enter_context(switched(manifest_module, "why_void", lambda *_: None))


def _forgetful(parties: LocalParties, switches: ExitStack) -> None:
    """A CSP that loses what it has written before each manifest."""
    del switches
    csp = server_csp(parties)
    csp.answer = _asking_anew(parties, csp)  # type: ignore[assignment, method-assign]


def _asking_anew(parties: LocalParties, csp: SharesCsp) -> Callable[[bytes], bytes]:
    answer = csp.answer

    def answered(request: bytes) -> bytes:
        if StepRequest.from_bytes(request, shape_of(parties).limits()).step == 1:
            csp.remember(InProcessMemory())
        return answer(request)

    return answered


def _any_base(parties: LocalParties, switches: ExitStack) -> None:
    del parties
    for rule in ("check_base", "spend"):
        switches.enter_context(switched(CspBooks, rule, lambda *_: None))
    switches.enter_context(switched(CspBooks, "_spent", lambda *_: None))


_WAYS = (
    _Way("manifest of one", "a manifest of one", "no least number", _alone, _any_manifest),
    _Way("name twice", "a sybil that is named twice", "names not compared", _twice_named, _any_manifest),
    _Way("two manifests", "two manifests of a round", "a CSP that forgets", _second_manifest, _forgetful),
    _Way("same model again", "the same model once more", "any base", _same_base, _any_base),
)

_UNCOVERED = "p3"
_SLOT = sorted(PEOPLE).index(_UNCOVERED)
_OFF_ENTRY = "root mean square error of an entry; blind: zeros"
_OFF_LANE = "root mean square error of a lane; blind: zeros"
_TWICE = Attack(
    "dealt twice", "new", "two uploads, by CSP, if dealt numbers served two rounds", ("CSP",), rms, _OFF_ENTRY
)
_CLOSED = Attack("masks of a block", "new", "lanes of a block that is left out, by CSP", ("CSP",), rms, _OFF_LANE)
_KGC_TITLE = "an upload of fewer weights than lanes, by CSP with a KGC that kept what it dealt"
_KGC = Attack("dealer", "new", _KGC_TITLE, ("KGC", "CSP"), rms, _OFF_ENTRY, conceded=True)


def attack_dealt_twice() -> list[Finding]:
    """The index of the round left out of what streams are bound to; and as built."""
    built = vars(dealing)["_context"]

    def same(label: str, shape: SharesShape, role: str, number: int) -> bytes:
        del number
        return bytes(built(label, shape, role, 1))

    with switched(dealing, "_context", same):
        weakened = _subtracted("shares, dealt for all rounds")
    return [weakened, _subtracted(SHARES)]


def _subtracted(subject: str) -> Finding:
    """c of two rounds, subtracted: the masks would cancel, and both sketches are public."""
    parties, trained, sketches, shown = stage(), (updates(1), updates(2)), list[Sketch](), list[Words]()
    for number, update in enumerate(trained, start=1):
        played(parties, number, update)
        sketches.append(_sketch(parties))
        shown.append(_lanes_shown(parties))
    apart = shape_of(parties).ring.signed(shape_of(parties).ring.reduced(shown[1] - shown[0]))
    matrix = np.concatenate([-_matrix(sketches[0], parties), _matrix(sketches[1], parties)], axis=1)
    guess = _solved(matrix, apart.astype(np.float64))[: shape_of(parties).spec.parameters]
    truth = integers(parties, trained[0][_UNCOVERED])
    recovered = f"{np.count_nonzero(guess == truth)} of {len(truth)} entries, and as many of the next round's"
    return _TWICE.score(subject, guess, np.zeros(len(truth)), truth, recovered, _old_file(parties))


def _old_file(parties: LocalParties) -> str:
    """What CSP says to the file of another round."""
    _, seed = seeds_of(source_of(parties))
    old = dealing.files(shape_of(parties), source_of(parties), 1)[CSP_ROLE]
    try:
        dealing.received(shape_of(parties), seed, CSP_ROLE, 2, old)
    except DealtMaterialDamaged as refusal:
        return f"the file of another round: {type(refusal).__name__}"
    return "the file of another round is taken"


def attack_closed_masks() -> list[Finding]:
    """The first block, as if it had to be left out: with its masks opened, and with CSP's own shares of them alone."""
    parties, trained = stage(), updates()
    played(parties, 1, trained)
    start, end = shape_of(parties).widths.blocks[0]
    truth = (_matrix(_sketch(parties), parties) @ integers(parties, trained[_UNCOVERED]))[start:end]
    findings = []
    for subject, roles in (("shares, masks opened", (SP_ROLE, CSP_ROLE)), (SHARES, (CSP_ROLE,))):
        guess = _unmasked(parties, roles)[start:end]
        recovered = f"{np.count_nonzero(guess == truth)} of {len(truth)} lanes"
        note = "c is shown to both servers; the masks of such a block are combined with nothing"
        findings.append(_CLOSED.score(subject, guess, np.zeros(len(truth)), truth, recovered, note))
    return findings


def attack_dealer() -> Finding:
    """Conceded: KGC is trusted while it deals, and destroys what both servers have."""
    parties, trained = stage(), updates()
    played(parties, 1, trained)
    truth = integers(parties, trained[_UNCOVERED])
    guess = _solved(_matrix(_sketch(parties), parties), _unmasked(parties, (SP_ROLE, CSP_ROLE)))
    recovered = f"{np.count_nonzero(guess == truth)} of {len(truth)} entries"
    note = f"{shape_of(parties).widths.lanes} lanes of {len(truth)} weights; of a larger model, so many sums of it"
    return _KGC.score(SHARES, guess, np.zeros(len(truth)), truth, recovered, note)


def _lanes_shown(parties: LocalParties) -> Words:
    """c of the victim in the last round, from both servers' messages."""
    shape = shape_of(parties)
    said = [said for said in conversation(parties) if said.step == LANES][-1]
    size = shape.widths.lanes * shape.ring.bytes
    first, second = (shape.ring.decode(message[_SLOT * size : (_SLOT + 1) * size]) for message in (said.sp, said.csp))
    return shape.ring.reduced(first + second)


def _unmasked(parties: LocalParties, roles: tuple[str, ...]) -> Floats:
    """c less its bound and less these servers' shares of the masks."""
    shape, source = shape_of(parties), source_of(parties)
    files, seeds = dealing.files(shape, source, 1), dict(zip((SP_ROLE, CSP_ROLE), seeds_of(source), strict=True))
    left = _lanes_shown(parties) - np.uint64(shape.widths.lane_bound)
    for role in roles:
        dealt = dealing.received(shape, seeds[role], role, 1, files[role])
        left = left - low_words(dealt.lanes.lanes[_SLOT], shape.widths.k)
    return shape.ring.signed(shape.ring.reduced(left)).astype(np.float64)


def _sketch(parties: LocalParties) -> Sketch:
    widths = shape_of(parties).widths
    return Sketch(coins_of(parties), widths.parameters, widths.rows, widths.buckets)


def _matrix(sketch: Sketch, parties: LocalParties) -> Floats:
    """[lanes, weights]: what the sketch multiplies an update by."""
    ring, weights = shape_of(parties).ring, shape_of(parties).spec.parameters
    unit = np.eye(weights, dtype=np.uint64)
    return ring.signed(ring.reduced(sketch.lanes(unit))).astype(np.float64).T


def _solved(matrix: Floats, lanes: Floats) -> Floats:
    return cast(Floats, np.rint(np.linalg.lstsq(matrix, lanes, rcond=None)[0]))
