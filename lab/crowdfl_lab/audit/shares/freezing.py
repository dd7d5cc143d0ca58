"""A model that is held still: two rounds start from it, one person misses the second, and the two sums are subtracted.

Two servers open a sum together, and neither may choose its part after it knows the sum. SP with a reader publishes another sum
than the one that was opened; CSP with a reader takes this round's own sum back. Both are tried as built, and with the mechanism
that stands against it switched off. What is left is conceded: an offset that is fixed beforehand, minus the last sum, which a
reader told; it brings nearly the same model about again.

A CSP whose memory was set back would open a second sum for a base. SP sends one sum for a base, ever.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from crowdfl.protocols.profile import SpRecord
from crowdfl.protocols.records import MemoryRecords
from crowdfl.protocols.shares.chain import sha256
from crowdfl.protocols.shares.round import average
from crowdfl.protocols.shares.round import csp as csp_module
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.average import SharesPublication, ShareSum, SumOffer
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl_lab.audit.finding import ENTRY, SHARES, Attack, Finding, Floats
from crowdfl_lab.audit.shares.deviating_round import (
    NAMES,
    PEOPLE,
    READER,
    SIZE,
    VICTIM,
    DeviatingRound,
    attempt,
    switched,
    updates,
)
from crowdfl_lab.audit.shares.transcript import known_part

_MOST = 1000  # samples
_SP, _CSP = ("SP", "participant"), ("CSP", "participant")
_UPLOAD = "an upload, by {}: {}"
_PUBLISHED = Attack("published change", "new", _UPLOAD.format("SP with a reader", "it publishes no change"), _SP, ENTRY)
_CANCELLED = Attack("cancelled sum", "new", _UPLOAD.format("CSP with a reader", "it takes the sum back"), _CSP, ENTRY)
_SET_BACK_TITLE = _UPLOAD.format("a reader", "CSP was set back, and the round is run again")
_SET_BACK = Attack("CSP set back", "new", _SET_BACK_TITLE, ("participant",), ENTRY)


def attack_freezing() -> Iterator[Finding]:
    """Each weakened, then as built."""
    for attack, off, go, switch in (
        (_PUBLISHED, "any sum is read", _published, (average.AverageReader, "read", _read_any_sum)),
        (_CANCELLED, "CSP knows SP's mask", _cancelled, (SharesSp, "_part", known_part)),
        (_SET_BACK, "an SP that forgets", _set_back, (SharesSp, "_require_unspent", lambda *_: None)),
    ):
        for subject in (f"shares, {off}", SHARES):
            yield attempt(attack, subject, _round(), go, switch)
    for server, parties in (("SP", _SP), ("CSP", _CSP)):
        title = f"nearly an upload, by {server} with a reader: an offset fixed beforehand"
        attack = Attack("last sum taken back", "new", title, parties, ENTRY, conceded=True)
        found = attempt(attack, SHARES, _round(), partial(_taken_back, server=server))
        yield replace(found, note=f"off by {found.error / found.blind:.2g} of it")


def _round() -> DeviatingRound:
    """Phones want weights of their own and train until they have them: an update follows from the model alone."""
    return DeviatingRound(check="none", lanes=0, max_samples=_MOST, decimals=3, clip=2.0)


def _play(round_: DeviatingRound, number: int, without: str = "") -> Floats:
    """The sum that the reader takes out of the publication, before it or anyone else checks it."""
    played = round_.play_all(number, {who: update for who, update in updates().items() if who != without})
    return round_.phone(READER).sum_in(played.publication, number)[0]


_READ = average.AverageReader.read


def _read_any_sum(self: Any, publication: bytes, number: int, chain: Any) -> Any:  # noqa: ANN401 -- of `read`
    """Of readers that believe SP."""
    message = SharesPublication.from_bytes(publication, self._shape.limits())
    record = average.parse_record(message.record, self._shape, self._csp_key)
    with switched(average, "_hash_of", lambda *_: record.opened):
        return _READ(self, publication, number, chain)


def _published(round_: DeviatingRound) -> Floats:
    """The sum is known before it is published, and taken out of it."""
    publish, seen = average.publish_sum, dict[int, Floats]()

    def unchanged(shape: Any, place: Any, *rest: Any) -> SharesPublication:  # noqa: ANN401 -- of `publish_sum`
        message = publish(shape, place, *rest)
        seen[place.number] = sums = round_.phone(READER).sum_in(message.to_bytes(), place.number)[0]
        ring = shape.ring
        return replace(message, sums=ring.encode(ring.eights(message.sums) - ring.of_signed(sums.astype(np.int64))))

    with switched(sp_module, "publish_sum", unchanged):
        _play(round_, 1)
        _play(round_, 2, without=VICTIM)
    return seen[1] - seen[2]


def _cancelled(round_: DeviatingRound) -> Floats:
    """CSP takes off what it makes of X: with the seed of SP's mask if it has it, else with its own in its place."""
    opens, seen = average.open_sum, dict[int, Floats]()

    def opened(shape: Any, place: Any, members: Any, own: ShareSum, offer: SumOffer, part: Any, key: Any) -> Any:  # noqa: ANN401
        ring, t = shape.ring, bytes(32) if sha256(bytes(32)) == offer.mask else part.t
        mask = ring.decode(average.mask_of(t, place, shape)[0][:])
        sums = ring.signed(ring.reduced(ring.decode(offer.sums) + ring.decode(own.sums) - mask))
        seen[place.number] = sums.astype(np.float64)
        less = ring.encode(ring.eights(own.sums) - ring.of_signed(sums))
        return opens(shape, place, members, ShareSum(less, own.total), offer, part, key)

    with switched(csp_module, "open_sum", opened):
        _play(round_, 1)
        _play(round_, 2, without=VICTIM)
    return seen[1] - seen[2]


def _set_back(round_: DeviatingRound) -> Floats:
    """After the round CSP knows nothing of it, and SP runs another one to the same model, without one person."""
    first, second = round_.encrypt(updates(), 1), round_.encrypt(updates(), 2)
    sums, kept = [], SpRecord()
    for number, uploads in ((1, first), (2, {who: second[who] for who in NAMES if who != VICTIM})):
        again = round_.open(number, round_.fresh_sp())
        again.sp.record = SpRecord(task=kept.task)
        again.collect(uploads)
        sums.append(round_.phone(READER).sum_in(again.average(), number)[0])
        kept = again.sp.record
        round_.csp.records = MemoryRecords()
    return sums[0] - sums[1]


def _taken_back(round_: DeviatingRound, server: str) -> Floats:
    """Each round the last sum is taken off and the total is raised as far as phones accept it."""
    honest, last = {0: np.zeros(SIZE)}, 3
    room = (len(PEOPLE) - 1) * (_MOST - max(PEOPLE.values()))
    offer, opens = average.offer_sum, average.open_sum

    def less(shape: Any, place: Any, own: ShareSum) -> ShareSum:  # noqa: ANN401
        off = shape.ring.of_signed(honest[place.number - 1].astype(np.int64))
        return ShareSum(shape.ring.encode(shape.ring.eights(own.sums) - off), (own.total + room) % (1 << 128))

    def offered(shape: Any, place: Any, members: Any, own: ShareSum, part: Any) -> Any:  # noqa: ANN401
        return offer(shape, place, members, less(shape, place, own), part)

    def opened(shape: Any, place: Any, members: Any, own: ShareSum, *rest: Any) -> Any:  # noqa: ANN401
        return opens(shape, place, members, less(shape, place, own), *rest)

    owner, name, value = (sp_module, "offer_sum", offered) if server == "SP" else (csp_module, "open_sum", opened)
    with switched(owner, name, value):
        for number in range(1, last + 1):
            honest[number] = _play(round_, number, VICTIM if number == last else "") + honest[number - 1]
    return honest[last - 1] - honest[last]
