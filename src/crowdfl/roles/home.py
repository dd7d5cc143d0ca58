"""The form of a home, a participant's or a requester's: which files it has, and what they mean.

Documents in it have forms of their own. A home without a number is of form 1.
"""

from collections.abc import Callable, Sequence

from crowdfl.errors import StoreTooNew
from crowdfl.roles.ports import Blobs

FOLDER = "form"
Step = Callable[[Blobs], None]
STEPS: Sequence[Step] = ()
"""What brings a home of form 1 to form 2, and so on. A step that a crash has cut short is done again."""


def begin(home: Blobs) -> None:
    """Of a new home, before anything else is durable in it: a crash leaves none without its mark, and none is taken away."""
    home.put_all(_mark(len(STEPS) + 1))


def bring_up(home: Blobs) -> None:
    """To today's form; `StoreTooNew`, and nothing is changed, if a later program has been here."""
    marks = (int(name.rpartition("/")[2]) for name in home.listing(FOLDER))
    form, today = max(marks, default=1), len(STEPS) + 1
    if form > today:
        raise StoreTooNew(f"this home is of form {form}, and this program reads forms up to {today}: update it")
    for number in range(form, today):
        STEPS[number - 1](home)
        home.put_all(_mark(number + 1))


def _mark(form: int) -> dict[str, bytes]:
    return {f"{FOLDER}/{form}": b""}
