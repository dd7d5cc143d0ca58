"""CSP takes the steps of a round in one order, each once, whatever SP sends: over every request of real rounds."""

from dataclasses import replace

import pytest

from crowdfl.errors import LengthMismatch, OutOfTurn, ProtocolError, RoundEnded, RoundsExhausted, TooFewParticipants
from crowdfl.protocols.common.sdiv import DivideRequest
from crowdfl.protocols.hardened.opening import REQUESTER, OpenRequest
from crowdfl.protocols.hardened.prifedavg import ScaleRequest
from crowdfl.protocols.hardened.prirwd import InnerRequest, LanesRequest, NonceRequest, RewardRequest
from crowdfl.protocols.messages import Message
from tests.protocols.driving import Keeping
from tests.protocols.recorded import PAYMENT, record, short_messages

REQUESTS = {"shown": 17, "hidden": 22}  # of a round of three participants
EVERY = [(total, place) for total, count in REQUESTS.items() for place in range(count)]
every_request = pytest.mark.parametrize(("total", "place"), EVERY, ids=[f"{t}-{p}" for t, p in EVERY])


@pytest.fixture(scope="module")
def rounds():
    """One recorded round with the total shown, one with it hidden; several messages to a step."""
    with short_messages():
        yield {total: record(total) for total in REQUESTS}


@pytest.fixture
def round_(rounds, total):
    """The round of a test."""
    return rounds[total]


def refused(csp, request, error, match=None):
    """CSP refuses, opens nothing and remembers nothing."""
    memory, seen = dict(csp.memory), len(csp.csp.party.view.entries)
    with pytest.raises(error, match=match):
        csp.answer(request)
    assert csp.memory == memory
    assert len(csp.csp.party.view.entries) == seen


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
def test_a_request_before_its_predecessor_is_refused(round_, total, place):
    """All that came before is done, but for the last message of the step before."""
    steps = [round_.step(i) for i in range(len(round_.requests))]
    opens = steps[place].startswith("OpenRequest")  # the two audiences have no order between them
    previous = [i for i in range(place) if steps[i] != steps[place] and not (opens and steps[i].startswith("OpenR"))]
    if not previous:
        assert isinstance(round_.message(place), NonceRequest)
        return
    refused(round_.csp_at(previous[-1]), round_.requests[place], OutOfTurn)


@every_request
def test_a_request_out_of_nowhere_is_refused(round_, total, place):
    """Nothing of this round was asked before."""
    if isinstance(round_.message(place), NonceRequest):
        assert round_.csp_at(0).answer(round_.requests[place])
        return
    refused(round_.csp_at(0), round_.requests[place], OutOfTurn)


@every_request
def test_another_request_for_a_step_that_was_answered_is_refused(round_, total, place):
    """The same numbers under fresh masks would open them twice; at once, and when the whole round is done."""
    if isinstance(round_.message(place), InnerRequest):  # there is no other
        assert round_.altered(place) == round_.requests[place]
        return
    for later in (place + 1, -1):
        refused(round_.csp_at(later), round_.altered(place), OutOfTurn)


@every_request
def test_another_request_in_the_place_of_the_first_is_as_good(round_, total, place):
    """So that the test above can fail: it is the repetition that is refused. (A sum goes to both audiences alike.)"""
    message = round_.message(place)
    if isinstance(message, OpenRequest) and message.audience == REQUESTER:
        refused(round_.csp_at(place), round_.altered(place), OutOfTurn, "another sum")
    else:
        assert round_.csp_at(place).answer(round_.altered(place))


@every_request
def test_the_same_request_is_answered_again(round_, total, place):
    """A CSP that crashed before it kept its reply computes it anew."""
    csp = round_.csp_at(place)
    csp.answer(round_.requests[place])
    assert Message.kind_of(Keeping(csp.csp, csp.memory).answer(round_.requests[place]))


@every_request
def test_a_step_is_reserved_though_no_reply_is_kept(round_, total, place, monkeypatch):
    """A crash after the opening does not let another request in; the same one is answered."""
    if isinstance(round_.message(place), InnerRequest):
        assert round_.altered(place) == round_.requests[place]
        return
    csp = round_.csp_at(place)
    with monkeypatch.context() as patch:
        patch.setattr(csp.csp.party, "send", crash)
        with pytest.raises(OSError, match="power"):
            csp.answer(round_.requests[place])
    refused(csp, round_.altered(place), OutOfTurn)
    assert csp.answer(round_.requests[place])


@every_request
@pytest.mark.parametrize("number", [0, 4, 2**64])
def test_a_round_that_does_not_exist_is_refused(round_, total, place, number):
    """The task has three."""
    request = replace(round_.message(place), round_number=number).to_bytes()
    refused(round_.csp_at(place), request, RoundsExhausted)


@every_request
def test_a_round_that_has_ended_is_answered_no_more(round_, total, place):
    """At no step; another round is."""
    csp = round_.csp_at(place)
    csp.memory["round 1 ended"] = b""
    refused(csp, round_.requests[place], RoundEnded, "CSP has ended round 1")
    other = replace(round_.message(0), round_number=2).to_bytes()
    assert csp.answer(other)


@every_request
def test_a_request_of_another_round_is_out_of_turn(round_, total, place):
    """Each round goes its own way: what was done in one counts for no other."""
    if isinstance(round_.message(place), NonceRequest):
        assert round_.csp_at(-1).answer(replace(round_.message(place), round_number=2).to_bytes())
        return
    refused(round_.csp_at(-1), replace(round_.message(place), round_number=2).to_bytes(), OutOfTurn)


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
    ],
)
def test_who_is_rewarded_with_how_much_is_checked(rounds, changes, error):
    """The names in order, certified, as many as the task allows; the payment that the task promises."""
    round_ = rounds["shown"]
    refused(round_.csp_at(0), replace(round_.message(0), **changes).to_bytes(), error)


@pytest.mark.parametrize("changes", [{"participants": ("p0", "p1", "p2", "p3")}, {"digest": bytes(32)}])
def test_who_is_rewarded_is_fixed_when_the_rewards_begin(rounds, changes):
    """As many lanes, operands, dividends and envelopes as there were names, and no others."""
    round_ = rounds["shown"]
    refused(round_.csp_at(1), replace(round_.message(0), **changes).to_bytes(), OutOfTurn, "other contents")


COUNTED = [(LanesRequest, "masked"), (DivideRequest, "x"), (DivideRequest, "y"), (RewardRequest, "masked")]


@pytest.mark.parametrize(("cls", "name"), [*COUNTED, (OpenRequest, "masked"), (ScaleRequest, "masked")])
def test_a_request_of_another_length_is_refused(rounds, cls, name):
    """One number fewer, one more, or a share missing."""
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


@pytest.mark.parametrize("commitments", [(), (bytes(32),) * 2, (bytes(32),) * 4, (bytes(31),) * 3])
def test_every_reward_has_a_commitment(rounds, commitments):
    """Of the length of a hash."""
    round_ = rounds["shown"]
    place = round_.place_of(RewardRequest)
    refused(round_.csp_at(place), replace(round_.message(place), commitments=commitments).to_bytes(), LengthMismatch)


@pytest.mark.parametrize("cls", [OpenRequest, LanesRequest, ScaleRequest])
@pytest.mark.parametrize("start", [1, 100, 2**70])
def test_a_message_has_one_of_its_steps_places(rounds, cls, start):
    """Every other start would open the same rows in another message."""
    if (cls, start) == (LanesRequest, 1):
        start = 3
    round_ = rounds["hidden"]
    place = round_.place_of(cls)
    refused(round_.csp_at(place), replace(round_.message(place), start=start).to_bytes(), (LengthMismatch, OutOfTurn))


@pytest.mark.parametrize("purpose", ["", "distances", "total", "rewards", "nobody knows"])
def test_a_division_is_for_a_purpose_of_its_round(rounds, purpose):
    """When the weights are divided, no other division has its turn, and none exists that the task does not have."""
    round_ = rounds["hidden"]
    place = round_.place_of(DivideRequest, "weights")
    refused(
        round_.csp_at(place), replace(round_.message(place), purpose=purpose).to_bytes(), (LengthMismatch, OutOfTurn)
    )


def test_the_second_audience_gets_the_same_sum(rounds):
    """Another sum under the same or other masks would show the difference of the two."""
    round_ = rounds["shown"]
    place = next(i for i in range(17) if getattr(round_.message(i), "audience", 0) == REQUESTER)
    refused(round_.csp_at(place), round_.altered(place), OutOfTurn, "another sum")
    assert round_.csp_at(place).answer(round_.requests[place])


def test_one_factor_scales_every_chunk(rounds):
    """Another factor in a later chunk would scale some weights by what SP likes."""
    round_ = rounds["hidden"]
    place = round_.place_of(ScaleRequest)
    second = round_.message(place + 1)
    assert second.factor == round_.message(place).factor
    other = replace(second, factor=round_.sides.sp.party.rerandomise(second.factor)).to_bytes()
    refused(round_.csp_at(place + 1), other, OutOfTurn, "another factor")
    assert round_.csp_at(place + 1).answer(round_.requests[place + 1])
