"""Two good tokens of one holder for a while: the old one ends by itself, by the service's clock."""

import json

import pytest

from crowdfl.errors import Conflict, KeyFileDamaged, NotAuthenticated, SettingsError, TokenExpired
from crowdfl.roles.ports import ManualClock
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.wire import new_token, token_digest

HOUR = 3600.0


@pytest.fixture
def clock():
    """Time that a test moves."""
    return ManualClock(1_000_000.0)


@pytest.fixture
def tokens(tmp_path, clock):
    """With one of SP's."""
    return Tokens(tmp_path / "tokens.json", clock.now)


def test_both_tokens_are_good_until_the_overlap_ends(tokens, clock):
    """To the second; the new one has no end."""
    old = tokens.add("sp", "sp")
    new = tokens.rotate("sp", HOUR)
    assert (tokens.check(old).expires, tokens.check(new).expires) == (1_003_600.0, None)
    clock.time += HOUR - 1
    assert tokens.check(old).role == "sp"
    clock.time += 1
    with pytest.raises(TokenExpired, match="good until 1970-01-12 14:46:40 UTC"):
        tokens.check(old)
    assert tokens.check(new).role == "sp"


def test_a_second_rotation_does_not_lengthen_the_first_one_s_overlap(tokens, clock):
    """Three are good at once, each to its own end."""
    first = tokens.add("sp", "sp")
    second = tokens.rotate("sp", HOUR)
    third = tokens.rotate("sp", 10 * HOUR)
    clock.time += 2 * HOUR
    with pytest.raises(TokenExpired):
        tokens.check(first)
    assert {tokens.check(token).name for token in (second, third)} == {"sp"}


def test_a_stolen_token_is_ended_at_once(tokens):
    """Rotation without an overlap and revocation reach the old ones of the name too, and nobody else's."""
    other, first = tokens.add("csp", "csp"), tokens.add("sp", "sp")
    second = tokens.rotate("sp", HOUR)
    third = tokens.rotate("sp")
    for token in (first, second):
        with pytest.raises(NotAuthenticated):
            tokens.check(token)
    fourth = tokens.rotate("sp", HOUR)
    tokens.revoke("sp")
    for token in (third, fourth):
        with pytest.raises(NotAuthenticated):
            tokens.check(token)
    assert tokens.check(other).role == "csp"


def test_what_has_ended_leaves_the_file_at_the_next_change(tokens, clock):
    """A file that knows ends says so by its version; without any it is one that an older program reads."""
    tokens.add("sp", "sp")
    assert json.loads(tokens.path.read_text())["version"] == 1
    tokens.rotate("sp", HOUR)
    assert json.loads(tokens.path.read_text())["version"] == 2
    assert len(tokens.entries()) == 2
    clock.time += HOUR
    tokens.add("csp", "csp")
    found = json.loads(tokens.path.read_text())
    assert (found["version"], [entry["name"] for entry in found["tokens"]]) == (1, ["sp", "csp"])


def test_a_holder_makes_its_own_token_and_tells_the_digest_alone(tokens, clock):
    """Safe to repeat; the next one replaces it, with or without an overlap."""
    first, second, third = new_token(), new_token(), new_token()
    tokens.accept("sp", "sp", token_digest(first))
    before = tokens.path.read_bytes()
    tokens.accept("sp", "sp", token_digest(first))
    assert tokens.path.read_bytes() == before
    tokens.accept("sp", "sp", token_digest(second), HOUR)
    assert (tokens.check(first).expires, tokens.check(second).expires) == (1_003_600.0, None)
    tokens.accept("sp", "sp", token_digest(second), HOUR)
    assert tokens.check(first).expires == 1_003_600.0
    tokens.accept("sp", "sp", token_digest(third))
    for token in (first, second):
        with pytest.raises(NotAuthenticated):
            tokens.check(token)


def test_a_holder_may_go_back_to_its_old_token_during_the_overlap(tokens):
    """The digest that comes again has no end any more, and is in the file once."""
    first, second = new_token(), new_token()
    tokens.accept("sp", "sp", token_digest(first))
    tokens.accept("sp", "sp", token_digest(second), HOUR)
    tokens.accept("sp", "sp", token_digest(first), HOUR)
    assert (tokens.check(first).expires, tokens.check(second).expires) == (None, 1_003_600.0)
    assert len(tokens.entries()) == 2


@pytest.mark.parametrize("end", ["-1", "1e300", "NaN", "Infinity", '"soon"'])
def test_an_end_that_is_no_time_is_a_damaged_file(tokens, end):
    """Nobody is let in by it, and nothing fails without a name."""
    token = tokens.add("sp", "sp")
    entry = f'{{"name": "sp", "role": "sp", "sha256": "{token_digest(token)}", "expires": {end}}}'
    tokens.path.write_text(f'{{"version": 2, "tokens": [{entry}]}}')
    with pytest.raises(KeyFileDamaged):
        tokens.check(token)


def test_nobody_takes_another_s_digest_or_name(tokens):
    """Digests are public: with another's, its owner would be taken for somebody else."""
    digest = token_digest(new_token())
    tokens.accept("sp", "sp", digest)
    with pytest.raises(Conflict, match="every holder makes its own"):
        tokens.accept("evil", "requester", digest)
    with pytest.raises(Conflict, match="another role"):
        tokens.accept("sp", "requester", token_digest(new_token()))
    for wrong in ("", "0" * 63, "0" * 65, "G" * 64, "0" * 64 + "\n"):
        with pytest.raises(SettingsError, match="64 hexadecimal"):
            tokens.accept("new", "requester", wrong)
    with pytest.raises(SettingsError, match="not negative"):
        tokens.rotate("sp", -1.0)
    assert len(tokens.entries()) == 1
