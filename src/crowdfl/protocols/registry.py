"""The profiles by name."""

from crowdfl.errors import SettingsError
from crowdfl.protocols.hardened.profile import HardenedProfile
from crowdfl.protocols.paper.profile import PaperProfile
from crowdfl.protocols.profile import Profile
from crowdfl.protocols.shares.profile import SharesProfile

PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (SharesProfile(), HardenedProfile(), PaperProfile())
}


def profile_named(name: str) -> Profile:
    if name not in PROFILES:
        raise SettingsError(f"profile is {' or '.join(sorted(PROFILES))}, not {name!r}")
    return PROFILES[name]
