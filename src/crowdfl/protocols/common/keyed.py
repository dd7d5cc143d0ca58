"""What the sides of every profile with a Paillier key have alike: the parts of the interface that are nothing here.

Nothing is dealt for single rounds, and no average follows from another one. An upload out of bounds ends its round: none is
left out.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from crowdfl.errors import InvalidKey, SettingsError
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import RoleProtocol, TaskSpec
from crowdfl.settings import TaskSettings


def keyed_party(side: RoleProtocol) -> KeyedParty:
    """The party of a side whose profile has a key."""
    if not isinstance(side.party, KeyedParty):
        raise InvalidKey("this task has no key: its profile works without one")
    return side.party


class KeyedSide:
    """The dealing's fingerprint is its public key's."""

    party: KeyedParty

    @property
    def fingerprint(self) -> bytes:
        return self.party.public.fingerprint


class KeyedReader(KeyedSide):
    """Every average stands for itself."""

    scaled: float | None = None

    def resume(self, chain: bytes | None, initial: npt.NDArray[np.float64]) -> None:
        """There is nothing to follow."""

    def chain(self) -> bytes | None:
        return None


class KeyedSp(KeyedSide):
    """No round needs anything of another one."""

    signed_uploads = False

    def set_dealt_loader(self, load: Callable[[int], bytes]) -> None:
        """Nothing is dealt for a round."""

    def load_previous(self, left: bytes | None) -> None:
        """Nothing is left."""

    def carry_over(self) -> bytes | None:
        return None

    def rejected(self) -> Mapping[str, str]:
        return {}


class KeyedCsp(KeyedSide):
    """The same on CSP."""

    def set_dealt_loader(self, load: Callable[[int], bytes]) -> None:
        """Nothing is dealt for a round."""

    def spent_rounds(self) -> Iterable[int]:
        return ()


class KeyedProfile:
    """Rewards by the paper's Eq. 10."""

    name: str
    default_rule = "distance"
    chained = False

    def dealt_bytes(self, settings: TaskSettings, parameters: int) -> Mapping[str, int]:
        return {}

    def dealt(self, spec: TaskSpec, source: bytes, role: str, number: int) -> bytes:
        return b""

    def check_rule(self, settings: TaskSettings) -> None:
        """Refuse what another profile has and this one has not: it would be ignored."""
        wrong = []
        if settings.rule not in (None, self.default_rule):
            wrong.append(f'rule = "{settings.rule}"')
        if settings.check != "bounds":
            wrong.append(f'check = "{settings.check}"')
        if settings.max_norm is not None:
            wrong.append(f"max_norm = {settings.max_norm}")
        if settings.server_step != "none":  # the requester reads the last average alone, and could not follow the steps
            wrong.append(f'server_step = "{settings.server_step}"')
        if wrong:
            raise SettingsError(
                f"the profile {self.name} has no {' and no '.join(wrong)}: leave it out, or choose the profile shares"
            )
