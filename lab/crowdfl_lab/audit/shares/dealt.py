"""What KGC deals covers lanes once. If it served twice, or were opened, or were still known to KGC, lanes would show uploads.

A lane is a sum of entries with known signs. Of a model with fewer weights than there are lanes, all lanes of an upload together
are a system of equations with one solution: the upload. Of a larger model they are as many sums of it as there are lanes.
"""

from typing import cast

import numpy as np

from crowdfl.crypto.shares.ring import Words
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import DealtMaterialDamaged
from crowdfl.protocols.shares.dealing import rounds as dealing
from crowdfl.protocols.shares.dealing.keys import seeds_of
from crowdfl.protocols.shares.dealing.rounds import CSP_ROLE, SP_ROLE, low_words
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Floats, rms
from crowdfl_lab.audit.shares.deviating_round import (
    LANES,
    PEOPLE,
    coins_of,
    conversation,
    integers,
    played,
    shape_of,
    source_of,
    stage,
    switched,
    updates,
)
from crowdfl_lab.parties import LocalParties

VICTIM = "p3"
_SLOT = sorted(PEOPLE).index(VICTIM)
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
    truth = integers(parties, trained[0][VICTIM])
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
    truth = (_matrix(_sketch(parties), parties) @ integers(parties, trained[VICTIM]))[start:end]
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
    truth = integers(parties, trained[VICTIM])
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
