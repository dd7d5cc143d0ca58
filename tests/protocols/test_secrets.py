"""Secrets never reach repr: sides, seeds, envelopes, claims, coins, bundles, keys."""

import dataclasses

import numpy as np
import pytest

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.sealing import AudienceKey, ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import NotFinite
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.claims import Claim, RewardEnvelope
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.hardened.bundles import ReaderBundle
from crowdfl.protocols.hardened.opening import Publication
from crowdfl.protocols.hardened.profile import HardenedSpRound
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.paper.profile import PaperBundle
from crowdfl.protocols.profile import ParticipantKeys, SpRecord
from crowdfl.protocols.shares.round.sp import SharesSpRound
from tests.protocols.driving import SMALL, deal, federation, updates

SECRET = bytes(range(200, 232))
NUMBER = 123456789012345678901234567890


def shows(thing, *secrets):
    """Whether a repr, or that of anything it holds directly, gives one of the secrets away in any usual form."""
    parts = [thing, *vars(thing).values()] if hasattr(thing, "__dict__") else [thing]
    texts = [repr(part) for part in parts if dataclasses.is_dataclass(part) or part is thing]
    forms = []
    for secret in secrets:
        text = isinstance(secret, bytes)
        forms += [repr(secret)[2:-1], secret.hex()] if text else [str(int(secret)), hex(secret)[2:]]
    return [form for form in forms for text in texts if form in text]


@pytest.mark.parametrize(
    "thing",
    [
        MaskSeed(SECRET, bytes(32)),
        SpRecord(SECRET, SECRET),
        HardenedSpRound(opening=SECRET),
        SharesSpRound(SECRET, (SECRET,), SECRET),
        Coins(SECRET),
        AudienceKey(SECRET),
        ReaderKey(SECRET),
        SigningKey(SECRET),
        ParticipantKeys("p", SigningKey(SECRET), ReaderKey(SECRET)),
        RewardEnvelope(NUMBER, SECRET, SECRET),
        Claim("task", "p", (1,), (NUMBER,), (NUMBER,), (SECRET,), (SECRET,), (), b"", 0, b"s"),
        Publication(SECRET, 1, (b"sealed",)),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_is_built_from_a_secret_does_not_show_it(thing):
    """Neither as bytes, nor in hex, nor as a number."""
    assert shows(thing, SECRET, NUMBER) == []


def test_the_check_above_can_fail():
    """A plain dataclass does show its secret."""
    plain = dataclasses.make_dataclass("Plain", ["seed", "number"])
    assert len(shows(plain(SECRET, NUMBER), SECRET, NUMBER)) >= 2


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_sides_do_not_show_their_keys(profile):
    """SP, CSP, requester, participants, their parties and the dealing, before and after a round."""
    settings = SMALL | {"max_participants": 3, "profile": profile, "key_bits": 1280, "mask_bits": 60}
    sides = deal(3, 1, **settings)
    sides.play(1, {who: sides.upload([0.1 * i], 1, who) for i, who in enumerate(sides.people)}, payment=1_000_000)
    everyone = [sides.sp, sides.csp, sides.requester, *sides.people.values(), sides, sides.dealing]
    dealing = sides.dealing
    secrets = [sides.sp.party.share.exponent, sides.csp.party.share.exponent]
    secrets += [dealing.csp[-32:]]
    if profile == "hardened":
        readers = [ReaderBundle.from_bytes(b, Limits.plain()) for b in (dealing.participant, dealing.requester)]
        secrets += [reader.audience for reader in readers]
    else:
        dealt = (dealing.sp, dealing.csp, dealing.participant, dealing.requester)
        secrets += [key for one in dealt for key in PaperBundle.from_bytes(one, Limits.plain()).secrets]
    for side in everyone:
        assert shows(side, *secrets) == []
        if hasattr(side, "party"):
            assert shows(side.party, *secrets) == []


def test_views_are_kept_but_not_printed():
    """They are for the audit; a log that prints a result prints no opened value."""
    result = federation().round(updates([[0.5]] * 3, [1] * 3))
    view = result.views["CSP"]
    assert len(view.entries) > 0
    assert "array" not in repr(view)


def test_an_update_does_not_show_its_weights():
    """The model is what the whole protocol hides."""
    assert "0.123456" not in repr(Update([np.array([0.123456])], 3))


def test_errors_do_not_hold_weights():
    """A refused model is described by place and number."""
    with pytest.raises(NotFinite) as refusal:
        federation().round(updates([[0.123456, float("nan")]] * 3, [1] * 3))
    assert "0.123456" not in str(refusal.value)
