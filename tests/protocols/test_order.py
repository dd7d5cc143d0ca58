"""CSP takes the steps of a round in one order, each once, whatever SP sends: over every request of real rounds.

From an opening on, every failure is one and the same: RoundEnded, after the same work, and the round is void.
"""

from dataclasses import dataclass, field, replace

import pytest

from crowdfl.crypto.compute import Backend
from crowdfl.crypto.paillier import kernels
from crowdfl.errors import (
    BackendUnavailable,
    BadSignature,
    Cancelled,
    LengthMismatch,
    OutOfTurn,
    ProtocolError,
    RoundEnded,
    RoundsExhausted,
    TooFewParticipants,
)
from crowdfl.protocols.common.sdiv import DivideRequest, GuardRequest
from crowdfl.protocols.common.smul import PolynomialsRequest
from crowdfl.protocols.hardened.manifest import ManifestRequest
from crowdfl.protocols.hardened.opening import REQUESTER, OpenRequest
from crowdfl.protocols.hardened.order import HardenedRound, HardenedStep, end_round
from crowdfl.protocols.hardened.prifedavg import ScaleRequest
from crowdfl.protocols.hardened.prirwd import InnerRequest, LanesRequest, RewardRequest
from crowdfl.protocols.records import Look
from tests.protocols.driving import ONE, Keeping
from tests.protocols.recorded import PAYMENT, record, short_messages

REQUESTS = {"shown": 17, "hidden": 22}  # of a round of three participants
EVERY = [(total, place) for total, count in REQUESTS.items() for place in range(count)]
every_request = pytest.mark.parametrize(("total", "place"), EVERY, ids=[f"{t}-{p}" for t, p in EVERY])
ENDED = "CSP has ended round 1: what was opened is not what honest parties send. The round is void"


@pytest.fixture(scope="module")
def rounds():
    """One recorded round with the total shown, one with it hidden; several messages to a step."""
    with short_messages():
        yield {total: record(total) for total in REQUESTS}


@pytest.fixture
def round_(rounds, total):
    return rounds[total]


def refused(csp, request, error, match=None):
    """CSP refuses, opens nothing and records nothing."""
    records, seen = dict(csp.records.records), len(csp.party.view.entries)
    with pytest.raises(error, match=match):
        csp.answer(request)
    assert csp.records.records == records
    assert len(csp.party.view.entries) == seen


def crash(message):
    """The machine stops before the reply leaves it."""
    raise OSError("power cut")


@pytest.mark.parametrize("total", REQUESTS)
def test_every_kind_of_request_is_looked_at(round_, total):
    """The tests below have not lost their subject: all steps, some of several messages."""
    assert len(round_.requests) == REQUESTS[total]
    steps = [round_.step(place) for place in range(len(round_.requests))]
    assert len(set(steps)) == (13 if total == "shown" else 17)
    several = {step.split()[0] for step in steps if steps.count(step) > 1}
    assert several == {"LanesRequest", "OpenRequest"} | ({"ScaleRequest"} if total == "hidden" else set())


@every_request
def test_a_request_before_its_turn_is_refused(round_, total, place):
    """All is done but for the last message of the step before; and all of another round, each of which goes its own way."""
    steps = [round_.step(i) for i in range(len(round_.requests))]
    opens = steps[place].startswith("OpenRequest")  # the two audiences have no order between them
    previous = [i for i in range(place) if steps[i] != steps[place] and not (opens and steps[i].startswith("OpenR"))]
    other_round = replace(round_.message(place), round_number=2).to_bytes()
    if isinstance(round_.message(place), ManifestRequest):
        assert previous == []
        assert round_.csp_at(-1).answer(round_.manifest(2))
        return
    refused(round_.csp_at(previous[-1]), round_.requests[place], OutOfTurn)
    refused(round_.csp_at(-1), other_round, OutOfTurn)


@every_request
def test_a_step_is_answered_to_one_request_alone(round_, total, place, monkeypatch):
    """The same numbers under fresh masks would open them twice: at once, later, and after a crash before the reply was kept.
    The same bytes are answered again."""
    csp = round_.csp_at(place)
    with monkeypatch.context() as patch:
        patch.setattr(csp.party, "send", crash)
        with pytest.raises(OSError, match="power"):
            csp.answer(round_.requests[place])
    after_crash = Keeping(csp.side, csp.records.copy())
    assert csp.answer(round_.requests[place]) == csp.answer(round_.requests[place])
    for later in (after_crash, round_.csp_at(place + 1), round_.csp_at(-1)):
        refused(later, round_.altered(place), OutOfTurn)


@every_request
def test_another_request_in_the_place_of_the_first_is_as_good(round_, total, place):
    """So that the test above can fail: it is the repetition that is refused. (A sum goes to both audiences alike.)"""
    message = round_.message(place)
    if isinstance(message, OpenRequest) and message.audience == REQUESTER:
        refused(round_.csp_at(place), round_.altered(place), OutOfTurn, "another sum")
    else:
        assert round_.csp_at(place).answer(round_.altered(place))


@every_request
def test_a_round_that_has_ended_or_does_not_exist_is_answered_no_more(round_, total, place):
    """At no step; another round is. The task has three."""
    for number in (0, 4, 2**64):
        request = replace(round_.message(place), round_number=number).to_bytes()
        refused(round_.csp_at(place), request, RoundsExhausted)
    csp = round_.csp_at(place)
    look = Look(csp.records)
    end_round(look, 1)
    csp.records.set(look)
    refused(csp, round_.requests[place], RoundEnded, "CSP has ended round 1")
    assert csp.answer(round_.manifest(2))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"participants": ("p1", "p0", "p2")}, ProtocolError),
        ({"participants": ("p0", "p0", "p1")}, ProtocolError),
        ({"participants": ("p0", "p1", "stranger")}, ProtocolError),
        ({"participants": ("p0", "p1")}, TooFewParticipants),
        ({"participants": ()}, TooFewParticipants),
        ({"participants": ("p0", "p1", "p2", "p3", "p4")}, TooFewParticipants),
        ({"payment": PAYMENT - 1}, ProtocolError),
        ({"payment": PAYMENT + 1}, ProtocolError),
        ({"payment": 0}, ProtocolError),
        ({"digests": (bytes(32),) * 3}, BadSignature),
        ({"signatures": (bytes(64),) * 3}, BadSignature),
        ({"round_number": 2}, BadSignature),
    ],
)
def test_a_manifest_is_of_certified_people_who_have_signed_for_this_round(rounds, changes, error):
    """The names in order, certified, as many as the task allows; the payment that the task promises."""
    round_ = rounds["shown"]
    message = round_.message(0)
    if "participants" in changes:  # of as many entries
        count = len(changes["participants"])
        changes = changes | {name: (getattr(message, name) * 2)[:count] for name in ("digests", "signatures")}
    refused(round_.csp_at(0), replace(message, **changes).to_bytes(), error)


@pytest.mark.parametrize("changes", [{"people": ("p0", "p1", "p2", "p3")}, {"digest": bytes(32)}])
def test_whose_uploads_a_round_has_is_fixed_by_its_manifest(rounds, changes):
    """As many lanes, operands, dividends and envelopes as there were names, and no others."""
    round_ = rounds["shown"]
    refused(round_.csp_at(1), round_.manifest(1, **changes), OutOfTurn, "other contents")


COUNTED = [(LanesRequest, "masked"), (DivideRequest, "x"), (DivideRequest, "y"), (RewardRequest, "masked")]


@pytest.mark.parametrize(("cls", "name"), [*COUNTED, (OpenRequest, "masked"), (ScaleRequest, "masked")])
def test_a_request_of_another_length_is_refused(rounds, cls, name):
    round_ = rounds["hidden"]
    place = round_.place_of(cls)
    message = round_.message(place)
    vector, shares = getattr(message, name), getattr(message, f"{name}_1")
    party = round_.sides.sp.party
    longer = type(vector).concat([vector, vector.part(0, 1)])
    for vector_, shares_ in (
        (vector.part(0, len(vector) - 1), party.partial_decrypt(vector.part(0, len(vector) - 1))),
        (longer, party.partial_decrypt(longer)),
        (longer, shares),
    ):
        request = replace(message, **{name: vector_, f"{name}_1": shares_}).to_bytes()
        refused(round_.csp_at(place), request, LengthMismatch)


WRONG = {
    "commitments": (RewardRequest, None, [(), (bytes(32),) * 2, (bytes(32),) * 4, (bytes(31),) * 3]),
    "start of an opening": (OpenRequest, None, [1, 100, 2**70]),  # would open the same rows in another message
    "start of lanes": (LanesRequest, None, [3, 100, 2**70]),
    "start of a scaling": (ScaleRequest, None, [1, 100, 2**70]),
    "purpose": (DivideRequest, "weights", ["", "distances", "total", "rewards", "nobody knows"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_message_says_what_its_step_has(rounds, name):
    """A commitment to every reward, one of the step's places, and the division whose turn it is."""
    round_, (cls, purpose, values) = rounds["hidden"], WRONG[name]
    place = round_.place_of(cls, purpose)
    for value in values:
        request = replace(round_.message(place), **{name.split()[0]: value}).to_bytes()
        refused(round_.csp_at(place), request, (LengthMismatch, OutOfTurn))


def test_one_factor_scales_every_chunk(rounds):
    """Another factor in a later chunk would scale some weights by what SP likes."""
    round_ = rounds["hidden"]
    place = round_.place_of(ScaleRequest)
    second = round_.message(place + 1)
    assert second.factor == round_.message(place).factor
    other = replace(second, factor=round_.sides.sp.party.rerandomise(second.factor)).to_bytes()
    refused(round_.csp_at(place + 1), other, OutOfTurn, "another factor")
    assert round_.csp_at(place + 1).answer(round_.requests[place + 1])


@pytest.fixture(scope="module")
def hidden(rounds):
    return rounds["hidden"]


def rows_of(round_, first):
    """Plaintexts of a message of lanes, of which the first is this one."""
    return [first, *[5] * (len(round_.message(round_.place_of(LanesRequest)).masked) - 1)]


def bad_lanes(round_):
    """What honest lanes never are, by name: plaintexts of the first row."""
    budget, n = round_.sides.sp._shape.budget, int(round_.sides.task.public.n)
    top = 1 << budget.lane_mask_bits
    return {
        "negative": -1,
        "too large": top,
        "far too large": (1 << (budget.slot_bits - 1)) - 1,
        "negative in a later slot": -(1 << budget.slot_bits),
        "no packing": n // 2,
        "no packing, below zero": -(n // 3),
    }


LANES = ["negative", "too large", "far too large", "negative in a later slot", "no packing", "no packing, below zero"]


def bad_numbers(round_):
    """What honest counts, divisors and quotients never are, by name: their place, and the request."""
    inner, divide = round_.place_of(InnerRequest), round_.place_of(DivideRequest, "weights")
    widths, n = round_.sides.sp._shape.widths(), int(round_.sides.task.public.n)
    w, wrong = widths.weights, {"zero": 0, "below zero": -1, "wrapped": -(10**30), "spoilt": n // 2 - 10**9}
    made = {}
    for name, y in wrong.items() | {("too long", 1 << (w.hi + w.ybits))}:
        made[f"divisor {name}"] = divide, division(round_, y=y)
    for name, count in wrong.items() | {("too long", 1 << (widths.counts.hi + widths.counts.ybits))}:
        made[f"count {name}"] = inner, round_.with_plain(inner, masked=[1, 1, 1, 1, count, 1])
    for name, quotient in (("too small", (1 << (w.alpha - 1)) - 1), ("too large", longest_quotient(w) + 1)):
        made[f"quotient {name}"] = divide, division(round_, quotient=quotient)
    return made


def longest_quotient(w):
    return (1 << w.alpha) + (1 << (w.qbits + w.g + 1)) - 1


def division(round_, y=10**40, quotient=None):
    """Divisions for the weights, of which the second has this divisor and this quotient."""
    place, w = round_.place_of(DivideRequest, "weights"), round_.sides.sp._shape.widths().weights
    usual, public = 1 << (w.alpha - 1), round_.sides.task.public
    x = [10**40 * usual, int(public.signed(y * (quotient or usual) % public.n)), 10**40 * usual]
    return round_.with_plain(place, x=x, y=[10**40, y, 10**40])


BAD = ["zero", "below zero", "wrapped", "spoilt", "too long"]


def failing_requests(round_):
    """Requests that fail after the opening, by name, with their place."""
    lanes, made = round_.place_of(LanesRequest), bad_numbers(round_)
    for name, x in bad_lanes(round_).items():
        made[f"lanes {name}"] = (lanes, round_.with_plain(lanes, masked=rows_of(round_, x)))
    for cls, purpose, part in SHARES:
        place = round_.place_of(cls, purpose)
        message = round_.message(place)
        other = round_.sides.sp.party.encrypt([7] * len(getattr(message, part)))
        wrong = {f"{part}_1": round_.sides.sp.party.partial_decrypt(other)}
        made[f"shares of {cls.__name__} {purpose} {part}"] = (place, replace(message, **wrong).to_bytes())
    return made


SHARES = [
    (LanesRequest, None, "masked"),
    (PolynomialsRequest, "distances", "masked"),
    (PolynomialsRequest, "rewards", "masked"),
    (GuardRequest, "weights", "masked"),
    (DivideRequest, "total", "x"),
    (DivideRequest, "rewards", "y"),
    (RewardRequest, None, "masked"),
]
NAMES = [f"lanes {name}" for name in LANES] + [f"{what} {name}" for what in ("divisor", "count") for name in BAD]
NAMES += ["quotient too small", "quotient too large"]
NAMES += [f"shares of {cls.__name__} {purpose} {part}" for cls, purpose, part in SHARES]


@pytest.fixture(scope="module")
def failing(hidden):
    made = failing_requests(hidden)
    assert set(made) == set(NAMES)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_after_an_opening_ends_the_round(hidden, failing, name):
    """The same text whatever it was, for this request, the honest one and all others. Nothing is kept but that it was asked
    and has ended; other rounds go on."""
    place, request = failing[name]
    csp = hidden.csp_at(place)
    for again in (request, request, *hidden.requests):
        with pytest.raises(RoundEnded) as refusal:
            csp.answer(again)
        assert str(refusal.value) == ENDED
        assert refusal.value.__context__ is None or refusal.value.__suppress_context__
    before, after = hidden.before[place].records, csp.records.records
    changed = {at.kind for at, standing in after.items() if before.get(at) != standing}
    assert changed == {HardenedRound.kind, HardenedStep.kind}
    assert csp.answer(hidden.manifest(2))
    for message in map(hidden.message, range(1, 4)):
        assert csp.answer(replace(message, round_number=2).to_bytes())


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("shares")])
def test_a_failure_takes_the_same_work_as_success(hidden, failing, name):
    """As many operations of every kind: how long it took does not say what was opened."""
    place, request = failing[name]
    costs = hidden.sides.csp.party.costs
    csp, before = hidden.csp_at(place), costs.counts.copy()
    csp.answer(hidden.requests[place])
    honest, before = costs.counts - before, costs.counts.copy()
    with pytest.raises(RoundEnded):
        hidden.csp_at(place).answer(request)
    assert costs.counts - before == honest
    assert honest["", "Enc"] + honest["SDIV", "Enc"] > 0


def test_numbers_at_the_ends_of_their_range_are_good(hidden):
    """So that the tests above can fail: the least and the largest that honest parties may send."""
    lanes, inner, divide = (hidden.place_of(cls) for cls in (LanesRequest, InnerRequest, DivideRequest))
    shape = hidden.sides.sp._shape
    w, counts = shape.widths().weights, shape.widths().counts
    for lane in (0, (1 << shape.budget.lane_mask_bits) - 1):
        assert hidden.csp_at(lanes).answer(hidden.with_plain(lanes, masked=rows_of(hidden, lane)))
    for count in (1, (1 << (counts.hi + counts.ybits)) - 1):
        assert hidden.csp_at(inner).answer(hidden.with_plain(inner, masked=[count] * 6))
    for y in (1, (1 << (w.hi + w.ybits)) - 1):
        assert hidden.csp_at(divide).answer(division(hidden, y=y))
    assert hidden.csp_at(divide).answer(division(hidden, quotient=longest_quotient(w)))


def test_a_void_round_keeps_its_rewards_from_being_claimed(hidden):
    """Though they were opened before: a failure at the average takes them back."""
    place = hidden.place_of(DivideRequest, "total")
    csp = hidden.csp_at(place)
    assert csp.reward(Look(csp.records), 1, "p0") is not None
    with pytest.raises(RoundEnded):
        csp.answer(hidden.with_plain(place, y=[0]))
    assert csp.reward(Look(csp.records), 1, "p0") is None


@dataclass
class Failing:
    """A backend that fails at one kind of work until it is told otherwise."""

    inner: Backend
    kernel: type
    error: BaseException
    on: bool = False
    failed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    def map(self, kernel, *blocks, **options):
        if self.on and isinstance(kernel, self.kernel):
            self.failed.append(type(kernel).__name__)
            raise self.error
        return self.inner.map(kernel, *blocks, **options)


ENVIRONMENT = [BackendUnavailable("the card is gone"), OSError("no space left"), MemoryError(), Cancelled("stopped")]


@pytest.mark.parametrize(
    ("error", "kernel"),
    [
        *((error, kernels.PartialDecrypt) for error in ENVIRONMENT),
        (ENVIRONMENT[0], kernels.Combine),
        (ENVIRONMENT[0], kernels.Encrypt),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_an_error_of_the_environment_does_not_end_a_round(hidden, error, kernel):
    """The same request is answered once the machine works again; another one is not."""
    backend = Failing(ONE, kernel, error)
    side = hidden.sides.fresh_csp(tools=replace(hidden.sides.tools, backend=backend)).side
    for place in range(len(hidden.requests)):
        csp = Keeping(side, hidden.csp_at(place).records)
        backend.on, seen = True, len(backend.failed)
        try:
            csp.answer(hidden.requests[place])
        except type(error):
            assert len(backend.failed) == seen + 1
        else:
            assert len(backend.failed) == seen  # a step without this kind of work
            continue
        finally:
            backend.on = False
        if not isinstance(hidden.message(place), ManifestRequest) and hidden.altered(place) != hidden.requests[place]:
            with pytest.raises(OutOfTurn):
                csp.answer(hidden.altered(place))
        assert csp.answer(hidden.requests[place])
    assert len(backend.failed) > 10


@pytest.mark.parametrize("error", [ZeroDivisionError(), ValueError("7 is odd"), RuntimeError("12345")], ids=repr)
def test_an_error_that_nobody_foresaw_ends_the_round_without_its_text(hidden, error, monkeypatch):
    """It may depend on what was opened, and so may its type."""
    place = hidden.place_of(DivideRequest, "rewards")
    csp = hidden.csp_at(place)

    def fail(*_):
        raise error

    monkeypatch.setattr(csp.party, "encrypt", fail)
    with pytest.raises(RoundEnded) as refusal:
        csp.answer(hidden.requests[place])
    assert str(refusal.value) == ENDED
