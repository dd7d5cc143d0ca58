"""Leaks that the audit found in `hardened`. Each test states what must hold."""

from functools import cache
from typing import cast

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.pctd import Ciphertext
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import OutOfTurn, ProtocolError, RoundEnded, SeedReused, TooFewParticipants
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.hardened.prifedavg import ScaleRequest
from crowdfl.protocols.hardened.prirwd import LanesRequest, NonceRequest
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import InProcessMemory
from crowdfl.protocols.round import AggregationRound
from crowdfl_lab.audit.finding import Verdict
from crowdfl_lab.audit.readings import attack_hidden_total
from crowdfl_lab.audit.recorded_round import deal
from crowdfl_lab.parties import LocalParties

BOUNDS = {"max_participants": 5, "max_samples": 20, "clip": 1.0, "decimals": 2, "sigma": 20, "key_bits": 1024}
PARAMETERS = 20


def published(**settings) -> LocalParties:
    """A published round of four, with a short key."""
    parties = deal(PARAMETERS, rounds=2, **BOUNDS, **settings)
    rng = np.random.default_rng(2)
    parties.play(1, parties.encrypt({f"p{i}": (rng.uniform(-0.5, 0.5, PARAMETERS), 10 + i) for i in range(4)}))
    return parties


def test_repro_a_second_payment_reuses_no_mask():
    """Rewards of one round at two budgets under one seed: CSP would subtract and read them."""
    parties = published(lanes=None)
    parties.current().reward(36_000_000)
    with pytest.raises(SeedReused):
        parties.current().reward(72_000_000)


def keeping_replies(parties: LocalParties) -> AggregationRound:
    """The round with replies kept by request, as both servers keep them: CSP computes none twice."""
    return AggregationRound(parties.sp, ask_directly(cache(parties.csp.answer)))


def test_a_retry_of_the_same_payment_sends_the_same_requests():
    """So that CSP opens nothing that it has not opened before."""
    parties = published(lanes=None)
    round_, view = keeping_replies(parties), parties.csp.party.view
    first = round_.reward(36_000_000)
    seen = len(view.entries)
    assert round_.reward(36_000_000) == first
    assert len(view.entries) == seen


def test_repro_another_payment_is_refused_by_csp_too():
    """An SP that forgot its seed would mask the same numbers again; CSP knows what the round pays."""
    parties = published(lanes=None)
    parties.current().reward(36_000_000)
    uploads = parties.encrypt({f"p{i}": (np.zeros(PARAMETERS), 10) for i in range(4)})
    parties.open(1).collect(uploads)
    with pytest.raises(OutOfTurn, match="nonce"):
        parties.current().reward(72_000_000)


def test_repro_another_nonce_meets_other_masks():
    """CSP that lost its nonce deals another sketch; under the same masks their difference would be the update's."""
    parties = published(lanes=1)
    for _ in range(2):
        parties.current().reward(36_000_000)
        parties.csp.remember(InProcessMemory())
    first, second = parties.csp.party.view.of("lanes")
    assert all(abs(a - b) > 1 << 8 for a, b in zip(first[0], second[0], strict=True))


def test_repro_rewards_need_as_many_as_averages():
    """Two uploads make no rewards."""
    parties = published(lanes=None)
    parties.open(2).collect(parties.encrypt({who: (np.zeros(PARAMETERS), 5) for who in ("p0", "p1")}))
    with pytest.raises(TooFewParticipants):
        run_exchange(parties.sp.reward(36_000_000), ask_directly(parties.csp.answer))


def test_repro_csp_and_a_reader_do_not_find_the_hidden_total():
    """Readers are given a seed; it must not undo what hides SP's ciphertexts from CSP."""
    assert attack_hidden_total(1024).verdict is Verdict.GUESS


def test_repro_a_hidden_total_survives_a_retry():
    """CSP's dither is fresh every time: SP must be able to publish again after a crash."""
    parties = deal(2, key_bits=1024, max_participants=4, lanes=0, total="hidden", clip=1.0)
    parties.open(1).collect(parties.encrypt({f"p{i}": (np.full(2, 0.25), 10) for i in range(3)}))
    round_ = keeping_replies(parties)
    step = parties.sp.publish(final=False)
    request = next(step)
    for _ in range(4):  # SP falls over with the opening under way
        request = step.send(round_.ask(request))
    assert Message.kind_of(request) == OpenRequest.kind
    assert np.allclose(parties.read(round_.average(), 1, ["p0"]).weights, 0.25, atol=1e-6)


@pytest.mark.parametrize("plaintext", [-5, 5])
def test_repro_csp_compares_once_a_round(plaintext):
    """A chosen ciphertext's sign may show in an error, but there is no second: SP would decrypt by halving."""
    parties = published(lanes=None)
    party, people = parties.sp.party, tuple(f"p{i}" for i in range(4))
    parties.csp.answer(NonceRequest(1, 36_000_000, people, bytes(32)).to_bytes())

    def answered(value: int) -> bool:
        rows = cast(HardenedSp, parties.sp).codec.budget.buckets * len(people)
        lanes = party.encrypt([value] * rows)
        request = LanesRequest(1, 0, lanes, party.partial_decrypt(lanes))
        try:
            parties.csp.answer(request.to_bytes())
        except (RoundEnded, OutOfTurn):
            return False
        return True

    assert answered(plaintext) == (plaintext > 0)
    assert not answered(5)
    assert not answered(7)


def test_repro_no_reply_of_csp_shows_a_parity():
    """[[Q]] with Jacobi symbol -1 would make the symbol of [[Q]]^(X + R) the last bit of X + R."""
    parties = deal(1, key_bits=512, max_participants=4, lanes=0, total="hidden", sigma=20)
    party, public = parties.sp.party, parties.sp.party.public
    odd = next(mpz(r) for r in range(2, 1000) if gmpy2.jacobi(r, public.n) == -1)
    blind = Ciphertext(gmpy2.powmod(odd, public.n, public.n_squared), public)
    factor = CipherVector.of([public.encrypt(1) + blind], public)
    masked = party.encrypt([3])
    with pytest.raises(ProtocolError):
        parties.csp.answer(ScaleRequest(1, 0, masked, party.partial_decrypt(masked), factor).to_bytes())


def test_opened_sums_are_uniform_whatever_was_uploaded():
    """The same uploads opened in two tasks share nothing."""
    seen = [to_ints(published(lanes=0).csp.party.view.of("opened")[0]) for _ in range(2)]
    assert set(seen[0]).isdisjoint(seen[1])
