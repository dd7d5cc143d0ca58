"""From an opening on, every failure is one and the same: RoundEnded, after the same work, and the round is void."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from crowdfl.crypto.compute import Backend
from crowdfl.crypto.paillier import kernels
from crowdfl.errors import BackendUnavailable, Cancelled, OutOfTurn, RoundEnded
from crowdfl.protocols.common.sdiv import DivideRequest, GuardRequest
from crowdfl.protocols.common.smul import PolynomialsRequest
from crowdfl.protocols.hardened.prirwd import LanesRequest, NonceRequest, RewardRequest
from tests.protocols.driving import ONE
from tests.protocols.recorded import Recorded, record, short_messages

ENDED = "CSP has ended round 1: what was opened is not what honest parties send. The round is void"


@pytest.fixture(scope="module")
def round_() -> Iterator[Recorded]:
    """A recorded round with the total hidden."""
    with short_messages():
        yield record("hidden")


def rows_of(round_, first):
    """Plaintexts of a message of lanes, of which the first is this one."""
    return [first, *[5] * (len(round_.message(round_.place_of(LanesRequest)).masked) - 1)]


def bad_lanes(round_):
    """What honest lanes never are, by name: plaintexts of the first row."""
    budget, n = round_.sides.sp._shape.budget, int(round_.sides.dealer.task.public.n)
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
DIVISORS = {"zero": 0, "below zero": -1, "wrapped": -(10**30)}


def failing_requests(round_):
    """Requests that fail after the opening, by name, with their place."""
    lanes, divide = round_.place_of(LanesRequest), round_.place_of(DivideRequest, "weights")
    made = {
        f"lanes {name}": (lanes, round_.with_plain(lanes, rows_of(round_, x))) for name, x in bad_lanes(round_).items()
    }
    for name, y in DIVISORS.items():
        made[f"divisor {name}"] = (divide, round_.with_plain(divide, [10**40, y, 10**40], "y"))
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
NAMES = [f"lanes {name}" for name in LANES] + [f"divisor {name}" for name in DIVISORS]
NAMES += [f"shares of {cls.__name__} {purpose} {part}" for cls, purpose, part in SHARES]


@pytest.fixture(scope="module")
def failing(round_):
    """Made once."""
    made = failing_requests(round_)
    assert set(made) == set(NAMES)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_after_an_opening_ends_the_round(round_, failing, name):
    """The same text whatever it was; the round stays ended, for this request, the honest one and all others."""
    place, request = failing[name]
    csp = round_.csp_at(place)
    with pytest.raises(RoundEnded) as refusal:
        csp.answer(request)
    assert str(refusal.value) == ENDED
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__
    for again in (request, *round_.requests):
        with pytest.raises(RoundEnded) as refusal:
            csp.answer(again)
        assert str(refusal.value) == ENDED


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_failed_request_is_kept(round_, failing, name):
    """Besides that it was asked, and that the round has ended."""
    place, request = failing[name]
    csp = round_.csp_at(place)
    with pytest.raises(RoundEnded):
        csp.answer(request)
    fresh = set(csp.memory) - set(round_.before[place])
    assert {word for each in fresh for word in ("asked", "ended") if word in each} == {"asked", "ended"}
    assert len(fresh) == 2


@pytest.mark.parametrize("name", NAMES)
def test_other_rounds_go_on(round_, failing, name):
    """Round 2 takes all the steps of a round, of which SP has other requests."""
    place, request = failing[name]
    csp = round_.csp_at(place)
    with pytest.raises(RoundEnded):
        csp.answer(request)
    for message in (round_.message(i) for i in range(4)):
        assert csp.answer(replace(message, round_number=2).to_bytes())


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("shares")])
def test_a_failure_takes_the_same_work_as_success(round_, failing, name):
    """As many operations of every kind: how long it took does not say what was opened."""
    place, request = failing[name]
    costs = round_.sides.csp.party.costs
    csp, before = round_.csp_at(place), costs.counts.copy()
    csp.answer(round_.requests[place])
    honest, before = costs.counts - before, costs.counts.copy()
    with pytest.raises(RoundEnded):
        round_.csp_at(place).answer(request)
    assert costs.counts - before == honest
    assert honest["", "Enc"] + honest["SDIV", "Enc"] > 0


def test_lanes_at_the_ends_of_their_range_are_good(round_):
    """So that the tests above can fail: 0 and the last number below the bound are honest."""
    place, top = round_.place_of(LanesRequest), 1 << round_.sides.sp._shape.budget.lane_mask_bits
    for lane in (0, top - 1):
        assert round_.csp_at(place).answer(round_.with_plain(place, rows_of(round_, lane)))


def test_divisors_at_the_ends_of_their_range_are_good(round_):
    """1, and the last below N/2."""
    place, n = round_.place_of(DivideRequest, "weights"), int(round_.sides.dealer.task.public.n)
    for y in (1, n // 2):
        assert round_.csp_at(place).answer(round_.with_plain(place, [10**40, y, 10**40], "y"))


def test_a_void_round_keeps_its_rewards_from_being_claimed(round_):
    """Though they were opened before: a failure at the average takes them back."""
    place = round_.place_of(DivideRequest, "total")
    csp = round_.csp_at(place)
    assert csp.csp.remember(Keeper(csp.memory)) is None
    assert csp.csp.reward(1, "p0") is not None
    with pytest.raises(RoundEnded):
        csp.answer(round_.with_plain(place, [0], "y"))
    csp.csp.remember(Keeper(csp.memory))
    assert csp.csp.reward(1, "p0") is None


@dataclass
class Keeper:
    """A memory to look into."""

    memory: dict[str, bytes]

    def get(self, name: str) -> bytes | None:
        """What is there."""
        return self.memory.get(name)


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
        """Of the backend."""
        return self.inner.name

    def map(self, kernel, *blocks, **options):
        """Work, or fail."""
        if self.on and isinstance(kernel, self.kernel):
            self.failed.append(type(kernel).__name__)
            raise self.error
        return self.inner.map(kernel, *blocks, **options)


ENVIRONMENT = [BackendUnavailable("the card is gone"), OSError("no space left"), MemoryError(), Cancelled("stopped")]


@pytest.mark.parametrize("error", ENVIRONMENT, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kernel", [kernels.PartialDecrypt, kernels.Combine, kernels.Encrypt], ids=lambda k: k.__name__)
def test_an_error_of_the_environment_does_not_end_a_round(round_, error, kernel):
    """The same request is answered once the machine works again; another one is not."""
    backend = Failing(ONE, kernel, error)
    dealer = round_.sides.dealer
    tools, dealer.tools = dealer.tools, replace(dealer.tools, backend=backend)
    try:
        side = dealer.csp()
    finally:
        dealer.tools = tools
    for place in range(len(round_.requests)):
        csp = replace(round_.csp_at(place), csp=side)
        backend.on, seen = True, len(backend.failed)
        try:
            csp.answer(round_.requests[place])
        except type(error):
            assert len(backend.failed) == seen + 1
        else:
            assert len(backend.failed) == seen  # a step without this kind of work
            continue
        finally:
            backend.on = False
        if not isinstance(round_.message(place), NonceRequest) and round_.altered(place) != round_.requests[place]:
            with pytest.raises(OutOfTurn):
                csp.answer(round_.altered(place))
        assert csp.answer(round_.requests[place])
    assert len(backend.failed) > 10


@pytest.mark.parametrize("error", [ZeroDivisionError(), ValueError("7 is odd"), RuntimeError("12345")], ids=repr)
def test_an_error_that_nobody_foresaw_ends_the_round_without_its_text(round_, error, monkeypatch):
    """It may depend on what was opened, and so may its type."""
    place = round_.place_of(DivideRequest, "rewards")
    csp = round_.csp_at(place)

    def fail(*_):
        raise error

    monkeypatch.setattr(csp.csp.party, "encrypt", fail)
    with pytest.raises(RoundEnded) as refusal:
        csp.answer(round_.requests[place])
    assert str(refusal.value) == ENDED
