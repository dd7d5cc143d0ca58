"""The experiments by name, in the paper's order."""

from typing import Any

from crowdfl.experiments.frame import Experiment
from crowdfl.experiments.table4 import TABLE_4
from crowdfl.experiments.table5 import TABLE_5
from crowdfl.experiments.table6 import TABLE_6

__all__ = ["CATALOG"]

CATALOG: dict[str, Experiment[Any]] = {each.name: each for each in (TABLE_4, TABLE_5, TABLE_6)}
