"""Where secret bytes come from: the operating system.

Only `crypto.randomness` draws here. A run that must repeat itself puts another source in its place for as long as it lasts: the
simulation alone can (`simulation.replayed`), which an import contract holds. No setting, argument or variable reaches this.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar

SOURCE: ContextVar[Callable[[int], bytes]] = ContextVar("SOURCE", default=os.urandom)
