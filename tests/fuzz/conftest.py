"""One platform for each module that sends requests."""

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal

from tests.fuzz.platform import Platform
from tests.fuzz.trial import Tally


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = Tally.inputs
    try:
        yield
    finally:
        item.user_properties.append(("inputs", Tally.inputs - before))


@pytest.fixture(scope="module")
def platform(tmp_path_factory) -> Iterator[Platform]:
    """KGC, SP and CSP with a task that is over and one whose round is open."""
    with start_blocking_portal() as portal:
        platform = Platform(tmp_path_factory.mktemp("platform"), portal)
        yield platform
        platform.close()
