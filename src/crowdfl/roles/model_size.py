"""How large a task's model can be, as whoever defines it is told."""

from crowdfl.documents.signed import Definition
from crowdfl.errors import SettingsError
from crowdfl.roles.dealt import megabytes

WEIGHT_BYTES = 8  # of each first weight, as it travels
MOST_BYTES = 2**30  # of all of them: people's programs read no longer answer
PHONE_PARAMETERS = 10_000_000  # that a page holds, as it says itself
_MOST_PARAMETERS = (MOST_BYTES - 2**16) // WEIGHT_BYTES  # the file lists its arrays, too


def size_line(definition: Definition) -> str:
    """What a model takes, and what is taken."""
    taken = megabytes(definition.spec.parameters * WEIGHT_BYTES)
    return (
        f"how large      first weights take {taken}; SP takes {megabytes(MOST_BYTES)}, if its operator has not set less, and "
        f"phones {PHONE_PARAMETERS:,} parameters"
    )


def require_size(definition: Definition) -> None:
    """Refuse a model that nobody could fetch."""
    parameters = definition.spec.parameters
    if parameters > _MOST_PARAMETERS:
        raise SettingsError(
            f"a model of {parameters:,} parameters is too large: {_MOST_PARAMETERS:,} are the most that travel"
        )
