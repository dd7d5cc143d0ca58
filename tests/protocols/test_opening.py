"""The masked opening: who can read what, and that no seed serves two sums."""

from dataclasses import replace

import numpy as np
import pytest

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.errors import (
    BadSignature,
    FormatError,
    LengthMismatch,
    LimitExceeded,
    NothingToAverage,
    OutOfTurn,
    ProtocolError,
    SealBroken,
    SeedReused,
    SlotOverflow,
)
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.hardened import opening
from crowdfl.protocols.hardened.opening import (
    CHUNK,
    PARTICIPANTS,
    REQUESTER,
    OpeningCsp,
    OpeningSp,
    OpenRequest,
    Publication,
    mask_rows,
    read,
)
from tests.protocols.driving import converse, deal, pair

CONTEXT = b"a round of a task"
VALUES = [0, 1, -1, 2**100, -(2**100), 12345]


@pytest.fixture(scope="module")
def servers():
    return pair(256)


@pytest.fixture(scope="module")
def audiences():
    """The keys that CSP shares with the readers."""
    return {PARTICIPANTS: AudienceKey.fresh(), REQUESTER: AudienceKey.fresh()}


def requests_of(servers, state, sums, audience=PARTICIPANTS):
    return list(OpeningSp(servers.sp).requests(state, sums, 1, audience))


def answer(csp, request):
    """CSP's side, without a round around it."""
    return csp.answer(OpenRequest.from_bytes(request, csp.party.limits(CHUNK)), CONTEXT).to_bytes()


def publish(servers, audiences, values=VALUES, audience=PARTICIPANTS):
    """A publication, and what led to it."""
    sums = servers.encrypt(values)
    state = MaskSeed.bound_to(opening.digest(sums))
    csp = OpeningCsp(servers.csp, audiences)
    replies = [answer(csp, request) for request in requests_of(servers, state, sums, audience)]
    return OpeningSp(servers.sp).publication(state, sums, replies)


def values_of(servers, block):
    return [servers.public.signed(v) for v in to_ints(block)]


def test_the_audience_reads_what_was_summed(servers, audiences):
    publication = publish(servers, audiences)
    assert values_of(servers, read(publication, audiences[PARTICIPANTS], CONTEXT, servers.public)) == VALUES


def test_long_sums_go_in_chunks(servers, audiences, monkeypatch):
    """Every chunk has masks of its own, and the seams do not show."""
    monkeypatch.setattr(opening, "CHUNK", 4)
    values = list(range(-5, 6))
    publication = publish(servers, audiences, values)
    assert len(publication.sealed) == 3
    assert values_of(servers, read(publication, audiences[PARTICIPANTS], CONTEXT, servers.public)) == values
    assert not np.array_equal(*(mask_rows(publication.seed, start, 4, servers.public) for start in (0, 4)))


def test_a_seed_is_bound_to_its_sum(servers):
    """Another sum is refused before a single request is made."""
    state = MaskSeed.bound_to(opening.digest(servers.encrypt([1, 2])))
    with pytest.raises(SeedReused):
        requests_of(servers, state, servers.encrypt([1, 2]))


def test_the_same_state_gives_the_same_bytes(servers):
    """A retry sends what was sent before, also after the state went through the store."""
    sums = servers.encrypt(VALUES)
    state = MaskSeed.bound_to(opening.digest(sums))
    first = requests_of(servers, state, sums)
    assert requests_of(servers, MaskSeed.from_bytes(state.to_bytes()), sums) == first


@pytest.mark.parametrize("size", [0, SEED_BYTES, 2 * SEED_BYTES - 1, 2 * SEED_BYTES + 1])
def test_a_stored_seed_of_another_length_is_refused(size):
    """A damaged store does not become a weak mask."""
    with pytest.raises(FormatError):
        MaskSeed.from_bytes(bytes(size))


def test_csp_never_sees_the_seed(servers, audiences):
    """Readers get the seed of the masks, no request holds it; the one that blinds the ciphertexts stays with SP."""
    sums = servers.encrypt(VALUES)
    state = MaskSeed.bound_to(opening.digest(sums))
    sent = requests_of(servers, state, sums)
    assert not any(seed in request for request in sent for seed in (state.seed, state.shown))
    replies = [answer(OpeningCsp(servers.csp, audiences), request) for request in sent]
    published = OpeningSp(servers.sp).publication(state, sums, replies).to_bytes()
    assert state.shown in published
    assert state.seed not in published


def test_csp_opens_the_masked_values_and_nothing_else(servers, audiences):
    """What it sees is value + mask modulo N."""
    publication = publish(servers, audiences)
    masks = to_ints(mask_rows(publication.seed, 0, len(VALUES), servers.public))
    seen = to_ints(servers.csp.view.of("opened")[-1])
    assert seen == [(v + m) % servers.public.n for v, m in zip(VALUES, masks, strict=True)]


def test_sp_cannot_read_its_own_publication(servers, audiences):
    """It holds the seed and the sealed bytes, and no audience key."""
    publication = publish(servers, audiences)
    with pytest.raises(SealBroken):
        read(publication, AudienceKey(publication.seed), CONTEXT, servers.public)


def test_chunks_cannot_be_swapped_altered_or_dropped(servers, audiences, monkeypatch):
    """Each is sealed to its place; the count is checked."""
    monkeypatch.setattr(opening, "CHUNK", 4)
    publication = publish(servers, audiences, list(range(8)))
    first, second = publication.sealed
    flipped = first[:-1] + bytes([first[-1] ^ 1])
    for sealed in ((second, first), (flipped, second), (first[:10], second), (b"", second)):
        with pytest.raises(SealBroken):
            read(replace(publication, sealed=sealed), audiences[PARTICIPANTS], CONTEXT, servers.public)
    with pytest.raises(ProtocolError, match="4 values where 8"):
        read(replace(publication, sealed=(first,)), audiences[PARTICIPANTS], CONTEXT, servers.public)


def test_replies_are_counted(servers):
    """SP publishes nothing that CSP has not answered in full."""
    sums = servers.encrypt([1])
    with pytest.raises(ProtocolError, match="0 replies for 1"):
        OpeningSp(servers.sp).publication(MaskSeed.bound_to(opening.digest(sums)), sums, [])


def test_an_unknown_audience_is_refused():
    """CSP seals to the task's audiences alone."""
    sides = deal()
    masked = sides.sp.party.encrypt([0] * (sides.sp._shape.budget.ciphertexts + 1))
    request = OpenRequest(1, 3, 0, masked, sides.sp.party.partial_decrypt(masked))
    with pytest.raises(OutOfTurn, match="audience 3"):
        sides.csp.answer(request.to_bytes())
    assert sides.csp.party.view.entries == []


def test_a_request_has_the_length_of_its_place():
    """CSP's memory is bounded by the protocol, not by SP; a request that is shorter than its place says is refused too."""
    sides = deal(3, 3000, key_bits=128, max_samples=10)
    rows = sides.sp._shape.budget.ciphertexts + 1
    assert rows > CHUNK + 1
    one = sides.sp.party.encrypt([0])
    for start, count in ((0, CHUNK + 1), (0, CHUNK - 1), (CHUNK, rows - CHUNK + 1), (CHUNK, 1), (0, 1), (rows, 0)):
        sums = type(one).concat([one] * count) if count else one.part(0, 0)
        request = OpenRequest(1, PARTICIPANTS, start, sums, sides.sp.party.partial_decrypt(sums))
        with pytest.raises((LengthMismatch, LimitExceeded, OutOfTurn)):
            sides.csp.answer(request.to_bytes())
    assert sides.csp.party.view.entries == []


@pytest.fixture(scope="module", params=["shown", "hidden"])
def published(request):
    """A task with two rounds done: the first for the participants, the last for the requester."""
    sides = deal(3, 2, total=request.param, key_bits=640, rounds=2)
    publications = []
    for number in (1, 2):
        sides.sp.open_round(number)
        for i in range(3):
            sides.sp.add_all({f"p{i}": sides.upload([number, -1.0], 5, f"p{i}", number)})
        converse(sides.sp.publish(final=number == 2), sides.csp.answer)
        publications.append(sides.sp.publication())
    return sides, publications


def test_a_publication_for_another_round_or_audience_fails(published):
    sides, (first, last) = published
    for reader, publication, number, error in (
        (sides.people["p0"], first, 2, ProtocolError),  # by CSP's record, before any seal is looked at
        (sides.people["p0"], last, 1, ProtocolError),
        (sides.people["p0"], last, 2, SealBroken),
        (sides.requester, first, 1, SealBroken),
        (sides.requester, last, 1, ProtocolError),
    ):
        with pytest.raises(error):
            reader.read(publication, number)
    records = [Publication.from_bytes(one, sides.sp.party.limits(100)).record for one in (first, last)]
    moved = replace(Publication.from_bytes(first, sides.sp.party.limits(100)), record=records[1])
    with pytest.raises(SealBroken):
        sides.people["p0"].read(moved.to_bytes(), 2)


def test_a_reader_of_another_task_cannot_read(published):
    _, (first, _) = published
    stranger = deal(3, 2, key_bits=512).people["p0"]
    with pytest.raises(BadSignature):
        stranger.read(first, 1)


def test_readers_compute_no_power(published):
    """No key share and no modular exponentiation on a phone."""
    sides, (first, _) = published
    phone = sides.people["p2"]
    before = phone.party.costs.counts.copy()
    phone.read(first, 1)
    assert phone.party.costs.counts == before
    assert phone.party.share is None


def test_a_wrong_seed_does_not_give_another_average():
    """It gives noise, which the packing notices."""
    sides = deal(3, 2)
    for i in range(3):
        sides.sp.add_all({f"p{i}": sides.upload([0.5, 0.25], 1, f"p{i}")})
    converse(sides.sp.publish(final=False), sides.csp.answer)
    message = Publication.from_bytes(sides.sp.publication(), sides.people["p0"].party.limits(100))
    assert sides.people["p0"].read(message.to_bytes(), 1).weights.tolist() == [0.5, 0.25]
    with pytest.raises((SlotOverflow, NothingToAverage)):
        sides.people["p0"].read(replace(message, seed=bytes(32)).to_bytes(), 1)
