"""A definition as a requester signs it: a store tells the tasks that can be read from the others."""

from dataclasses import replace

from tests.hosts import SMALL_TASK, small_definition

from crowdfl.crypto.signing import SigningKey
from crowdfl.settings import TaskSettings

_KEY = SigningKey.fresh()
DEFINITION = replace(small_definition(TaskSettings.of(**SMALL_TASK)).dated(1000.0), requester=_KEY.public).sign(_KEY)
