"""A finished demo campaign, as its processes told it and as their files show it."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.documents.signed import Definition
from crowdfl.learning.models.files import from_safetensors, read_arrays
from crowdfl.learning.models.shape import Weights
from crowdfl.storage.model_files import read_model
from crowdfl_lab.demo.comparison import Heard, Plain, apart
from crowdfl_lab.demo.servers import KeySight, Row, Sight, look_at

ROUNDS = 3


@dataclass
class FinishedCampaign:
    """A finished campaign, as its processes told it and as their files show it."""

    folder: Path
    task: str
    heard: Heard
    report: dict[str, Any]
    plain: Plain = field(repr=False)
    keys: KeySight = field(repr=False)
    profile: str
    seconds: float = 0.0
    _apart: dict[int, tuple[float | None, float | None]] = field(default_factory=dict, init=False, repr=False)

    def said(self, event: str) -> Heard:
        return [(name, details) for name, details in self.heard if details.get("event") == event]

    @cached_property
    def rewards(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for name, details in self.said("rewarded"):
            found.setdefault(name, {})[details["round"]] = details["millionths"]
        return dict(sorted(found.items()))

    @cached_property
    def names(self) -> dict[str, str]:
        """Who is who: a participant's pseudonym, and what we call the person."""
        return {details["who"]: name for name, details in self.said("joined")}

    @cached_property
    def definition(self) -> Definition | None:
        return read_model(self._model)[0] if self._model.exists() else None

    @property
    def _model(self) -> Path:
        return self.folder / "model.npz"

    @cached_property
    def initial(self) -> Weights:
        """What everyone starts from; it is public."""
        path = self.folder / "roles" / "sp" / "blobs" / self.task / "initial"
        if self.definition is None:  # no model was fetched, and nothing is computed from this one
            return list(read_arrays(path.read_bytes(), ".safetensors").values())
        return from_safetensors(self.definition.shape, path.read_bytes())

    @cached_property
    def averages(self) -> dict[int, Weights]:
        """What readers hold of each round: a participant's copy, and the requester's of the last."""
        if self.definition is None:
            return {}
        found = {ROUNDS: read_model(self._model)[1]}
        for number in range(1, ROUNDS):
            for path in sorted(self.folder.glob(f"person-*/rounds/{number}/average"))[:1]:
                found[number] = from_safetensors(self.definition.shape, path.read_bytes())
        return dict(sorted(found.items()))

    @cached_property
    def models(self) -> dict[int, Weights]:
        """With the initial one, as round 0."""
        return {0: self.initial} | self.averages

    def apart(self, number: int) -> tuple[float | None, float | None]:
        """The largest difference of any weight, and what is left of it if FedAvg starts from CrowdFL's last model."""
        if number not in self._apart:
            self._apart[number] = self._measured_apart(number)
        return self._apart[number]

    def _measured_apart(self, number: int) -> tuple[float | None, float | None]:
        models, plain = self.models, self.plain
        if number not in models or number not in plain.averages:
            return None, None
        whole = apart(models[number], plain.averages[number])
        if number < 2 or number - 1 not in models:
            return whole, whole if number == 1 else None
        return whole, apart(models[number], plain.round_from(models[number - 1], number))

    @cached_property
    def sights(self) -> list[Sight]:
        averages = [row_of(model) for model in self.averages.values()]
        return look_at(self.folder / "roles", self.task, self.keys, averages, row_of(self.initial))


def row_of(arrays: Weights) -> Row:
    return np.concatenate([np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays])
