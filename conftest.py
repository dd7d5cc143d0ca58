"""Keys that the tests share, which tests are of the second tier, and how hard hypothesis looks.

`HYPOTHESIS_PROFILE=fuzz` searches longer and anew each time; the default repeats the same examples, so that a run is stable.
"""

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import subprocesses

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.pctd import FreshRandomizers, KeyShare, PrivateKey, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, encrypt

settings.register_profile("default", max_examples=30, derandomize=True, deadline=None)
settings.register_profile(
    "fuzz", max_examples=2_500, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
# Workers and the processes they start are more than there are cores: threads of torch would wait for each other, spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Folders and files whose tests take long and guard what seldom changes: `make test-all` runs them, `make test` does not.
SECOND_TIER = (
    "lab/lab_tests/audit",
    "lab/lab_tests/bench",
    "lab/lab_tests/demo/test_both.py",
    "lab/lab_tests/experiments",
    "lab/lab_tests/report",
    "lab/lab_tests/test_recorder.py",
    "tests/attacks/test_hardened.py",
    "tests/attacks/test_paper.py",
    "tests/attacks/test_shares.py",
    "tests/attacks/test_words.py",
    "tests/campaigns",
    "tests/cli/test_campaign.py",
    "tests/cli/test_recruiting.py",
    "tests/cluster",
    "tests/crypto/test_cuda.py",
    "tests/faults",
    "tests/fuzz/test_routes.py",
    "tests/fuzz/test_schema.py",
    "tests/http/test_sockets.py",
    "tests/http/test_unused.py",
    "tests/mutations",
    "tests/protocols/test_averages.py",
    "tests/protocols/test_claims.py",
    "tests/protocols/test_costs.py",
    "tests/protocols/test_guard.py",
    "tests/protocols/test_local.py",
    "tests/protocols/test_order.py",
    "tests/protocols/test_rewards.py",
    "tests/protocols/test_running.py",
    "tests/protocols/test_sdiv.py",
    "tests/protocols/test_secrets.py",
    "tests/roles/test_averaged_again.py",
    "tests/roles/test_chain.py",
    "tests/roles/test_claims_by_round.py",
    "tests/roles/test_csp_replies.py",
    "tests/roles/test_damaged_uploads.py",
    "tests/roles/test_fixed_pay.py",
    "tests/roles/test_missing_rewards.py",
    "tests/roles/test_reference.py",
    "tests/roles/test_restored.py",
    "tests/roles/test_round_record.py",
    "tests/roles/test_unreadable_replies.py",
    "tests/roles/test_unused.py",
    "tests/shares",
    "tests/simulate/test_resume.py",
    "tests/storage/test_pools.py",
    "tests/storage/test_sql_races.py",
    "tests/web/test_console_api.py",
    "tests/web/test_phone_files.py",
    "tests/web/test_requester_api.py",
)
_HERE = Path(__file__).parent
_SECOND_TIER = tuple(_HERE / folder for folder in SECOND_TIER)

_TRIED = {"inputs": 0}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` loads no file that it runs nothing of."""
    first = str(config.option.markexpr).startswith("not second")
    return True if first and _is_second(collection_path) else None


@functools.cache  # thousands of tests are in a few hundred files
def _is_second(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _SECOND_TIER)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the second tier."""
    for item in items:
        if _is_second(item.path):
            item.add_marker(pytest.mark.second)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Inputs that a test has tried, as `tests/fuzz` counts them."""
    if report.when == "teardown":
        _TRIED["inputs"] += dict(report.user_properties).get("inputs", 0)


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """Under `make fuzz`, how far it has come."""
    if not isinstance(report, pytest.TestReport):
        return None  # a file that could not be collected
    inputs = dict(report.user_properties).get("inputs", 0)
    if report.when != "call" or not report.passed or not inputs:
        return None
    return "passed", ".", f"PASSED, {_TRIED['inputs'] + inputs:,} inputs so far"


def pytest_sessionfinish() -> None:
    """No process outlives the tests."""
    subprocesses.end_all()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much was tried."""
    if _TRIED["inputs"]:
        terminalreporter.write_line(f"{_TRIED['inputs']:,} hostile inputs to decoders and routes")


@dataclass(frozen=True)
class Keys:
    """One key with everything that hangs on it."""

    public: PublicKey
    private: PrivateKey
    shares: tuple[KeyShare, KeyShare]
    randomizers: FreshRandomizers

    def encrypt(self, numbers: Iterable[int]) -> CipherVector:
        """Signed numbers as a vector."""
        return encrypt(self.randomizers, numbers)

    def read(self, vector: CipherVector) -> list[int]:
        """The plaintexts, one at a time by the scalar Dec, which shares no code with the batches."""
        return [self.private.decrypt(vector[i]) for i in range(len(vector))]


def _keys(prime_bits: int) -> Keys:
    pair = pctd.keygen(prime_bits, insecure_test_key=prime_bits < pctd.SECURE_PRIME_BITS)
    return Keys(pair.public, pair.private, pair.private.split(), FreshRandomizers(pair.public, window=4))


@pytest.fixture(scope="session")
def keys() -> Keys:
    """A test key, |N| = 128."""
    return _keys(64)


@pytest.fixture(scope="session")
def other_keys() -> Keys:
    """Another key as long as `keys`."""
    return _keys(64)


@pytest.fixture(scope="session")
def wide_keys() -> Keys:
    """A test key with room for many slots, |N| = 256."""
    return _keys(128)


@pytest.fixture(scope="session")
def real_keys() -> Keys:
    """A key as campaigns use it, |N| = 2048. Mark the test `realkey`."""
    return _keys(1024)


@pytest.fixture(scope="session", params=[1, 3], ids=["one worker", "three workers"])
def backend(request: pytest.FixtureRequest) -> Threads:
    """The threads backend, alone and with company."""
    return Threads(request.param)
