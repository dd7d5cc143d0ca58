"""One honest round of each profile, shared by the tests of a worker."""

import pytest

from crowdfl.audit.finding import HARDENED, PAPER
from crowdfl.audit.scene import Scene, play


@pytest.fixture(scope="session")
def paper() -> Scene:
    """A round of the paper, with a retransmission."""
    return play(PAPER, key_bits=768, parameters=8)


@pytest.fixture(scope="session")
def hardened() -> Scene:
    """A round of `hardened`."""
    return play(HARDENED, key_bits=1536, parameters=8)
