"""What `crowdfl reproduce` may change of an experiment, and which profiles its encrypted runs go through.

Each experiment lists the options that it uses, by name; another one is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from crowdfl.errors import SettingsError
from crowdfl_lab.experiments.crowds import LearnSettings
from crowdfl_lab.experiments.federated import Keys
from crowdfl_lab.experiments.names import NamedData

PROFILES = ("paper", "hardened", "shares")
_Settings = TypeVar("_Settings", bound="RunSettings")
Change = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class ProfileRun:
    """The size of one profile's encrypted run: hidden units, and lanes where it pays (`paper` has exact distances)."""

    profile: str
    hidden: int
    lanes: int = 0


@dataclass(frozen=True)
class RunSettings:
    """Of an experiment that trains: how, and through which profiles besides in the clear."""

    learn: LearnSettings = field(default_factory=LearnSettings)
    runs: tuple[ProfileRun, ...] = ()
    profiles: tuple[str, ...] = ("hardened", "shares")
    keys: Keys = field(default_factory=Keys)

    @property
    def chosen(self) -> list[ProfileRun]:
        return [run for run in self.runs if run.profile in self.profiles]

    def keys_of(self, run: ProfileRun) -> Keys:
        return replace(self.keys, profile=run.profile, lanes=run.lanes)

    def with_learn(self, **changes: Any) -> Self:  # noqa: ANN401 -- as dataclasses.replace
        return replace(self, learn=replace(self.learn, **changes))

    def with_runs(self, **changes: Any) -> Self:  # noqa: ANN401
        return replace(self, runs=tuple(replace(run, **changes) for run in self.runs))


def with_rounds(settings: _Settings, rounds: int) -> _Settings:
    return settings.with_learn(rounds=rounds)


def with_hidden(settings: _Settings, hidden: int) -> _Settings:
    return settings.with_learn(hidden=hidden).with_runs(hidden=hidden)


def with_lanes(settings: _Settings, lanes: int) -> _Settings:
    return settings.with_runs(lanes=lanes)


def with_profiles(settings: _Settings, profiles: tuple[str, ...]) -> _Settings:
    return replace(settings, profiles=profiles)


def with_data(settings: _Settings, data: NamedData) -> _Settings:
    return settings.with_learn(data=data.label, people=len(data.source.people))


TRAINING: Mapping[str, Change] = {
    "rounds": with_rounds,
    "hidden": with_hidden,
    "profile": with_profiles,
    "data": with_data,
}
"""The options of every experiment that trains."""


def chosen_profiles(names: list[str]) -> tuple[str, ...]:
    """Those named, in the order of `PROFILES`; "all" is all."""
    unknown = [name for name in names if name not in (*PROFILES, "all")]
    if unknown:
        raise SettingsError(f"{', '.join(unknown)}: not a profile; choose from {', '.join(PROFILES)}, all")
    return PROFILES if "all" in names else tuple(name for name in PROFILES if name in names)
