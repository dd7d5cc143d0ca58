"""Which models the requester's page evaluates."""

import pytest

from crowdfl.errors import SettingsError
from crowdfl.web.requester_console.model_evaluation import recipe_shown

TRAINING = {"labels": ["pace"], "channels": 3}


@pytest.mark.parametrize("change", [{"target": "value"}, {"learner": "own"}, {"learner": "module", "module": "a:B"}])
def test_values_and_code_of_others_are_left_to_the_command_line(change):
    """Which says how well they do, and runs code that its user names."""
    with pytest.raises(SettingsError, match="for this task use `crowdfl task fetch`, then `crowdfl evaluate`"):
        recipe_shown(TRAINING | change)


def test_a_loss_of_its_own_does_not_matter_to_who_evaluates():
    """A model that is not trained any more needs none."""
    assert recipe_shown(TRAINING | {"loss": "mine:loss"}).loss is None
