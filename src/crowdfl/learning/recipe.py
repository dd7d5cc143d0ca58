"""A task's [training] section: how windows are cut, what a network is fed, which one it is and how it is trained.

Everyone in a task follows the same recipe. What a task file may say is listed in docs/learning.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.data import Cut, Split, Windows, relabelled, standardised
from crowdfl.learning.datasets.sources import load_split
from crowdfl.learning.features import Inputs, features, features_per_window
from crowdfl.learning.models.learner import Learner, Training
from crowdfl.learning.models.networks import convolutional, mlp, own_module
from crowdfl.learning.models.softmax import SoftmaxLearner
from crowdfl.learning.models.torch_learner import TorchLearner

__all__ = ["LEARNERS", "Recipe"]

LEARNERS = ("network", "conv", "softmax", "module")

_CUT_KEYS = {"window": int, "step": int, "held_out": float, "gap": int, "hertz": float}
_LONGEST = 10_000
_TRAINING_KEYS = {"epochs": int, "batch": int, "rate": float, "seed": int}
_KNOWN = {"labels", "learner", "features", "hidden", "layers", "module", "channels", "standardise"} | {
    *_CUT_KEYS,
    *_TRAINING_KEYS,
}


@dataclass(frozen=True)
class Recipe:
    """The section as values. Lengths and rates that it leaves out are the watch's."""

    labels: tuple[str, ...]
    learner: str = "network"
    features: str = "motion"
    hidden: tuple[int, ...] = (32,)
    layers: tuple[str, ...] = ()  # in place of `hidden`
    module: str = ""
    channels: int = 6
    standardise: bool = False
    cut: Cut = field(default_factory=lambda: Cut(100, 25, held_out=0.3, gap=100, hertz=watch.HERTZ))
    training: Training = field(default_factory=Training)

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> "Recipe":
        """From a task file's contents, or which entry is missing or wrong. A stranger may have written them."""
        if unknown := set(section) - _KNOWN:
            raise SettingsError(f"[training] does not take {', '.join(sorted(map(str, unknown)))[:80]}")
        if not (labels := _texts(section, "labels")) or len(set(labels)) != len(labels):
            raise SettingsError('[training] needs the labels to tell apart, as in labels = ["sitting", "walking"]')
        cut, training = _numbers(section, _CUT_KEYS), _numbers(section, _TRAINING_KEYS)
        length, channels = cut.pop("window", watch.CUT.length), _number("channels", section.get("channels", 6), int)
        if not (0 < length <= _LONGEST and 0 < channels <= _LONGEST):
            raise SettingsError(f"[training] takes a window and channels of 1 to {_LONGEST:,}")
        if training.get("epochs", 1) > _LONGEST:  # a phone must not be kept busy for ever
            raise SettingsError(f"[training] takes at most {_LONGEST:,} epochs a round, not {training['epochs']:,}")
        usual = {"step": max(1, length // 4), "gap": length, "hertz": watch.HERTZ}
        return cls(
            labels=labels,
            learner=_one_of(_text(section, "learner", "network"), LEARNERS),
            features=_text(section, "features", "motion"),
            hidden=_sizes(section.get("hidden", (32,))),
            layers=_texts(section, "layers"),
            module=_text(section, "module", ""),
            channels=channels,
            standardise=section.get("standardise", False) is True,
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
    return {key: _number(key, section[key], kind) for key, kind in keys.items() if key in section}


def _number(key: str, value: object, kind: type) -> Any:  # noqa: ANN401 -- an int or a float, as the key wants
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
    if not fits or (kind is int and value % 1):  # type: ignore[operator]  # a number by now
        raise SettingsError(f"[training] {key} is a number{' without decimals' * (kind is int)}, not {value!r:.60}")
    return kind(value)


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise SettingsError(f"[training] hidden is a list of sizes, as in hidden = [32], not {value!r:.60}")
    return tuple(_number("hidden", size, int) for size in value)


def _text(section: Mapping[str, Any], key: str, usual: str) -> str:
    if not isinstance(value := section.get(key, usual), str):
        raise SettingsError(f"[training] {key} is a text, not {value!r:.60}")
    return value


def _texts(section: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = section.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise SettingsError(f"[training] {key} is a list of texts, not {value!r:.60}")
    return tuple(value)


def _one_of(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise SettingsError(f"a task's learner is one of {', '.join(names)}, not {name!r:.60}")
    return name
