"""One honest round of each profile, shared by the tests of a worker."""

import pytest

from crowdfl_lab.audit.finding import HARDENED, PAPER
from crowdfl_lab.audit.recorded_round import Scene, play

PARAMETERS = (
    30  # of eight, the r of one exchange in 250 have a factor in common, and the total is taken for twice itself
)


@pytest.fixture(scope="session")
def paper() -> Scene:
    """A round of the paper, with a retransmission."""
    return play(PAPER, key_bits=768, parameters=PARAMETERS)


@pytest.fixture(scope="session")
def hardened() -> Scene:
    """A round of `hardened`."""
    return play(HARDENED, key_bits=1536, parameters=PARAMETERS)
