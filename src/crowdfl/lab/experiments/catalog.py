"""The experiments by name, in the paper's order."""

from typing import Any

from crowdfl.lab.experiments.fig3 import FIG_3
from crowdfl.lab.experiments.fig4 import FIG_4
from crowdfl.lab.experiments.fig5 import FIG_5
from crowdfl.lab.experiments.fig6 import FIG_6
from crowdfl.lab.experiments.fig7 import FIG_7
from crowdfl.lab.experiments.frame import Experiment
from crowdfl.lab.experiments.table3 import TABLE_3
from crowdfl.lab.experiments.table4 import TABLE_4
from crowdfl.lab.experiments.table5 import TABLE_5
from crowdfl.lab.experiments.table6 import TABLE_6

__all__ = ["CATALOG"]

CATALOG: dict[str, Experiment[Any]] = {
    each.name: each for each in (TABLE_3, TABLE_4, TABLE_5, TABLE_6, FIG_3, FIG_4, FIG_5, FIG_6, FIG_7)
}
