"""One honest round of each profile, shared by the tests of a worker."""

import pytest

from crowdfl_lab.audit.finding import HARDENED, PAPER
from crowdfl_lab.audit.recorded_round import RecordedRound, record_round

# Of eight parameters, the r of one exchange in 250 have a factor in common, and the total is taken for twice itself.
PARAMETERS = 30


@pytest.fixture(scope="session")
def paper() -> RecordedRound:
    """A round of the paper, with a retransmission."""
    return record_round(PAPER, key_bits=768, parameters=PARAMETERS)


@pytest.fixture(scope="session")
def hardened() -> RecordedRound:
    """A round of `hardened`."""
    return record_round(HARDENED, key_bits=1536, parameters=PARAMETERS)
