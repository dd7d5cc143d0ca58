"""The profiles by name. Each is loaded when it is named: a task has one, and a phone seldom more."""

from functools import cache

from crowdfl.errors import SettingsError
from crowdfl.protocols.profile import Profile

PROFILES = ("shares", "hardened", "paper")


@cache
def profile_named(name: str) -> Profile:
    match name:
        case "shares":
            from crowdfl.protocols.shares.profile import SharesProfile

            return SharesProfile()
        case "hardened":
            from crowdfl.protocols.hardened.profile import HardenedProfile

            return HardenedProfile()
        case "paper":
            from crowdfl.protocols.paper.profile import PaperProfile

            return PaperProfile()
    raise SettingsError(f"profile is {' or '.join(sorted(PROFILES))}, not {name!r}")
