"""Which tasks a phone is invited to."""

from dataclasses import replace

import pytest

from crowdfl.errors import SettingsError
from crowdfl.roles.phones import phone_obstacle, require_for_phones
from crowdfl.settings import TaskSettings
from tests.hosts import small_definition

LABELS = {"labels": ["sitting", "walking"]}


def definition(profile="shares", **training):
    return replace(small_definition(TaskSettings.of(profile=profile)), training=LABELS | training)


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"learner": "softmax", "layers": ["conv 8 9"]},  # softmax looks at no layers
        {"learner": "network", "layers": ["linear 4", "tanh", 3], "proximal": 0.1},
        {"features": "spectral", "scale_inputs": True, "target": "label", "loss": None},
        {"features": "flat", "standardise": True},
    ],
)
def test_what_the_page_can_train_is_for_phones(training):
    assert phone_obstacle(definition(**training)) is None
    require_for_phones(definition(**training))


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"learner": "package.nets:Net"}, "code of its own"),
        ({"learner": "functions"}, "code of its own"),
        ({"learner": "conv", "features": "flat"}, "convolutional"),
        ({"layers": ["conv 8 9", "relu", "pool 4", 8], "features": "flat"}, "convolutional"),
        ({"target": "value"}, "learns values"),
        ({"loss": "package.losses:focal"}, "names a loss"),
        ({"features": "windows"}, 'the features "windows"'),
    ],
)
def test_what_the_page_cannot_train_is_said_before_anyone_is_invited(training, said):
    with pytest.raises(SettingsError, match=f"a phone cannot take part: .*{said}.*give out the invitation files"):
        require_for_phones(definition(**training))


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_other_profiles_are_not_for_phones(profile):
    with pytest.raises(SettingsError, match=f"profile shares only, and this one's is {profile}"):
        require_for_phones(definition(profile))
