from collections.abc import Iterator

import pytest

from crowdfl.crypto.sealing import seal_to
from crowdfl.protocols import claims


@pytest.fixture(scope="module")
def seals() -> Iterator[None]:
    """Sealing the same to the same gives the same bytes: rounds can be compared, and taken by another CSP."""
    made: dict[tuple[bytes, bytes, bytes], bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "seal_to", lambda *given: made.setdefault(given, seal_to(*given)))
        yield
