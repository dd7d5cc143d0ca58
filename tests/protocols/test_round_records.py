"""What CSP signs of a `hardened` round, and when a round has no further step: after a later manifest, or a cancel."""

from dataclasses import replace

import numpy as np
import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BadSignature,
    FormatError,
    OutOfTurn,
    ProtocolError,
    RoundEnded,
    RoundsExhausted,
    TooFewParticipants,
)
from crowdfl.protocols.hardened.closing import CancelRequest
from crowdfl.protocols.hardened.opening import PARTICIPANTS, REQUESTER, OpenRequest, Publication
from crowdfl.protocols.hardened.prirwd import LanesRequest, RewardRequest
from crowdfl.protocols.hardened.record import HardenedRecord, RecordReply, RecordRequest, parse_record, sign_record
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.records import Look
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings
from tests.hosts import test_tools
from tests.protocols.driving import Keeping, SmallParties, converse
from tests.protocols.recorded import PAYMENT, TINY, Recorded, record, short_messages

REQUESTER_KEY = SigningKey.fresh()
NAMES = ("p0", "p1", "p2")


@pytest.fixture(scope="module")
def shown():
    with short_messages():
        yield record("shown")


@pytest.fixture(scope="module")
def unpaid():
    """A task without budget, though there is room for rewards, of a requester who can cancel it; averaged without pay."""
    settings = TaskSettings.of(
        **{"profile": "hardened", "max_participants": 3} | TINY | {"budget": None, "key_bits": 1024}
    )
    with short_messages():
        sides = SmallParties(TaskSpec("task", settings, 40, requester=REQUESTER_KEY.public), test_tools(), people=NAMES)
        recorded = Recorded(sides)
        for who in sides.people:
            sides.sp.add_all({who: sides.upload([0.1] * 40, 1, who)})
        for final in (False, True):
            converse(sides.sp.publish(final=final), recorded)
        recorded.before.append(sides.csp.records.copy())
        yield recorded


def word(round_: Recorded, csp: Keeping, number: int = 1) -> HardenedRecord:
    reply = RecordReply.from_bytes(csp.answer(RecordRequest(number).to_bytes()), Limits.plain())
    return parse_record(reply.record, "task", number, round_.sides.people["p0"].record_key)


def test_csp_signs_who_was_averaged(shown):
    found = word(shown, shown.csp_at(-1))
    assert (found.accepted, found.void) == (NAMES, 0)
    assert found.manifest == shown.message(0).digest


def test_a_round_of_which_nothing_was_opened_is_void_by_csps_word(shown):
    """From then on no step of it is taken, and nobody is paid for it: not after its rewards either."""
    first = shown.place_of(OpenRequest)
    for place in (0, 1, first):
        csp = shown.csp_at(place)
        found = word(shown, csp)
        assert (found.accepted, found.void) == ((), 1)
        assert found.names == (NAMES if place else ())
        with pytest.raises(RoundEnded):
            csp.answer(shown.requests[place])
        assert csp.side.reward(Look(csp.records), 1, "p0") is None


def test_a_piece_that_was_opened_is_not_void(shown):
    """An SP that stops before the last one has shown readers most of the sum."""
    csp = shown.csp_at(shown.place_of(OpenRequest) + 1)
    assert word(shown, csp).accepted == NAMES
    assert csp.side.reward(Look(csp.records), 1, "p0") is not None


def test_there_is_one_word_on_a_round(shown):
    """Whatever happens to it later."""
    csp = shown.csp_at(shown.place_of(OpenRequest))
    first = word(shown, csp)
    again = Keeping(csp.side, csp.records.copy())
    assert word(shown, again) == first


@pytest.mark.parametrize("number", [0, 4, 2**64])
def test_there_is_no_word_on_a_round_that_does_not_exist(shown, number):
    with pytest.raises(RoundsExhausted):
        shown.csp_at(-1).answer(RecordRequest(number).to_bytes())


def test_a_round_that_pays_nothing_has_no_step_of_rewards(shown, unpaid):
    """Before its average is opened, and after: what would open a lane, and what would open a reward."""
    for place in (1, len(unpaid.requests)):
        for asked in (shown.place_of(LanesRequest), shown.place_of(RewardRequest)):
            with pytest.raises(OutOfTurn, match="pays nothing"):
                unpaid.csp_at(place).answer(foreign(unpaid, shown.message(asked)))


def foreign(round_: Recorded, message) -> bytes:
    """The same request under this task's key."""
    party = round_.sides.sp.party
    masked = party.encrypt([1] * len(message.masked))
    return replace(message, masked=masked, masked_1=party.partial_decrypt(masked)).to_bytes()


def test_what_a_round_pays_is_fixed_before_anything_is_opened(unpaid):
    people = {"people": NAMES}
    with pytest.raises(OutOfTurn, match="other contents"):
        unpaid.csp_at(-1).answer(unpaid.sides.manifest(1, PAYMENT, **people))
    largest = unpaid.sides.sp._shape.widths().largest_payment
    with pytest.raises(ProtocolError, match="at most"):
        unpaid.csp_at(0).answer(unpaid.sides.manifest(1, largest + 1, **people))


def test_a_later_manifest_ends_a_round(shown):
    """But what was opened in it can be opened to others: the requester gets the last average that was paid for."""
    own = [i for i in range(len(shown.requests)) if getattr(shown.message(i), "audience", 0) == REQUESTER]
    first = shown.place_of(OpenRequest)
    for place in range(len(shown.requests)):
        csp = shown.csp_at(place)
        csp.answer(shown.manifest(2))
        if place in own:
            assert csp.answer(shown.requests[place])
        else:
            with pytest.raises(RoundEnded, match="later round"):
                csp.answer(shown.requests[place])
    csp = shown.csp_at(first)  # nothing of it was opened to anyone
    csp.answer(shown.manifest(2))
    with pytest.raises(RoundEnded, match="later round"):
        csp.answer(shown.requests[own[0]])


def test_a_cancel_ends_all_rounds(unpaid):
    """Signed by the requester for this task; the last average is opened to the requester all the same."""
    wrong = CancelRequest.signed("task", SigningKey.fresh()), CancelRequest.signed("another", REQUESTER_KEY)
    cancel = CancelRequest.signed("task", REQUESTER_KEY).to_bytes()
    csp = unpaid.csp_at(0)
    for one, error in zip(wrong, (BadSignature, FormatError), strict=True):
        with pytest.raises(error):
            csp.answer(one.to_bytes())
    for place in range(len(unpaid.requests)):
        csp = unpaid.csp_at(place)
        assert csp.answer(cancel) == csp.answer(cancel)
        if getattr(unpaid.message(place), "audience", PARTICIPANTS) == REQUESTER:
            assert csp.answer(unpaid.requests[place])
        else:
            with pytest.raises(RoundEnded, match="cancelled"):
                csp.answer(unpaid.requests[place])
        with pytest.raises(RoundEnded, match="cancelled"):
            csp.answer(unpaid.sides.manifest(2, people=NAMES))


def signed(round_: Recorded, **changes) -> Publication:
    """What SP has published, with another record of CSP's."""
    publication = Publication.from_bytes(round_.sides.sp.publication(), round_.sides.sp.party.limits(1000))
    found = HardenedRecord.from_bytes(publication.record, Limits.plain())
    return replace(publication, record=sign_record(replace(found, **changes), round_.sides.csp.side.signing))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"void": 1}, ProtocolError),
        ({"number": 2}, ProtocolError),
        ({"task": "another"}, ProtocolError),
        ({"names": ("p0", "p1")}, TooFewParticipants),
        ({"names": ("p0", "p1", "p1")}, TooFewParticipants),
    ],
)
def test_a_reader_takes_no_average_without_its_record(unpaid, changes, error):
    """The requester, who reads this one; CSP's signature is needed too."""
    reader = unpaid.sides.requester
    assert np.allclose(reader.read(unpaid.sides.sp.publication(), 1).weights, 0.1)
    with pytest.raises(error):
        reader.read(signed(unpaid, **changes).to_bytes(), 1)
    forged = signed(unpaid)
    record = HardenedRecord.from_bytes(forged.record, Limits.plain())
    with pytest.raises(BadSignature):
        reader.read(replace(forged, record=replace(record, signature=bytes(64)).to_bytes()).to_bytes(), 1)


def test_a_record_says_who_was_left_out(unpaid):
    publication = signed(unpaid, names=("p0", "p1", "p3")).to_bytes()
    standing = {who: unpaid.sides.people[who].read_record(publication, 1)[1] for who in NAMES}
    assert standing == {"p0": None, "p1": None, "p2": Reason.NOT_PASSED_ON}


@pytest.mark.parametrize("changes", [{"names": ("p0", "p1", "p3")}, {"manifest": bytes(32)}, {"void": 1}])
def test_sp_publishes_under_a_record_of_its_own_manifest_alone(unpaid, changes):
    honest = unpaid.sides.csp.answer

    def answer(request: bytes) -> bytes:
        reply = honest(request)
        if request == RecordRequest(1).to_bytes():
            return RecordReply(signed(unpaid, **changes).record).to_bytes()
        return reply

    with pytest.raises(ProtocolError):
        converse(unpaid.sides.sp.publish(final=False), answer)


def test_an_upload_is_signed_for_one_round_and_by_its_owner(unpaid):
    """SP takes no other: CSP would refuse the whole manifest."""
    sp, people = unpaid.sides.sp, unpaid.sides.people
    good = people["p0"].encrypt_update(np.zeros(40), 1, 1)
    later = people["p0"].encrypt_update(np.zeros(40), 1, 2)
    found = sp.refusals([("p0", good), ("p1", good), ("p0", later), ("p0", good[:-1]), ("nobody", good)])
    assert found[0] is None
    assert [type(one) for one in found[1:3]] == [BadSignature, BadSignature]
    assert all(found[3:])
