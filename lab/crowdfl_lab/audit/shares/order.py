"""SP with a reader against CSP's order: one manifest a round, of enough people, and one sum for each model.

Each rule is broken the way a platform would: a manifest of one, a name three times, a second manifest without the victim, and
the same model once more in the next round. Where CSP opens a second sum, the difference of the two is the victim's update.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from crowdfl.errors import CrowdFLError
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.profile import InProcessMemory
from crowdfl.protocols.shares.round import csp as csp_module
from crowdfl.protocols.shares.round import manifest as manifest_module
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.average import PARTICIPANTS, SharesPublication, mask_of
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.csp_state import CspBooks
from crowdfl.protocols.shares.round.manifest import RoundManifest, StepRequest
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Floats, rms
from crowdfl_lab.audit.shares.deviating_round import (
    integers,
    phone,
    server_csp,
    server_sp,
    shape_of,
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
