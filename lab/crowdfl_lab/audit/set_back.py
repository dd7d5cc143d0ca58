"""A server of `hardened` that was set back, to a database of yesterday, and does not know it: what the other one then reads.

**CSP.** It has forgotten which steps it has answered: SP asks each again, with other contents. One comparison for each time.

**SP.** It makes the same masks again, and has lost CSP's reply. A CSP that deviates gives another: a lane that it makes larger
by Delta moves SP's operand by -2 Delta r, r the mask of the lane, under the very mask that hid the operand before. The
difference of the two is r, and the lane lies open: as many lanes of everyone as fit into a number under the key.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from crowdfl.errors import CrowdFLError
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.hardened.manifest import ManifestRequest
from crowdfl.protocols.hardened.prirwd import LanesReply, LanesRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.records import MemoryRecords
from crowdfl_lab.audit.finding import HARDENED, SAMPLES_OFF, Attack, Finding, Measure, found_in, rms
from crowdfl_lab.audit.recorded_round import (
    PAYMENT,
    SMALL_BOUNDS,
    SMALL_PEOPLE,
    SMALL_SIZE,
    HardenedParties,
    signed_manifest,
    small_parties,
    small_updates,
)
from crowdfl_lab.audit.unsigned_rounds import is_below

_MOST: int = SMALL_BOUNDS["max_samples"]
_ENTRY_OFF = Measure(rms, "root mean square error of an entry over its bound; blind: the middle of its range")
_TIMES = "a sample count, by SP that asks a CSP which was set back"
_SIGNS = Attack("signs, CSP set back", "new", _TIMES, ("SP",), SAMPLES_OFF, conceded=True)
_TWICE = "uploads, by CSP that answers an SP which was set back otherwise"
_LANES = Attack("lanes, SP set back", "new", _TWICE, ("CSP",), _ENTRY_OFF, conceded=True)


def attack_set_back(key_bits: int = 1024) -> Iterator[Finding]:
    yield _signs(small_parties(key_bits))
    yield _lanes(small_parties(key_bits))


def _signs(parties: HardenedParties) -> Finding:
    uploads = parties.encrypt(small_updates())
    parties.open(1).collect(uploads)
    parties.csp.answer(signed_manifest(1, uploads).to_bytes())
    low = 0
    high = _MOST
    yesterday = parties.csp.records.copy()
    times = 0
    while low < high:
        parties.csp.records, times = yesterday.copy(), times + 1
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if is_below(parties, 1, middle) else (middle, high)
    truth = SMALL_PEOPLE["p1"]
    note = "one comparison for each time that CSP is set back, and no round is its price"
    return _SIGNS.score(HARDENED, low, _MOST // 2, truth, f"{low} samples where {truth} is true, {times} times", note)


def _lanes(parties: HardenedParties) -> Finding:
    sp = parties.sp
    trained = small_updates()
    view = parties.csp.party.view
    uploads = parties.encrypt(trained)
    replies = dict[int, bytes]()
    parties.open(1).collect(uploads)
    run_exchange(sp.reward(PAYMENT), ask_directly(lambda request: _kept(parties, replies, request)))
    record, lanes = sp.record, view.of("lanes")[0]
    first = view.of("SMUL x'")[0]
    width = sp.codec.budget.lane_mask_bits + 1
    parties.csp.records = MemoryRecords()  # this CSP may forget what it likes
    parties.open(1).collect(uploads)
    sp.record = record

    def answer(request: bytes) -> bytes:
        reply = parties.csp.answer(request)
        if Message.kind_of(request) == ManifestRequest.kind:
            return replies[ManifestRequest.kind]  # SP has this one still
        if Message.kind_of(request) == LanesRequest.kind:
            found = LanesReply.from_bytes(reply, sp.party.limits(1000)).lanes
            size = len(found) // len(SMALL_PEOPLE)
            larger = [1 << (width * (place % size)) for place in range(len(found))]
            return LanesReply(sp.party.add_plain(found, larger)).to_bytes()
        return reply

    seen = len(view.of("SMUL x'"))
    with suppress(CrowdFLError):  # rewards come out wrong, or not at all: CSP has what it wanted
        run_exchange(sp.reward(PAYMENT), ask_directly(answer))
    second = view.of("SMUL x'")[seen]
    n = int(sp.party.public.n)
    public = sp.party.public
    guess, truth = list[float](), list[float]()
    for place, who in enumerate(sorted(SMALL_PEOPLE)):
        twice = int(public.signed((int(first[2 + 3 * place]) - int(second[2 + 3 * place])) % n)) >> 1
        masks = [(twice >> (width * lane)) % (1 << width) for lane in range(SMALL_SIZE)]
        guess += [float(e) - r for e, r in zip(lanes[place][:SMALL_SIZE], masks, strict=True)]
        truth += sp.codec.packing.unpack(sp.codec.pack(*trained[who])[0], SMALL_SIZE).astype(float).tolist()
    scale = sp.codec.budget.upload_bound
    found_, true = np.array(guess) / scale, np.array(truth) / scale
    note = f"all of {len(SMALL_PEOPLE)} people at one set-back: {width} bits a lane, under a key of {n.bit_length()}"
    return _LANES.score(HARDENED, found_, np.zeros(len(true)), true, found_in(found_, true, within=1e-9), note)


def _kept(parties: HardenedParties, replies: dict[int, bytes], request: bytes) -> bytes:
    reply = parties.csp.answer(request)
    return replies.setdefault(Message.kind_of(request), reply) if request[5] == ManifestRequest.kind else reply
