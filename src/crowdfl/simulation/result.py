"""What a simulation gives back; as text, as a table in notebooks, as files."""

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from crowdfl.privacy import PrivacyLedger
from crowdfl.protocols.party import Costs
from crowdfl.results import RunResult
from crowdfl.settings import TORCH_FUNCTIONS, TaskSettings
from crowdfl.simulation.checkpoint import Checkpoint
from crowdfl.simulation.history import SimulatedRound, history_table
from crowdfl.storage.task_files import task_file_text
from crowdfl.tables import html_table, text_table


@dataclass(frozen=True, eq=False, repr=False)
class SimulationResult(RunResult):
    """What `crowdfl.simulate` returns. Printed, or as the last line of a notebook's cell, it is a table of the rounds.

    Attributes:
        model: The last average, or what the task's server step made of it, in the form of the initial model.
        history: The rounds, in order.
        rewards: By person, what was paid in all, once it was claimed where every role is played; empty without a `budget`.
        costs: By role, counters of operations, messages and bytes.
        notes: What you should know, such as weights that were clipped.
        settings: The task's settings, those that followed from the data included.
        privacy: With `epsilon`, what was spent of each person's privacy, and what noise did; None without noise.
        personal: By person, the layers that stayed with it (`personalize`), as its last training left them.
        checkpoint: What `simulate(..., resume=result)` goes on from.
    """

    counted: ClassVar[str] = "participants"
    model: Any
    history: tuple[SimulatedRound, ...]
    rewards: Mapping[str, Decimal]
    costs: Mapping[str, Costs]
    notes: tuple[str, ...]
    settings: TaskSettings
    checkpoint: Checkpoint
    personal: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def privacy(self) -> PrivacyLedger | None:
        return PrivacyLedger.of(self.settings, (one.privacy for one in self.history))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model's arrays under their names; or all that `simulate(..., resume=path)` needs, as a folder.

        Args:
            path: A model ends with `.npz` or `.safetensors`, which keeps bfloat16 (NumPy has none: it becomes float32). A path
                without an ending is a folder for the whole campaign: history, settings, and what a server step carries.
        """
        if Path(path).suffix:
            return super().save(path)
        self.checkpoint.write(Path(path))
        return Path(path)

    def task_file(self, path: str | os.PathLike[str] | None = None, **words: str) -> str:
        """The task file of what was simulated, which makes the same task on real servers.

        `servers.create("task.toml", initial=result.model)` takes it, and `crowdfl task create task.toml --initial model.npz`.
        Its settings are those of the simulation, with the bounds that followed from the data.

        Args:
            path: Where to write it, such as `task.toml`; a file that is there is replaced. Without it, it is only returned.
            words: `purpose`, `terms` and `readers`, which people read before they join. The purpose has to be said.

        Returns:
            The text.
        """
        training = {"learner": TORCH_FUNCTIONS} if self.checkpoint.form.is_torch else {}
        head = f"# What was simulated with {len(self.checkpoint.samples)} people. Every setting; docs/settings.md.\n"
        text = task_file_text(words, self.settings, training, head=head)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def person_rows(self) -> list[dict[str, float | str]]:
        """Everyone's own metrics, a flat row for each round and person, as `pandas.DataFrame` takes them."""
        return [row for one in self.history for row in one.person_rows()]

    def _metric_names(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.history for name in one.numbers))

    def __str__(self) -> str:
        columns, rows = history_table(self.history)
        lines = text_table(columns, rows).splitlines()
        paid = sum(self.rewards.values(), Decimal(0))
        people = sum(amount > 0 for amount in self.rewards.values())
        lines += [f"rewards: {paid:f} in all to {people} people"] if self.rewards else []
        lines += self._precision()
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _precision(self) -> list[str]:
        if self.privacy is not None:
            return self.privacy.lines()
        return [f"averages are exact to {self.settings.decimals} decimals"]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.history)} rounds>\n{self}"

    def _repr_html_(self) -> str:
        columns, rows = history_table(self.history)
        return html_table(columns, rows) + "".join(
            f"<p>{html.escape(one)}</p>" for one in (*self._precision(), *self.notes)
        )
