"""A platform that deviates gets one sum of one set of at least `min_participants` for each base, whatever it asks for."""

import re
from dataclasses import replace

import pytest

from crowdfl.crypto.signing import verify
from crowdfl.errors import (
    BadSignature,
    BaseSpent,
    FormatError,
    LengthMismatch,
    OutOfTurn,
    Overtaken,
    ProtocolError,
    RoundEnded,
    RoundsExhausted,
    SeedReused,
    TooFewParticipants,
    WrongBase,
)
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares.chain import next_base, sha256
from crowdfl.protocols.shares.round import steps
from crowdfl.protocols.shares.round.average import RoundRecord, SharesPublication
from crowdfl.protocols.shares.round.csp import CspRound
from crowdfl.protocols.shares.round.csp_records import MOST_UNSHOWN, KeptTask
from crowdfl.protocols.shares.round.manifest import (
    ManifestReply,
    RoundManifest,
    RoundVerdict,
    StepReply,
    StepRequest,
    Transcript,
)
from crowdfl.reasons import Reason
from tests.protocols.shares.parties import COUNTED_ONCE, HIDDEN, PAYMENT, UNCHECKED, Parties, name_of

pytestmark = pytest.mark.usefixtures("seals")
STEPS = {"no checks": (UNCHECKED, 2), "checks": ({}, 6), "rewards": (HIDDEN, 6)}
EVERY = [(kind, step) for kind, (_, count) in STEPS.items() for step in range(1, count + 1)]


def recorded(kind, number=1, parties=None):
    """The requests of an honest round, and a CSP that has answered none of them, but drew the same coins."""
    parties = parties or Parties(settings=kind)
    parties.asked.clear()
    uploads, left, before = parties.encrypt(number, parties.models()), parties.left, parties.csp.records.copy()
    parties.csp = parties.fresh_csp(before.copy())
    parties.play(number, uploads)
    requests, parties.asked, parties.left = parties.asked, [], left
    parties.records.clear()  # an SP that deviates remembers nothing
    parties.csp = parties.fresh_csp(before)
    return parties, requests


def step_of(request):
    return StepRequest.from_bytes(request, Parties(settings=UNCHECKED).shape.limits(10**6))


def manifest_in(parties, request):
    return RoundManifest.from_bytes(step_of(request).payload, parties.shape.limits())


def asked_with(manifest, number=None):
    """A manifest as the first request of its round."""
    start = Transcript.start(manifest.place)
    return StepRequest(manifest.number if number is None else number, 1, start.digest, manifest.to_bytes()).to_bytes()


@pytest.fixture(scope="module")
def opened():
    """A manifest that no CSP has seen."""
    return recorded(UNCHECKED)


@pytest.fixture
def csp(opened):
    return opened[0].fresh_csp()


@pytest.fixture
def manifest(opened):
    return manifest_in(opened[0], opened[1][0])


ALTERED = {
    "a name twice": (lambda m: replace(m, names=(m.names[0], *m.names[:-1])), ProtocolError),
    "names out of order": (lambda m: _rows(m, [1, 0, 2, 3, 4]), ProtocolError),
    "one of two rows of the same name": (lambda m: _rows(m, [0, 0, 1, 2, 3]), ProtocolError),
    "another task": (lambda m: replace(m, task="00" * 16), ProtocolError),
    "another payment": (lambda m: replace(m, payment=1), ProtocolError),
    "too few": (lambda m: _rows(m, [0, 1]), TooFewParticipants),
    "nobody": (lambda m: _rows(m, []), TooFewParticipants),
    "a stranger": (lambda m: replace(m, names=(*m.names[:-1], "z" * 20)), ProtocolError),
    "another base": (lambda m: replace(m, base=bytes(32)), BadSignature),
    "another hash": (lambda m: replace(m, digests=(bytes(32), *m.digests[1:])), BadSignature),
    "another seal": (lambda m: replace(m, sealed=(bytes(80), *m.sealed[1:])), BadSignature),
    "two seals exchanged": (lambda m: replace(m, sealed=(m.sealed[1], m.sealed[0], *m.sealed[2:])), BadSignature),
    "another signature": (lambda m: replace(m, signatures=(bytes(64), *m.signatures[1:])), BadSignature),
    "a signature missing": (lambda m: replace(m, signatures=m.signatures[1:]), LengthMismatch),
    "a short seal": (lambda m: replace(m, sealed=(b"", *m.sealed[1:])), LengthMismatch),
}


def _rows(manifest, places):
    columns = {
        name: tuple(getattr(manifest, name)[i] for i in places) for name in ("names", "digests", "sealed", "signatures")
    }
    return replace(manifest, **columns)


@pytest.mark.parametrize(("change", "refusal"), ALTERED.values(), ids=ALTERED.keys())
def test_an_altered_manifest_is_refused_and_the_right_one_still_taken(opened, csp, manifest, change, refusal):
    with pytest.raises(refusal):
        csp.answer(asked_with(change(manifest)))
    assert csp.answer(asked_with(manifest))


def test_manifests_are_of_the_rounds_of_the_task_and_of_their_request(csp, manifest):
    for number in (0, 7):
        with pytest.raises(RoundsExhausted):
            csp.answer(asked_with(manifest, number=number))
    for wrong in (manifest, replace(manifest, number=1 << 40)):  # the second has no place in any task
        with pytest.raises(ProtocolError, match="of another round"):
            csp.answer(StepRequest(3, 1, b"", wrong.to_bytes()).to_bytes())


def test_csp_takes_one_manifest_a_round(opened, csp, manifest):
    """Not another one with somebody left out, also if it had taken the round's first step for the first one, and died."""
    restarted = csp.reserved(asked_with(manifest))
    csp.answer(asked_with(manifest))
    for process in (csp, restarted):
        with pytest.raises(OutOfTurn):
            process.answer(asked_with(_rows(manifest, [0, 1, 2, 3])))
    assert restarted.answer(asked_with(manifest)) == csp.answer(asked_with(manifest))


def test_a_sum_that_was_sent_is_the_only_one_for_its_model():
    """SP takes the sum, says that it has aborted, and runs another round to the same model without the victim."""
    parties = Parties(settings=UNCHECKED)
    models = parties.models()
    parties.play(1, parties.encrypt(1, models))
    parties.left = None  # as if nothing had been published
    parties.records.clear()
    without = {who: model for who, model in models.items() if who != name_of(0)}
    with pytest.raises(BaseSpent):
        parties.play(2, parties.encrypt(2, without))


def paid_samples(parties: Parties, number: int, names: list[str]) -> int:
    """The sum of the samples that a round pays, as its first participant reads it off its reward. No average is asked for."""
    models, samples = parties.models(), {who: place + 2 for place, who in enumerate(parties.names)}
    sp, accomplice = parties.new_sp(number), names[0]
    sp.add_all(parties.encrypt(number, {who: models[who] for who in names}, samples))
    run_exchange(sp.reward(PAYMENT), parties.ask)
    reward = parties.people[accomplice].open_reward(sp.envelopes()[accomplice], number)
    return round(samples[accomplice] * (PAYMENT - len(names)) / reward)


def test_rewards_of_rounds_that_are_never_opened_isolate_nobody() -> None:
    """Everyone, and then everyone but one: the difference would be that one's number of samples."""
    parties = Parties(people_count=6, settings=HIDDEN)
    everyone = paid_samples(parties, 1, parties.names)
    assert everyone == sum(range(2, 8))
    with pytest.raises(BaseSpent):
        paid_samples(parties, 2, parties.names[:-1])


def test_a_round_given_up_before_its_sum_leaves_its_model_for_the_next():
    """But nothing more is answered for it: its shares are never opened."""
    parties, requests = recorded({})
    csp = parties.csp
    for request in requests[:-1]:
        csp.answer(request)
    played = parties.play(2, parties.encrypt(2, parties.models(2)))
    with pytest.raises(RoundEnded, match="later round"):
        csp.answer(requests[-1])
    assert parties.requester.read(played.publication, 2).total == sum(parties.samples().values())


@pytest.mark.parametrize("sum_is_first", [True, False])
def test_two_rounds_to_one_model_give_one_sum(sum_is_first):
    """Two processes at the same moment: one opens round 1, the other takes the manifest of round 2. Whoever sets first wins."""
    parties, first = recorded(UNCHECKED)
    _, second = recorded(UNCHECKED, 2, parties)
    csp = parties.fresh_csp()
    csp.answer(first[0])
    csp.reserve(first[1])
    looks = [Look(csp.records), Look(csp.records)]
    for look, request in zip(looks, (first[1], second[0]), strict=True):
        parties.fresh_csp().side.answer(look, request)
    winner, loser = looks if sum_is_first else reversed(looks)
    csp.records.set(winner)
    with pytest.raises(Overtaken):
        csp.records.set(loser)
    with pytest.raises(BaseSpent if sum_is_first else RoundEnded):
        csp.answer(second[0] if sum_is_first else first[1])


def test_a_later_manifest_ends_earlier_rounds_that_had_none():
    parties, first = recorded(UNCHECKED)
    parties.play(3, parties.encrypt(3, parties.models()))
    with pytest.raises(RoundEnded, match="later round"):
        parties.csp.answer(first[0])


def test_an_honest_sp_sends_one_sum_for_a_model_whatever_became_of_it():
    """CSP has X and falls silent: no later round offers it another one."""
    parties = Parties(settings=UNCHECKED)

    def silent(request):
        if step_of(request).step == 2:
            raise OSError("CSP is away")
        return parties.ask(request)

    with pytest.raises(OSError, match="away"):
        parties.play(1, parties.encrypt(1, parties.models()), silent)
    asked = len(parties.asked)
    with pytest.raises(BaseSpent, match="in round 1"):
        parties.play(2, parties.encrypt(2, parties.models()))
    assert len(parties.asked) == asked


def test_the_mask_of_a_sum_serves_one_set_of_people():
    """CSP answers the manifest otherwise when it is asked again: the same mask would show it the difference of two sums."""
    parties = Parties(people_count=6, settings=UNCHECKED)
    uploads = parties.encrypt(1, parties.models())

    def one_seal_less(request):
        reply = parties.csp.answer(request)
        if step_of(request).step == 1:
            message = StepReply.opened(sha256(request), reply)
            answer = ManifestReply.from_bytes(message.payload, parties.shape.limits())
            reply = replace(message, payload=replace(answer, broken=(name_of(5),)).to_bytes()).to_bytes()
        return ask_directly(lambda _: reply)(request)

    parties.play(1, uploads)
    parties.left = None
    with pytest.raises(SeedReused):
        parties.play(1, uploads, one_seal_less)


def test_a_manifest_of_uploads_to_another_model_is_refused(opened, csp, manifest):
    """Though those who took part have signed it."""
    other = replace(manifest, base=bytes(32))
    signed = tuple(
        opened[0].keys[who].signing.sign(other.place.bind("crowdfl upload 1", who.encode(), digest, sealed))
        for who, digest, sealed in zip(other.names, other.digests, other.sealed, strict=True)
    )
    with pytest.raises(WrongBase):
        csp.answer(asked_with(replace(other, signatures=signed)))


def test_no_upload_and_no_manifest_follows_from_anything_but_the_record():
    """Signing a record again, or publishing it otherwise, makes no other base."""
    parties = Parties(settings=UNCHECKED)
    played = parties.play(1, parties.encrypt(1, parties.models()))
    parties.read(1, played)
    record = RoundRecord.from_bytes(
        SharesPublication.from_bytes(played.publication, parties.shape.limits()).record, parties.shape.limits()
    )
    again = replace(record, signature=bytes(64))
    assert parties.place(2).base == next_base(record.base, record.statement) == next_base(record.base, again.statement)


@pytest.fixture(scope="module")
def rounds():
    made = {kind: recorded(settings) for kind, (settings, _) in STEPS.items()}
    assert {kind: len(requests) for kind, (_, requests) in made.items()} == {kind: n for kind, (_, n) in STEPS.items()}
    return made


@pytest.mark.parametrize(
    ("kind", "step"), [one for one in EVERY if one[1] > 1], ids=[f"{k}-{s}" for k, s in EVERY if s > 1]
)
def test_a_payload_of_another_length_ends_the_round(rounds, kind, step):
    """For good, and with the same words each time: what CSP holds is not told from what SP did wrong."""
    parties, requests = rounds[kind]
    csp = parties.fresh_csp()
    for request in requests[: step - 1]:
        csp.answer(request)
    wrong = replace(step_of(requests[step - 1]), payload=b"\1" * 5)
    with pytest.raises(RoundEnded, match=re.escape("CSP has ended round 1")):
        csp.answer(wrong.to_bytes())
    with pytest.raises(RoundEnded, match=re.escape("CSP has ended round 1")):
        csp.answer(requests[step - 1])


@pytest.mark.parametrize("step", [2, 3, 5])
def test_a_payload_of_the_right_length_and_other_contents_opens_no_second_answer(rounds, step):
    """Altered shares give what altered shares give; the right ones are then refused."""
    parties, requests = rounds["checks"]
    csp = parties.fresh_csp()
    for request in requests[: step - 1]:
        csp.answer(request)
    right = step_of(requests[step - 1])
    wrong = replace(right, payload=bytes([right.payload[0] ^ 1]) + right.payload[1:])
    csp.answer(wrong.to_bytes())
    with pytest.raises((OutOfTurn, RoundEnded)):
        csp.answer(requests[step - 1])


def test_bits_that_were_not_committed_to_void_the_round_by_csps_word():
    parties, requests = recorded({})
    for request in requests[:4]:
        parties.csp.answer(request)
    right = step_of(requests[4])
    wrong = replace(right, payload=bytes([right.payload[0] ^ 1]) + right.payload[1:])
    assert Reason.ALTERED_BITS.encode() in parties.csp.answer(wrong.to_bytes())
    with pytest.raises(RoundEnded, match="given up"):
        parties.csp.answer(requests[5])


def test_csp_answers_no_other_messages(csp):
    with pytest.raises(FormatError):
        csp.answer(b"CFLM\2\x01")
    with pytest.raises(FormatError):
        csp.answer(b"")


def test_whose_bits_were_shown_in_rounds_without_a_record_is_looked_at_no_more():
    """Else SP, which lies to phones about such rounds, learns a bit of each as often as it likes."""
    parties = Parties(settings=COUNTED_ONCE)
    shown = steps.shown_in(parties.shape)

    def gives_up(request):
        if step_of(request).step > shown:
            raise OSError("given up")
        return parties.ask(request)

    for number in range(1, MOST_UNSHOWN + 1):
        with pytest.raises(OSError, match="given up"):
            parties.play(number, parties.encrypt(number, parties.models(number)), gives_up)
        parties.records.clear()  # an SP that deviates remembers nothing
    with pytest.raises(RoundEnded, match=Reason.TOO_FEW_LEFT.words):
        parties.play(MOST_UNSHOWN + 1, parties.encrypt(MOST_UNSHOWN + 1, parties.models()))


@pytest.mark.parametrize("step", [2, 3, 4, 5, 6])
def test_a_csp_whose_machine_fails_once_it_has_seen_bits_says_so_with_its_signature(monkeypatch, step):
    """Before that it may be asked again. A CSP that could be away after it has looked would leave no trace of that."""
    parties, requests = recorded(COUNTED_ONCE)
    csp = parties.csp
    for request in requests[: step - 1]:
        csp.answer(request)
    with monkeypatch.context() as patch:
        patch.setattr(CspRound, "answer", raising)
        if step < steps.shown_in(parties.shape):
            with pytest.raises(OSError, match="no space"):
                csp.answer(requests[step - 1])
            patch.undo()
            assert csp.answer(requests[step - 1])
            return
        reply = StepReply.opened(sha256(requests[step - 1]), csp.answer(requests[step - 1]))
    word = RoundVerdict.from_bytes(reply.word, parties.shape.limits())
    assert (reply.payload, word.void) == (b"", Reason.CSP_FAILED)
    verify(next(iter(parties.people.values())).bundle.csp_signing, word.statement, word.signature)
    kept = Look(csp.records).get(KeptTask)
    assert kept is not None
    assert set(kept.unshown) == set(parties.names)
    with pytest.raises(RoundEnded, match="given up"):
        parties.fresh_csp(csp.records.copy()).answer(requests[-1])


def raising(*_):
    raise OSError(28, "no space left on device")
