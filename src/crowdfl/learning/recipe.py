"""A task's [training] section: how windows are cut, what a network is fed, which one it is and how it is trained.

Everyone in a task follows the same recipe. What a task file may say is listed in docs/learning.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning import watch
from crowdfl.learning.data import Cut, Split, Windows
from crowdfl.learning.features import Inputs, features, features_per_window
from crowdfl.learning.layers import convolutional, mlp
from crowdfl.learning.learner import Learner, Training
from crowdfl.learning.own_module import own_module
from crowdfl.learning.softmax import SoftmaxLearner
from crowdfl.learning.sources import load_split
from crowdfl.learning.splits import relabelled, standardised
from crowdfl.learning.torch_learner import TorchLearner

__all__ = ["LEARNERS", "Recipe"]

LEARNERS = ("network", "conv", "softmax", "module")

_CUT_KEYS = {"window": int, "step": int, "held_out": float, "gap": int, "hertz": float}
_TRAINING_KEYS = {"epochs": int, "batch": int, "rate": float, "seed": int}


@dataclass(frozen=True)
class Recipe:
    """The section as values. Lengths and rates that it leaves out are the watch's."""

    labels: tuple[str, ...]
    learner: str = "network"
    features: str = "motion"
    hidden: tuple[int, ...] = (32,)
    layers: tuple[str, ...] = ()  # in place of `hidden`
    module: str = ""
    channels: int = len(watch.UNITS)
    standardise: bool = False
    cut: Cut = field(default_factory=lambda: Cut(100, 25, held_out=0.3, gap=100, hertz=watch.HERTZ))
    training: Training = field(default_factory=Training)

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> "Recipe":
        """From a task file's contents, or which entry is missing or wrong."""
        known = {"labels", "learner", "features", "hidden", "layers", "module", "channels", "standardise"}
        if unknown := set(section) - known - set(_CUT_KEYS) - set(_TRAINING_KEYS):
            raise SettingsError(f"[training] does not take {', '.join(sorted(unknown))}")
        if not section.get("labels"):
            raise SettingsError('[training] needs the labels to tell apart, as in labels = ["sitting", "walking"]')
        try:
            cut, training = _numbers(section, _CUT_KEYS), _numbers(section, _TRAINING_KEYS)
            hidden = tuple(int(size) for size in section.get("hidden", (32,)))
            channels = int(section.get("channels", len(watch.UNITS)))
        except (TypeError, ValueError) as error:
            raise SettingsError(f"[training] holds something else where a number is needed: {error}") from error
        length = cut.pop("window", watch.CUT.length)
        usual = {"step": max(1, length // 4), "gap": length, "hertz": watch.HERTZ}
        return cls(
            labels=tuple(map(str, section["labels"])),
            learner=_one_of(str(section.get("learner", "network")), LEARNERS),
            features=str(section.get("features", "motion")),
            hidden=hidden,
            layers=tuple(map(str, section.get("layers", ()))),
            module=str(section.get("module", "")),
            channels=channels,
            standardise=bool(section.get("standardise", False)),
            cut=Cut(length, **{**usual, **cut}),
            training=Training(**training),
        )

    @property
    def inputs(self) -> int:
        """Numbers that the network is fed per window."""
        return features_per_window(self.features, self.cut.length, self.channels)

    def make_learner(self, module: str | None = None) -> Learner:
        """At its first weights, which follow from the seed. `module` is the code that this machine's user agrees to run."""
        labels, seed = len(self.labels), self.training.seed
        if self.learner == "softmax":
            return SoftmaxLearner(self.inputs, labels)
        if self.learner == "module":
            if not module:
                raise SettingsError(
                    f"the task trains code of its own: install and read it, then say --module {self.module}"
                )
            return TorchLearner.around(own_module(module, self.inputs, labels, seed), self.inputs)
        usual = convolutional(labels) if self.learner == "conv" else mlp(self.hidden, labels)
        layers = list(self.layers) or usual
        if layers[-1] != f"linear {labels}":
            raise SettingsError(f"the last layer is {layers[-1]!r}; {labels} labels need 'linear {labels}'")
        folded = any(layer.startswith("conv") for layer in layers)
        if folded and self.features != "flat":
            raise SettingsError(f'convolutions slide over samples: say features = "flat", not {self.features!r}')
        return TorchLearner(self.inputs, layers, seed, self.channels if folded else None)

    def load(self, data: str) -> Split:
        """The windows of the person that the text names, as this recipe wants them."""
        return self.adapt(load_split(data, self.cut))

    def adapt(self, split: Split) -> Split:
        """A person's windows with the task's labels, or what does not fit."""
        name, found, wanted = split.train.name, split.train.windows.shape[1:], (self.cut.length, self.channels)
        if found != wanted:
            raise DataMalformed(
                f"{name}: the windows are {found[0]} samples of {found[1]} channels, the task's are {wanted}"
            )
        split = relabelled(split, self.labels)
        if not len(split.train):
            raise DataMalformed(
                f"{name}: there is no window of {wanted[0]} samples to train on: record longer stretches"
            )
        return standardised(split) if self.standardise else split

    def inputs_of(self, windows: Windows) -> Inputs:
        """What the network is fed."""
        return np.ascontiguousarray(features(self.features, windows))


def _numbers(section: Mapping[str, Any], keys: Mapping[str, type]) -> dict[str, Any]:
    return {key: kind(section[key]) for key, kind in keys.items() if key in section}


def _one_of(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise SettingsError(f"a task's learner is one of {', '.join(names)}, not {name!r}")
    return name
