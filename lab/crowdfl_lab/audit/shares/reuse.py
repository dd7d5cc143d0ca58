"""What must serve once: a manifest, a base, the numbers that KGC deals, the seed of an upload.

**CSP's order**, against SP with a reader: one manifest a round, of enough people, and one sum for each base. Each rule is
broken the way a platform would: a manifest of one, a name three times, or in two cohorts, a second manifest without the victim,
and the same model once more in the next round. Where CSP opens a second sum, the difference of the two is the victim's update.

**What KGC deals** covers lanes once. If it served twice, or were opened, or were still known to KGC, lanes would show uploads:
a lane is a sum of entries with known signs. Of a model with fewer weights than there are lanes, all lanes of an upload
together are a system of equations with one solution: the upload. Of a larger model they are as many sums of it as there are
lanes. So no server computes while a server that does not acknowledge its files lets KGC keep what it dealt.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.shares.ring import Words
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import DealtMaterialDamaged, NotReady, SettingsError
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import SpProtocol
from crowdfl.protocols.records import MemoryRecords
from crowdfl.protocols.shares import profile as participant
from crowdfl.protocols.shares.dealing import rounds as dealing
from crowdfl.protocols.shares.dealing.keys import seeds_of
from crowdfl.protocols.shares.dealing.rounds import CSP_ROLE, SP_ROLE, low_words
from crowdfl.protocols.shares.round import csp as csp_module
from crowdfl.protocols.shares.round import manifest as manifest_module
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.csp_records import KeptTask
from crowdfl.protocols.shares.round.manifest import RoundManifest, RoundTally, StepRequest
from crowdfl.protocols.shares.round.steps import SALT_BYTES
from crowdfl.protocols.shares.round.upload import UploadBody, upload_from_seed
from crowdfl.protocols.shares.shape import Quorum, SharesShape
from crowdfl.roles.csp import Csp
from crowdfl.roles.kgc import Kgc
from crowdfl.simulation.federation import LocalFederation
from crowdfl.simulation.sides import BesideRecords
from crowdfl_lab.audit.finding import ENTRY, SHARES, Attack, Finding, Floats, Measure, difference, found_in, rms
from crowdfl_lab.audit.shares.deviating_round import (
    LANES,
    NAMES,
    PEOPLE,
    READER,
    VICTIM,
    DeviatingRound,
    attempt,
    switched,
    updates,
    weakened,
)

_UNCOVERED = "p3"  # whose lanes are looked at
_SLOT = NAMES.index(_UNCOVERED)
_TWICE = Attack("dealt twice", "new", "two uploads, by CSP, if dealt numbers served two rounds", ("CSP",), ENTRY)
_LANES_OFF = Measure(rms, "root mean square error of a lane; blind: zeros")
_CLOSED = Attack("masks of a block", "new", "lanes of a block that is left out, by CSP", ("CSP",), _LANES_OFF)
_KGC_TITLE = "an upload of fewer weights than lanes, by CSP with a KGC that kept what it dealt"
_KGC = Attack("dealer", "new", _KGC_TITLE, ("KGC", "CSP"), ENTRY, conceded=True)
_KEPT = Measure(difference, "whether a round is computed while KGC has the seeds of both servers; blind: no")
_SEED_TITLE = "the difference of two uploads, by SP, if a seed served both"
_SEED = Attack("reused seed", "7", _SEED_TITLE, ("SP",), ENTRY)


def attack_order() -> Iterator[Finding]:
    """Each way to an upload with the rule of CSP's that stands against it switched off, and as built."""

    def nothing(*_: object) -> None:
        """A rule that refuses nothing."""

    manifest = (csp_module, "check_manifest", nothing), (Quorum, "why_void", nothing)
    base = ((KeptTask, "require_unspent", nothing),)
    forgets, cohorts = ((BesideRecords, "answer", _forgetful),), ((RoundTally, "require_new", nothing),)
    for name, title, off, go, switches in (
        ("manifest of one", "a manifest of one", "no least number", _alone, manifest),
        ("name twice", "a sybil that is named twice", "names not compared", _twice_named, manifest),
        ("two cohorts", "a sybil that is in two cohorts", "cohorts not compared", _in_two_cohorts, cohorts),
        ("two manifests", "two manifests of a round", "a CSP that forgets", _second_manifest, forgets),
        ("same model again", "the same model once more", "any base", _same_base, base),
    ):
        attack = Attack(name, "new", f"an upload, by SP with a reader: {title}", ("SP", "participant"), ENTRY)
        for subject in (f"shares, {off}", SHARES):
            together = 3 if switches is cohorts else len(PEOPLE)
            yield attempt(attack, subject, DeviatingRound(check="none", lanes=0, cohort=together), go, *switches)


def _forgetful(csp: BesideRecords, request: bytes) -> bytes:
    """Of a CSP that loses what it has written before each manifest."""
    if StepRequest.from_bytes(request, Limits.plain(1 << 20)).step == 1:
        csp.records = MemoryRecords()
    return csp.records.answer(csp.side, request)


def attack_standing_model() -> Iterator[Finding]:
    """A server step that rounds to nothing: the base is new, the model is not, and one person misses the second round."""
    title = "an upload, by the requester, whose server step moves nothing"
    attack = Attack("standing model", "new", title, ("requester",), ENTRY)
    for subject in ("shares, any server step", SHARES):
        guess, note = None, "two sums of updates to one model"
        truth = DeviatingRound().integers(updates()[VICTIM])
        with weakened(subject, (SharesShape, "require_moving", lambda _: None)):
            try:
                guess = _standing(DeviatingRound(server_step="fedavgm", server_rate=1e-9, server_momentum=0.0))
            except SettingsError as refusal:
                note = f"phones refuse the task: {type(refusal).__name__}"
        within = float(sum(PEOPLE.values()))  # averages are rounded
        yield attack.score(subject, guess, np.zeros(len(truth)), truth, found_in(guess, truth, within=within), note)


def _standing(round_: DeviatingRound) -> Floats:
    whole = round_.play_all(1, updates()).average
    others = {who: update for who, update in updates().items() if who != VICTIM}
    rest = round_.play_all(2, others).average
    sums = [read.weights * round_.shape.widths.unit * (read.total or 0) for read in (whole, rest)]
    return np.asarray(sums[0] - sums[1], dtype=np.float64)


def _sum(round_: DeviatingRound, number: int, sp: SpProtocol, uploads: Mapping[str, bytes]) -> Floats:
    """What a reader takes out of a round of these uploads; neither SP nor its reader has scruples."""
    sp.check = lambda: None  # type: ignore[method-assign]
    again = round_.open(number, sp)
    again.collect(uploads)
    return round_.phone(READER).sum_in(again.average(), number)[0]


def _signed(round_: DeviatingRound, words: Words) -> Floats:
    return round_.shape.ring.signed(round_.shape.ring.reduced(words)).astype(np.float64)


def _alone(round_: DeviatingRound) -> Floats:
    uploads = round_.encrypt(updates())
    return _sum(round_, 1, round_.sp, {VICTIM: uploads[VICTIM]})


def _twice_named(round_: DeviatingRound) -> Floats:
    """The victim, and a sybil that stands in the manifest twice, whose update is known."""
    uploads = round_.encrypt(updates())
    with switched(sp_module, "manifest_of", lambda *parts: _repeated(manifest_module.manifest_of(*parts))):
        both = _sum(round_, 1, round_.sp, {who: uploads[who] for who in (READER, VICTIM)})
    return both - round_.integers(updates()[READER])


def _repeated(manifest: RoundManifest) -> RoundManifest:
    doubled: dict[str, Any] = {
        name: (values[0], *values)
        for name in ("names", "digests", "sealed", "signatures")
        if (values := getattr(manifest, name))
    }
    return replace(manifest, **doubled)


def _in_two_cohorts(round_: DeviatingRound) -> Floats:
    """The victim, and a sybil that makes up the numbers in two cohorts; SP's own tally has no scruples either."""
    uploads = round_.encrypt(updates())
    body = UploadBody.from_bytes(uploads[READER], round_.shape.limits())

    def cohorts(*_: object) -> list[list[str]]:
        assert round_.sp._sums is not None  # noqa: S101 -- nothing has used it up yet
        round_.sp._sums.add(body.shares, int.from_bytes(body.samples, "little"))
        return [[READER, VICTIM], [READER]]

    with switched(sp_module, "cohorts_of", cohorts), switched(sp_module, "RoundTally", _AnyTally):
        both = _sum(round_, 1, round_.sp, {who: uploads[who] for who in (READER, VICTIM)})
    return both - 2 * round_.integers(updates()[READER])


class _AnyTally(RoundTally):
    def require_new(self, names: Sequence[str], cohorts: int) -> None:
        """Anyone, as often as SP likes."""


def _second_manifest(round_: DeviatingRound) -> Floats:
    """Everyone; then, in the same round, everyone but the victim."""
    uploads = round_.encrypt(updates())
    return _sum(round_, 1, round_.sp, uploads) - _without_victim(round_, 1, uploads)


def _same_base(round_: DeviatingRound) -> Floats:
    """Everyone; then SP says that nothing came of it, and everyone but the victim sends the same again."""
    whole = _sum(round_, 1, round_.sp, round_.encrypt(updates()))
    return whole - _without_victim(round_, 2, round_.encrypt(updates(), 2))


def _without_victim(round_: DeviatingRound, number: int, uploads: Mapping[str, bytes]) -> Floats:
    """By another SP, without the memory that keeps an honest one from doing this."""
    others = {who: upload for who, upload in uploads.items() if who != VICTIM}
    return _sum(round_, number, round_.fresh_sp(), others)


def attack_dealt_twice() -> list[Finding]:
    """The index of the round left out of what streams are bound to; and as built."""
    built = vars(dealing)["_context"]

    def same(label: str, shape: SharesShape, role: str, _number: int) -> bytes:
        return bytes(built(label, shape, role, 1))

    with switched(dealing, "_context", same):
        weakened = _subtracted("shares, dealt for all rounds")
    return [weakened, _subtracted(SHARES)]


def _subtracted(subject: str) -> Finding:
    """c of two rounds, subtracted: the masks would cancel, and both sketches are public."""
    round_ = DeviatingRound()
    trained = (updates(1), updates(2))
    sketches = list[Floats]()
    shown = list[Words]()
    for number, update in enumerate(trained, start=1):
        round_.play_all(number, update)
        sketches.append(_matrix(round_, round_.sketch))
        shown.append(_lanes_shown(round_))
    matrix = np.concatenate([-sketches[0], sketches[1]], axis=1)
    truth = round_.integers(trained[0][_UNCOVERED])
    guess = _solved(matrix, _signed(round_, shown[1] - shown[0]))[: len(truth)]
    recovered = f"{found_in(guess, truth)}, and as many of the next round's"
    return _TWICE.score(subject, guess, np.zeros(len(truth)), truth, recovered, _old_file(round_))


def _old_file(round_: DeviatingRound) -> str:
    """What CSP says to the file of another round."""
    _, seed = seeds_of(round_.source)
    old = b"".join(dealing.dealt_file(round_.shape, round_.source, CSP_ROLE, 1))
    try:
        dealing.received(round_.shape, seed, CSP_ROLE, 2, old)
    except DealtMaterialDamaged as refusal:
        return f"the file of another round: {type(refusal).__name__}"
    return "the file of another round is taken"


def attack_dealer() -> Iterator[Finding]:
    """The first block, as if it had to be left out: with its masks opened, and with CSP's own shares of them alone.

    Then all lanes, with what KGC dealt. That is conceded: KGC is trusted while it deals, and destroys what both servers have.
    """
    round_, trained = DeviatingRound(), updates()
    round_.play_all(1, trained)
    (start, end) = round_.shape.widths.blocks[0]
    truth = round_.integers(trained[_UNCOVERED])
    matrix, both = _matrix(round_, round_.sketch), (SP_ROLE, CSP_ROLE)
    lanes = (matrix @ truth)[start:end]
    for subject, roles in (("shares, masks opened", both), (SHARES, (CSP_ROLE,))):
        guess = _unmasked(round_, roles)[start:end]
        note = "c is shown to both servers; the masks of such a block are combined with nothing"
        yield _CLOSED.score(subject, guess, np.zeros(len(lanes)), lanes, found_in(guess, lanes, "lanes"), note)
    guess = _solved(matrix, _unmasked(round_, both))
    note = f"{round_.shape.widths.lanes} lanes of {len(truth)} weights; of a larger model, so many sums of it"
    yield _KGC.score(SHARES, guess, np.zeros(len(truth)), truth, found_in(guess, truth), note)


def _lanes_shown(round_: DeviatingRound) -> Words:
    """c of the victim in the last round, from both servers' messages."""
    ring, said = round_.shape.ring, round_.said(LANES)
    size = round_.shape.widths.lanes * ring.bytes
    first, second = (ring.decode(message[_SLOT * size : (_SLOT + 1) * size]) for message in (said.sp, said.csp))
    return ring.reduced(first + second)


def _unmasked(round_: DeviatingRound, roles: tuple[str, ...]) -> Floats:
    """c less its bound and less these servers' shares of the masks."""
    shape, source = round_.shape, round_.source
    seeds = dict(zip((SP_ROLE, CSP_ROLE), seeds_of(source), strict=True))
    left = _lanes_shown(round_) - np.uint64(shape.widths.lane_bound)
    for role in roles:
        file = b"".join(dealing.dealt_file(shape, source, role, 1))
        dealt = dealing.received(shape, seeds[role], role, 1, file)
        left = left - low_words(dealt.lanes.lanes[[_SLOT]], shape.widths.k)[0]
    return _signed(round_, left)


def _matrix(round_: DeviatingRound, sketch: Sketch) -> Floats:
    """[lanes, weights]: what the sketch multiplies an update by."""
    return _signed(round_, sketch.lanes(np.eye(round_.shape.spec.parameters, dtype=np.uint64))).T


def _solved(matrix: Floats, lanes: Floats) -> Floats:
    return cast(Floats, np.rint(np.linalg.lstsq(matrix, lanes, rcond=None)[0]))


def attack_kept_source() -> Iterator[Finding]:
    """SP says to KGC that it has its files never, and to itself that KGC has nothing left."""
    title = "the seeds of both servers, on KGC's disk after a round, by SP that never acknowledges its files"
    attack = Attack("kept source", "new", title, ("SP", "KGC"), _KEPT)
    acknowledge = Kgc.acknowledge

    def silent(kgc: Kgc, task: str, role: str) -> bool:
        return role == "sp" or acknowledge(kgc, task, role)

    def fetched(csp: Csp, task: str) -> bool:
        csp.dealt.fetch(csp.store.task(task).opened, csp.kgc)
        return True

    for subject in ("shares, a CSP that does not ask KGC", SHARES):
        unasked = (Csp, "_become_sole_holder", fetched)
        with switched(Kgc, "acknowledge", silent), weakened(subject, unasked):
            kept, note = _with_silent_sp()
        yield attack.score(subject, float(kept), 0.0, 1.0, "the source" if kept else "nothing", note)


def _with_silent_sp() -> tuple[bool, str]:
    """Whether KGC has the source after a round, and what became of that."""
    settings: dict[str, Any] = {"min_participants": 3, "max_participants": 4, "max_samples": 20, "max_norm": 2.0}
    federation = LocalFederation(profile="shares", lanes=256, rounds=1, **settings)
    try:
        federation.round({who: Update([np.full(4, 0.1)], 5) for who in ("a", "b", "c", "d")})
    except NotReady as refusal:
        return False, f"no step before that: {type(refusal).__name__}"
    return federation.host.disk.blobs("kgc/keys").has(f"{federation.task}.source"), "the round is computed"


def attack_seed() -> list[Finding]:
    """A phone that sends twice: with one seed for both bodies, and as built."""

    def from_one_seed(*parts: Any) -> UploadBody:  # noqa: ANN401 -- of `make_upload`
        return upload_from_seed(*parts, bytes(SEED_BYTES), bytes(SALT_BYTES))  # type: ignore[call-arg, unused-ignore]

    with switched(participant, "make_upload", from_one_seed):
        weakened = _sent_twice("shares, a seed for two bodies")
    return [weakened, _sent_twice(SHARES)]


def _sent_twice(subject: str) -> Finding:
    round_ = DeviatingRound.paying()
    trained = [updates(seed)[VICTIM] for seed in (1, 2)]
    bodies = [round_.encrypt({VICTIM: update})[VICTIM] for update in trained]
    first, second = (
        round_.shape.ring.decode(UploadBody.from_bytes(body, Limits.plain(1 << 20)).shares) for body in bodies
    )
    truth = round_.integers(trained[1]) - round_.integers(trained[0])
    guess = _signed(round_, second - first)
    note = "SP's shares of both, subtracted"
    return _SEED.score(subject, guess, np.zeros(len(truth)), truth, found_in(guess, truth), note)
