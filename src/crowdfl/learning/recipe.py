"""A task's [training] section: how windows are cut, what a network is fed, which one it is and how it is trained.

Everyone in a task follows the same recipe. docs/settings.md lists what a task file may say.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from crowdfl.errors import DataMalformed, OwnCodeError, SettingsError
from crowdfl.learning.datasets.csv_files import Beside
from crowdfl.learning.datasets.data import Cut, Labels, Person, Split, Values, Windows, relabelled, standardised, valued
from crowdfl.learning.datasets.sources import load_split
from crowdfl.learning.features import Inputs, beside, features, features_per_window, scaled
from crowdfl.learning.models.layers import convolutional, is_folded, with_last
from crowdfl.learning.models.learner import Learner, Training
from crowdfl.learning.models.network import NetworkLearner
from crowdfl.learning.models.own_code import OwnLearner, constructed, load_code
from crowdfl.learning.models.softmax import SoftmaxLearner
from crowdfl.learning.models.torch_models import TorchLearner, built_in, is_torch_module, own_loss, own_module
from crowdfl.settings import FUNCTIONS, LOSSES, TORCH_FUNCTIONS, TrainingSettings, is_code


class Recipe(TrainingSettings):
    """A task's training settings, and what follows from them."""

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Self:
        """From a task file's contents, or which entry is missing or wrong. A stranger may have written them."""
        return cls.parse(section, "[training]")

    @property
    def cut(self) -> Cut:
        length = self.window_samples
        step = max(1, length // 4) if self.step is None else self.step
        # Nothing that a training window holds goes on into one that is tested on: a window is left out between them.
        return Cut(length, step, self.held_out, gap=length, hertz=self.hertz)

    @property
    def training(self) -> Training:
        return Training(self.epochs, self.batch, self.rate, self.seed, self.proximal)

    @property
    def beside(self) -> Beside:
        """What is recorded beside motion: sensors, and questions with their choices."""
        answers = [(question.id, question.choices) for question in self.questions if question.use == "feature"]
        return (*((name, ()) for name in self.sensors), *answers)

    @property
    def width(self) -> int:
        """Channels of a window: motion, sensors beside it, and a column for each choice of a question."""
        return self.channels + sum(len(choices) or 1 for _, choices in self.beside)

    @property
    def inputs(self) -> int:
        """Numbers that the network is fed per window."""
        motion = features_per_window(self.features, self.window_samples, self.channels)
        return motion + self.width - self.channels + len(self.sensors)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample: a row, or a whole window."""
        return (self.window_samples, self.channels) if self.features == "windows" else (self.inputs,)

    @property
    def takes_functions(self) -> bool:
        """Everyone brings code of their own, about which the task says nothing."""
        return self.learner in (FUNCTIONS, TORCH_FUNCTIONS)

    @property
    def learns_values(self) -> bool:
        return self.target == "value"

    def make_learner(self, learner: str | None = None, *, loss: str | None = None) -> Learner:
        """At its first weights, which follow from the seed. The arguments name code that this machine's user agrees to run."""
        self._check_code(learner, loss)
        if self.learner == "softmax":
            return SoftmaxLearner(self.inputs, len(self.labels))
        made = self._own(learner) if learner else self._network(own_loss=loss is not None)
        if isinstance(made, NetworkLearner):
            return made
        if isinstance(made, OwnLearner):
            if self.loss is not None:
                raise SettingsError(f"`loss` is {self.loss!r}, and {learner} has its own loss: leave `loss` out")
            return made
        own = own_loss(loss, len(self.labels), values=self.learns_values) if loss else None
        return made.aimed(own or built_in(self.loss, values=self.learns_values), values=self.learns_values)

    def _check_code(self, learner: str | None, loss: str | None) -> None:
        """Code is run only where its user names it, and named only where the task has such."""
        if self.takes_functions:
            raise SettingsError(
                "the task is for functions of people's own: take part by `crowdfl.join` in Python, and use the model there"
            )
        if is_code(self.learner) and not learner:
            raise SettingsError(_ask_for("learner", self.learner, "trains code of its own"))
        if learner and not is_code(self.learner):
            raise SettingsError(f'the task trains learner = "{self.learner}", no code of its own: leave --learner out')
        own_loss_wanted = self.loss is not None and is_code(self.loss)
        if own_loss_wanted and self.learner == "softmax":
            raise SettingsError(f"`loss` is {self.loss!r}, and softmax has its own loss: leave `loss` out")
        if own_loss_wanted and not loss:
            raise SettingsError(_ask_for("loss", self.loss or "", "trains with a loss of its own"))
        if loss and not own_loss_wanted:
            raise SettingsError("the task has no loss of its own: leave --loss out")
        if self.features == "windows" and not is_code(self.learner):
            raise SettingsError(
                f'features = "windows" is for code of your own; for learner = "{self.learner}" say features = "flat"'
            )

    def _own(self, name: str) -> TorchLearner | OwnLearner:
        """A torch module is trained as networks here are; any other class trains itself."""
        found, labels = load_code(name), len(self.labels)
        if not isinstance(found, type):
            raise OwnCodeError(f"{name} is not a class: code of your own is package.module:Class")
        inputs = self.input_shape if self.features == "windows" else self.inputs  # as own code is told it
        if is_torch_module(found):
            return TorchLearner.around(own_module(name, inputs, labels, self.seed), inputs)
        offered = {"inputs": inputs, "labels": labels, "seed": self.seed, "recipe": self}
        made = constructed(name, found, offered)
        return OwnLearner(name, made, self.input_shape, labels, values=self.learns_values)

    def _network(self, *, own_loss: bool) -> NetworkLearner | TorchLearner:
        """In NumPy, but for convolutions and a loss of the user's own, which is written in torch."""
        labels = len(self.labels)
        layers = convolutional(labels) if self.learner == "conv" else with_last(self.layers, labels)
        folded = is_folded(layers)
        if folded and self.features != "flat":
            raise SettingsError(f'convolutions slide over samples: say features = "flat", not {self.features!r}')
        if folded or own_loss:
            return TorchLearner(self.inputs, layers, self.seed, self.channels if folded else None)
        return NetworkLearner(self.inputs, layers, self.seed, (self.loss or LOSSES[0]) if self.learns_values else None)

    def load(self, data: str) -> Split:
        """The windows of the person that the text names, as this recipe wants them."""
        return self.adapt(load_split(data, self.cut, self.value_names, self.beside))

    @property
    def value_names(self) -> tuple[str, ...]:
        """The numbers that are learned, if any."""
        return self.labels if self.learns_values else ()

    def adapt(self, split: Split) -> Split:
        """A person's windows with the task's labels or values, or what does not fit."""
        name = split.train.name
        found = split.train.windows.shape[1:]
        wanted = (self.window_samples, self.width)
        if found != wanted:
            told = zip(("window_samples", "channels"), found, wanted, strict=True)
            write = " and ".join(f"{key} = {have}" for key, have, want in told if have != want)
            raise DataMalformed(
                f"{name}: the data has windows of {found[0]} x {found[1]} (samples x channels), the task's are of "
                f"{wanted[0]} x {wanted[1]}: take other data, or let the task say {write} in its [training]"
            )
        split = valued(split, self.labels) if self.learns_values else relabelled(split, self.labels)
        if not len(split.train):
            raise DataMalformed(f"{name}: no window of {wanted[0]} samples to train on: record longer stretches")
        return standardised(split, self.channels) if self.standardise else split

    def targets_of(self, person: Person) -> Labels | Values:
        """What is learned of each window: labels (n,), or values (n, values)."""
        if not self.learns_values:
            return person.labels
        if person.values is None:
            raise DataMalformed(f"{person.name}: there are no values to learn from")
        return person.values

    def inputs_of(self, windows: Windows, own: Windows | None = None) -> Inputs:
        """What a learner is fed. `own` are the person's training windows, which `scale_inputs` takes its numbers from."""
        inputs = self._motion_inputs(windows, own)
        if not self.beside:
            return inputs
        return np.concatenate([inputs, beside(windows[:, :, self.channels :], len(self.sensors))], axis=1)

    def _motion_inputs(self, windows: Windows, own: Windows | None) -> Inputs:
        inputs = np.ascontiguousarray(features(self.features, windows[:, :, : self.channels]))
        if not self.scale_inputs:
            return inputs
        if own is None:
            raise DataMalformed(
                "this model's inputs are scaled by a person's training windows: name all of that person's data"
            )
        return scaled(inputs, inputs if own is windows else features(self.features, own[:, :, : self.channels]))

    def both_inputs(self, split: Split) -> tuple[Inputs, Inputs]:
        """Of the training windows, and of those held out."""
        own = split.train.windows
        return self.inputs_of(own, own), self.inputs_of(split.held_out.windows, own)


def _ask_for(option: str, name: str, what: str) -> str:
    return f"the task {what}: install and read it, then say --{option} {name}"
