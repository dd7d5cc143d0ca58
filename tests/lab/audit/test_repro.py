"""Leaks that the audit found in `hardened`. Each test states what must hold."""

from functools import partial

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.pctd import Ciphertext
from crowdfl.crypto.vector import CipherVector
from crowdfl.errors import CrowdFLError, ProtocolError, SeedReused, TooFewParticipants
from crowdfl.lab.audit.averages import attack_hidden_total
from crowdfl.lab.audit.finding import Verdict
from crowdfl.lab.audit.scene import deal
from crowdfl.lab.parties import LocalParties
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.hardened.prifedavg import ScaleRequest
from crowdfl.protocols.sdiv import SdivRequest

BOUNDS = {"max_participants": 5, "max_samples": 20, "clip": 1.0, "decimals": 2, "sigma": 20, "key_bits": 768}
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


def test_a_retry_of_the_same_payment_sends_the_same_numbers():
    """What CSP opens is what it opened before."""
    parties = published(lanes=None)
    for _ in range(2):
        parties.current().reward(36_000_000)
    for name in ("lanes", "SMUL x'", "SDIV x'", "SDIV y'", "rewards"):
        seen = parties.csp.party.view.of(name)
        assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_repro_another_nonce_meets_other_masks():
    """CSP that lost its nonce deals another sketch; under the same masks their difference would be the update's."""
    parties = published(lanes=1)
    for _ in range(2):
        parties.current().reward(36_000_000)
        parties.csp.remember({})
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
    round_ = parties.open(1)
    round_.collect(parties.encrypt({f"p{i}": (np.full(2, 0.25), 10) for i in range(3)}))
    step = parties.sp.publish(final=False)
    request = next(step)
    for _ in range(2):  # SP falls over with the opening under way
        request = step.send(partial(parties.csp.answer, request))
    assert np.allclose(parties.read(round_.average(), 1, ["p0"]).weights, 0.25, atol=1e-6)


def test_repro_no_error_of_csp_is_a_comparison():
    """If a chosen ciphertext's sign shows in an error, CSP must not answer the next: SP would decrypt by halving."""
    parties = published(lanes=None)
    party = parties.sp.party

    def answered(plaintext: int) -> bool:
        x, one = party.encrypt([plaintext]), party.encrypt([1])
        request = SdivRequest(x, party.partial_decrypt(x), one, party.partial_decrypt(one), 0)
        try:
            parties.csp.answer(request.to_bytes())
        except CrowdFLError:
            return False
        return True

    assert answered(-5) == answered(5)


def test_repro_no_reply_of_csp_shows_a_parity():
    """[[Q]] with Jacobi symbol -1 would make the symbol of [[Q]]^(X + R) the last bit of X + R."""
    parties = deal(1, key_bits=512, max_participants=4, lanes=0, total="hidden", sigma=20)
    party, public = parties.sp.party, parties.sp.party.public
    odd = next(mpz(r) for r in range(2, 1000) if gmpy2.jacobi(r, public.n) == -1)
    blind = Ciphertext(gmpy2.powmod(odd, public.n, public.n_squared), public)
    factor = CipherVector.of([public.encrypt(1) + blind], public)
    masked = party.encrypt([3])
    with pytest.raises(ProtocolError):
        parties.csp.answer(ScaleRequest(0, masked, party.partial_decrypt(masked), factor).to_bytes())


def test_opened_sums_are_uniform_whatever_was_uploaded():
    """The same uploads opened in two tasks share nothing."""
    seen = [to_ints(published(lanes=0).csp.party.view.of("opened")[0]) for _ in range(2)]
    assert set(seen[0]).isdisjoint(seen[1])
