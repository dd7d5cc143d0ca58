"""A model that is held still: two rounds start from it, one person misses the second, and the two sums are subtracted.

Two servers open a sum together, and neither may choose its part after it knows the sum. SP with a reader publishes another sum
than the one that was opened; CSP with a reader takes this round's own sum back. Both are tried as built, and with the mechanism
that stands against it switched off. What is left is conceded: an offset that is fixed beforehand, minus the last sum, which a
reader told; it brings nearly the same model about again.

A CSP whose memory was set back would open a second sum for a base. SP sends one sum for a base, ever.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

import numpy as np

from crowdfl.errors import CrowdFLError
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.profile import InProcessMemory
from crowdfl.protocols.shares.chain import sha256
from crowdfl.protocols.shares.round import average
from crowdfl.protocols.shares.round import csp as csp_module
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.average import SharesPublication, ShareSum, SumOffer
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl_lab.audit.finding import ENTRY, SHARES, Attack, Finding, Floats, found_in, rms
from crowdfl_lab.audit.shares.deviating_round import NAMES, PEOPLE, SIZE, DeviatingRound, switched, updates
from crowdfl_lab.audit.shares.transcript import known_part

_VICTIM, _READER, _MOST = "p1", "p0", 1000
_SP, _CSP = ("SP", "participant"), ("CSP", "participant")
_UPLOAD = "an upload, by {}: {}"
_PUBLISHED = Attack("published change", "new", _UPLOAD.format("SP with a reader", "it publishes no change"), _SP, ENTRY)
_CANCELLED = Attack("cancelled sum", "new", _UPLOAD.format("CSP with a reader", "it takes the sum back"), _CSP, ENTRY)
_SET_BACK_TITLE = _UPLOAD.format("a reader", "CSP was set back, and the round is run again")
_SET_BACK = Attack("CSP set back", "new", _SET_BACK_TITLE, ("participant",), ENTRY)


def attack_freezing() -> Iterator[Finding]:
    """Each weakened, then as built."""
    yield _try(_PUBLISHED, "shares, any sum is read", _published, _any_sum)
    yield _try(_PUBLISHED, SHARES, _published, _as_built)
    yield _try(_CANCELLED, "shares, CSP knows SP's mask", _cancelled, _known_mask)
    yield _try(_CANCELLED, SHARES, _cancelled, _as_built)
    yield _try(_SET_BACK, "shares, an SP that forgets", _set_back, _forgetful)
    yield _try(_SET_BACK, SHARES, _set_back, _as_built)
    for server, parties in (("SP", _SP), ("CSP", _CSP)):
        title = f"nearly an upload, by {server} with a reader: an offset fixed beforehand"
        attack = Attack("last sum taken back", "new", title, parties, ENTRY, conceded=True)
        yield _try(attack, SHARES, _taken_back(server), _as_built, close=True)


Go = Callable[["_Game"], Floats]
Weaken = Callable[[ExitStack], None]


class _Game:
    """Phones that want weights of their own and train until they have them: an update follows from the model alone."""

    def __init__(self, switches: ExitStack) -> None:
        self.switches = switches
        self.round = DeviatingRound(check="none", lanes=0, max_samples=_MOST, decimals=3, clip=2.0)
        self.wanted = {who: update[0] for who, update in updates().items()}
        self.reader = self.round.phone(_READER)

    def truth(self) -> Floats:
        """Of the model that the last round but one started from, which hardly moves."""
        return self.round.integers((self.wanted[_VICTIM], PEOPLE[_VICTIM]))

    def play(self, number: int, without: str = "") -> tuple[Floats, int]:
        """What the reader takes out of the publication, before it or anyone else checks it."""
        trained = {who: (self.wanted[who], PEOPLE[who]) for who in NAMES if who != without}
        played = self.round.play_all(number, trained)
        return self.reader.sum_in(played.publication, number)


def _as_built(_switches: ExitStack) -> None:
    """Nothing is weakened."""


def _try(attack: Attack[Floats], subject: str, go: Go, weaken: Weaken, *, close: bool = False) -> Finding:
    guess, note = None, "it is done"
    with ExitStack() as switches:
        weaken(switches)
        game = _Game(switches)
        truth = game.truth()
        try:
            guess = go(game)
        except CrowdFLError as refusal:
            note = f"refused: {type(refusal).__name__}"
    if close and guess is not None:
        note = f"off by {rms(guess, truth) / rms(np.zeros(len(truth)), truth):.2g} of it"
    return attack.score(subject, guess, np.zeros(len(truth)), truth, found_in(guess, truth), note)


def _any_sum(switches: ExitStack) -> None:
    """Readers that believe SP."""
    real = average.AverageReader.read

    def read(self: Any, publication: bytes, number: int, chain: Any) -> Any:  # noqa: ANN401 -- of `read`
        message = SharesPublication.from_bytes(publication, self._shape.limits())
        record = average.parse_record(message.record, self._shape, self._csp_key)
        with switched(average, "_hash_of", lambda _: record.opened):
            return real(self, publication, number, chain)

    switches.enter_context(switched(average.AverageReader, "read", read))


def _published(game: _Game) -> Floats:
    """The sum is known before it is published, and taken out of it."""
    publish, seen = average.publish_sum, dict[int, Floats]()

    def unchanged(shape: Any, place: Any, *rest: Any) -> SharesPublication:  # noqa: ANN401 -- of `publish_sum`
        message = publish(shape, place, *rest)
        seen[place.number] = sums = game.reader.sum_in(message.to_bytes(), place.number)[0]
        ring = shape.ring
        return replace(message, sums=ring.encode(ring.eights(message.sums) - ring.of_signed(sums.astype(np.int64))))

    game.switches.enter_context(switched(sp_module, "publish_sum", unchanged))
    game.play(1)
    game.play(2, without=_VICTIM)
    return seen[1] - seen[2]


def _known_mask(switches: ExitStack) -> None:
    switches.enter_context(switched(SharesSp, "_part", known_part))


def _cancelled(game: _Game) -> Floats:
    """CSP takes off what it makes of X: with the seed of SP's mask if it has it, else with its own in its place."""
    opens, seen = average.open_sum, dict[int, Floats]()

    def opened(shape: Any, place: Any, members: Any, own: ShareSum, offer: SumOffer, part: Any, key: Any) -> Any:  # noqa: ANN401
        ring, t = shape.ring, bytes(32) if sha256(bytes(32)) == offer.mask else part.t
        mask = ring.decode(average.mask_of(t, place, shape)[0])
        sums = ring.signed(ring.reduced(ring.decode(offer.sums) + ring.decode(own.sums) - mask))
        seen[place.number] = sums.astype(np.float64)
        less = ring.encode(ring.eights(own.sums) - ring.of_signed(sums))
        return opens(shape, place, members, ShareSum(less, own.total), offer, part, key)

    game.switches.enter_context(switched(csp_module, "open_sum", opened))
    game.play(1)
    game.play(2, without=_VICTIM)
    return seen[1] - seen[2]


def _forgetful(switches: ExitStack) -> None:
    """An SP that does not look which sums it has sent."""
    switches.enter_context(switched(SharesSp, "_require_unspent", lambda *_: None))


def _set_back(game: _Game) -> Floats:
    """After the round CSP knows nothing of it, and SP runs another one to the same model, without one person."""
    round_, kept = game.round, dict[str, bytes]()
    trained = {who: (game.wanted[who], PEOPLE[who]) for who in NAMES}
    first, second = round_.encrypt(trained, 1), round_.encrypt(trained, 2)
    sums = []
    for number, uploads in ((1, first), (2, {who: second[who] for who in NAMES if who != _VICTIM})):
        sp = cast(SharesSp, round_.dealer.sp())
        sp.open_round(number)
        sp.keep_seeds({name: value for name, value in kept.items() if name.startswith("base ")}, kept.__setitem__)
        sp.add_all(uploads)
        run_exchange(sp.publish(final=False), ask_directly(round_.csp.answer))
        sums.append(game.reader.sum_in(sp.publication(), number)[0])
        round_.csp.remember(InProcessMemory())
    return sums[0] - sums[1]


def _taken_back(server: str) -> Go:
    """Each round the last sum is taken off and the total is raised as far as phones accept it."""

    def go(game: _Game) -> Floats:
        honest, last = {0: np.zeros(SIZE)}, 3
        room = (len(PEOPLE) - 1) * (_MOST - max(PEOPLE.values()))
        offer, opens = average.offer_sum, average.open_sum

        def less(shape: Any, place: Any, own: ShareSum) -> ShareSum:  # noqa: ANN401
            off = shape.ring.of_signed(honest[place.number - 1].astype(np.int64))
            return ShareSum(shape.ring.encode(shape.ring.eights(own.sums) - off), (own.total + room) % (1 << 128))

        def offered(shape: Any, place: Any, own: ShareSum, part: Any) -> Any:  # noqa: ANN401
            return offer(shape, place, less(shape, place, own), part)

        def opened(shape: Any, place: Any, members: Any, own: ShareSum, *rest: Any) -> Any:  # noqa: ANN401
            return opens(shape, place, members, less(shape, place, own), *rest)

        owner, name, value = (sp_module, "offer_sum", offered) if server == "SP" else (csp_module, "open_sum", opened)
        game.switches.enter_context(switched(owner, name, value))
        for number in range(1, last + 1):
            sums, _ = game.play(number, without=_VICTIM if number == last else "")
            honest[number] = sums + honest[number - 1]
        return honest[last - 1] - honest[last]

    return go
