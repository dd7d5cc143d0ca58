"""What a process has checked is known again by its own tags alone."""

import os

import pytest

from crowdfl.crypto.own_files import OwnFiles


@pytest.fixture
def own() -> OwnFiles:
    files = OwnFiles()
    files.keep("a", [files.mark(b"the head"), files.mark(b"and the rest")])
    return files


def test_the_same_bytes_are_known_and_no_others(own):
    assert own.knows("a", b"the head" + b"and the rest")
    for other in (b"the headand the resT", b"the headand the rest ", b"the head", b"", b"and the restthe head"):
        assert own.knows("a", other) is False
    assert own.knows("b", b"the headand the rest") is None
    own.forget("a")
    assert own.knows("a", b"the headand the rest") is None


def test_tags_are_of_one_process(own):
    """Another one has another key; so has a child that was forked, which knows nothing of what its parent has checked."""
    other = OwnFiles()
    other.keep("a", own._marks["a"])
    assert other.knows("a", b"the headand the rest") is False
    key = own._key.key
    child = os.fork()
    if child == 0:
        os._exit(0 if own.knows("a", b"the headand the rest") is None and own._key.key != key else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert own.knows("a", b"the headand the rest")


def test_no_nonce_serves_two_parts(own):
    """Nor the same part twice: a nonce under two contents would give the key of the tag away."""
    marks = [own.mark(b"x") for _ in range(50)] + list(own._marks["a"])
    assert len({mark.nonce for mark in marks}) == 52
    assert len({mark.tag for mark in marks}) == 52


def test_of_too_many_files_those_that_were_kept_first_are_forgotten():
    own = OwnFiles(most=2)
    for name in "abc":
        own.keep(name, [own.mark(name.encode())])
    assert [own.knows(name, name.encode()) for name in "abc"] == [None, True, True]


def test_neither_key_nor_tags_are_shown(own):
    (mark, _) = own._marks["a"]
    for secret in (own._key.key, mark.tag):
        assert repr(secret) not in repr(own) + repr(mark)
