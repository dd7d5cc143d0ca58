"""A task's [training] section: how windows are cut, what a network is fed, which one it is and how it is trained.

Everyone in a task follows the same recipe. docs/settings.md lists what a task file may say.
"""

from collections.abc import Mapping
from typing import Any, Self, get_args

import numpy as np

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Cut, Split, Windows, relabelled, standardised
from crowdfl.learning.datasets.sources import load_split
from crowdfl.learning.features import Inputs, features, features_per_window
from crowdfl.learning.models.learner import Learner, Training
from crowdfl.learning.models.networks import convolutional, mlp, own_module
from crowdfl.learning.models.softmax import SoftmaxLearner
from crowdfl.learning.models.torch_learner import TorchLearner
from crowdfl.settings import TrainingSettings

LEARNERS: tuple[str, ...] = get_args(TrainingSettings.model_fields["learner"].annotation)


class Recipe(TrainingSettings):
    """A task's training settings, and what follows from them."""

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Self:
        """From a task file's contents, or which entry is missing or wrong. A stranger may have written them."""
        return cls.parse(section, "[training]")

    @property
    def cut(self) -> Cut:
        step = max(1, self.window // 4) if self.step is None else self.step
        return Cut(self.window, step, self.held_out, self.window if self.gap is None else self.gap, self.hertz)

    @property
    def training(self) -> Training:
        return Training(self.epochs, self.batch, self.rate, self.seed)

    @property
    def inputs(self) -> int:
        """Numbers that the network is fed per window."""
        return features_per_window(self.features, self.window, self.channels)

    def make_learner(self, module: str | None = None) -> Learner:
        """At its first weights, which follow from the seed. `module` is the code that this machine's user agrees to run."""
        labels, seed = len(self.labels), self.seed
        if self.learner == "softmax":
            return SoftmaxLearner(self.inputs, labels)
        if self.learner == "module":
            if not module:
                raise SettingsError(
                    f"the task trains its own code: install and read it, then say --module {self.module}"
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
        name, found, wanted = split.train.name, split.train.windows.shape[1:], (self.window, self.channels)
        if found != wanted:
            told = zip(("window", "channels"), found, wanted, strict=True)
            write = " and ".join(f"{key} = {have}" for key, have, want in told if have != want)
            raise DataMalformed(
                f"{name}: the data has windows of {found[0]} x {found[1]} (samples x channels), the task's are of "
                f"{wanted[0]} x {wanted[1]}: take other data, or say {write} in the task's [training]"
            )
        split = relabelled(split, self.labels)
        if not len(split.train):
            raise DataMalformed(f"{name}: no window of {wanted[0]} samples to train on: record longer stretches")
        return standardised(split) if self.standardise else split

    def inputs_of(self, windows: Windows) -> Inputs:
        return np.ascontiguousarray(features(self.features, windows))
