"""One data set dealt out to several people, for `crowdfl.simulate`: at random, by labels, or by a column.

`data` is `(inputs, labels)`, a Bunch of scikit-learn, arrays, a list, a table of pandas, a torch `Dataset`, a data set of the
library `datasets`, or a dictionary of columns; everyone gets a part of the same kind. Nothing is lost, nothing is dealt twice,
everyone has a sample, and the same seed deals the same.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import SettingsError
from crowdfl.results import new_figure, written
from crowdfl.tables import html_table, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Places = npt.NDArray[np.int64]
_LABELS = ("label", "labels", "target")  # what such a column is usually called
_DRAWS = 100
_SHOWN = 20  # labels that a table or picture tells apart


class Partition(dict[str, Any]):
    """Everyone's data by name, as `simulate` takes it. Printed, or in a notebook, it is a table of who has what.

    Attributes:
        places: By name, which samples of the whole they have.
    """

    def __init__(self, data: Any, places: Mapping[str, _Places], labels: npt.NDArray[Any] | None) -> None:  # noqa: ANN401
        super().__init__({name: _part(data, own) for name, own in places.items()})
        self.places = dict(places)
        found = [] if labels is None else np.unique(labels).tolist()
        self._kinds: list[Any] = found if len(found) <= _SHOWN else []
        self._labels = labels

    def counts(self) -> dict[str, dict[Any, int]]:
        """How many samples of each label everyone has; of more than 20 labels, or without any, how many samples."""
        if self._labels is None or not self._kinds:
            return {name: {"samples": len(own)} for name, own in self.places.items()}
        mine = {name: self._labels[own] for name, own in self.places.items()}
        return {name: {kind: int((own == kind).sum()) for kind in self._kinds} for name, own in mine.items()}

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Draw a bar for each person, in it a part for each label. Needs Matplotlib: `pip install 'crowdfl[plots]'`."""
        counts, start = self.counts(), np.zeros(len(self))
        figure = new_figure(6.4, 1.2 + 0.25 * len(self))
        axes = figure.subplots()
        for kind in next(iter(counts.values())):
            widths = np.array([own[kind] for own in counts.values()])
            axes.barh(list(counts), widths, left=start, label=str(kind))
            start += widths
        axes.invert_yaxis()
        axes.set(xlabel="samples")
        if self._kinds:
            axes.legend(title="label", loc="center left", bbox_to_anchor=(1.0, 0.5))
        return written(figure, path)

    def _table(self) -> tuple[list[str], list[list[str]]]:
        kinds = [str(kind) for kind in self._kinds]
        counts = self.counts() if kinds else {name: {} for name in self}
        rows = [[name, str(len(self.places[name])), *map(str, counts[name].values())] for name in self]
        return ["person", "samples", *kinds], rows

    def __str__(self) -> str:
        return text_table(*self._table())

    def __repr__(self) -> str:
        return f"<Partition: {len(self)} people>\n{self}"

    def _repr_html_(self) -> str:
        return html_table(*self._table())


def iid(data: Any, people: int | Sequence[str], *, labels: Any = None, seed: int = 0) -> Partition:  # noqa: ANN401
    """Everyone gets a random part of about the same size.

    Args:
        data: The whole: see above.
        people: How many, or their names.
        labels: For the picture: a label for each sample, or the name of a column. Usually found by itself.
        seed: The same one deals the same.
    """
    names, size = _names(people), _length(data)
    _require_room(size, len(names), "people")
    order = _chance(seed).permutation(size)
    return Partition(
        data, dict(zip(names, np.array_split(order, len(names)), strict=True)), _labels(data, labels, size)
    )


def dirichlet(
    data: Any,  # noqa: ANN401
    people: int | Sequence[str],
    alpha: float = 0.5,
    *,
    labels: Any = None,  # noqa: ANN401
    seed: int = 0,
) -> Partition:
    """Of each label everyone gets a share that is drawn from a Dirichlet distribution: the lower `alpha`, the less even.

    Args:
        data: The whole: see above.
        people: How many, or their names.
        alpha: 100 is nearly even; at 0.1 most people have few labels.
        labels: A label for each sample, or the name of a column; by default those of the data.
        seed: The same one deals the same.

    Raises:
        SettingsError: A hundred draws left somebody with nothing.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < np.inf:
        raise SettingsError(f"`alpha` is {alpha!r}; expected a number above 0")
    names, size = _names(people), _length(data)
    _require_room(size, len(names), "people")
    known, rng = _require_labels(data, labels, size), _chance(seed)
    for _ in range(_DRAWS):
        parts: list[list[_Places]] = [[] for _ in names]
        for kind in np.unique(known):
            own = rng.permutation(np.flatnonzero(known == kind))
            cuts = np.cumsum(rng.dirichlet(np.full(len(names), float(alpha))))[:-1] * len(own)
            for part, piece in zip(parts, np.split(own, cuts.round().astype(np.int64)), strict=True):
                part.append(piece)
        dealt = dict(zip(names, map(np.concatenate, parts), strict=True))
        if all(map(len, dealt.values())):
            return Partition(data, dealt, known)
    raise SettingsError(
        f"alpha = {alpha:g} leaves somebody of {len(names)} people without any of {size} samples, however it is drawn: "
        "take a higher alpha, or fewer people"
    )


def shards(
    data: Any,  # noqa: ANN401
    people: int | Sequence[str],
    per_person: int = 2,
    *,
    labels: Any = None,  # noqa: ANN401
    seed: int = 0,
) -> Partition:
    """The data sorted by label is cut into equal pieces, and everyone gets some of them: most people have few labels.

    Args:
        data: The whole: see above.
        people: How many, or their names.
        per_person: How many pieces everyone gets.
        labels: A label for each sample, or the name of a column; by default those of the data.
        seed: The same one deals the same.
    """
    if isinstance(per_person, bool) or not isinstance(per_person, int) or per_person < 1:
        raise SettingsError(f"`per_person` is {per_person!r}; expected a whole number, 1 or more")
    names, size = _names(people), _length(data)
    _require_room(size, len(names) * per_person, "pieces")
    known, rng = _require_labels(data, labels, size), _chance(seed)
    mixed = rng.permutation(size)
    pieces = np.array_split(mixed[np.argsort(known[mixed], kind="stable")], len(names) * per_person)
    hands = rng.permutation(len(pieces)).reshape(len(names), per_person)
    dealt = {name: np.concatenate([pieces[i] for i in hand]) for name, hand in zip(names, hands, strict=True)}
    return Partition(data, dealt, known)


def by_column(data: Any, column: Any, *, labels: Any = None) -> Partition:  # noqa: ANN401
    """A person for each value of a column, such as who recorded a sample.

    Args:
        data: The whole: see above.
        column: The column's name, or a value for each sample.
        labels: For the picture: a label for each sample, or the name of a column. Usually found by itself.
    """
    size = _length(data)
    owners = _column(data, column, size, "column")
    found = {str(owner): np.flatnonzero(owners == owner) for owner in np.unique(owners).tolist()}
    if "" in found:
        raise SettingsError("`column` has empty values, and nobody can be called so")
    return Partition(data, found, _labels(data, labels, size))


def _names(people: int | Sequence[str]) -> list[str]:
    if isinstance(people, int) and not isinstance(people, bool) and people >= 1:
        return [f"person-{number}" for number in range(1, people + 1)]
    names = [] if isinstance(people, str | bool | int) else list(people)
    if not names or len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise SettingsError(f"`people` is {people!r}; expected how many there are, or a list of different names")
    return names


def _require_room(size: int, wanted: int, what: str) -> None:
    if size < wanted:
        raise SettingsError(f"{size} samples are too few for {wanted} {what}: somebody would have none")


def _whole(data: Any) -> Any:  # noqa: ANN401
    """A Bunch of scikit-learn is `(inputs, labels)`, with much else beside them."""
    return (data["data"], data["target"]) if isinstance(data, Mapping) and {"data", "target"} <= data.keys() else data


def _length(data: Any) -> int:  # noqa: ANN401
    data = _whole(data)
    if isinstance(data, tuple | Mapping):
        parts = list(data.values()) if isinstance(data, Mapping) else data
        sizes = {_length(one) for one in parts}
        if len(sizes) != 1 or any(hasattr(one, "column_names") for one in parts):  # splits of `datasets`
            raise SettingsError(
                f"parts of {' and '.join(map(str, sorted(sizes)))} samples do not belong together; of several splits, give one"
            )
        return sizes.pop()
    try:
        return int(data.shape[0]) if hasattr(data, "shape") else len(data)
    except (TypeError, IndexError):
        raise SettingsError(f"a {type(data).__name__} has no number of samples: it cannot be dealt out") from None


def _part(data: Any, places: _Places) -> Any:  # noqa: ANN401
    """Some of the samples, in the form of the whole; no library is loaded that the data does not come from."""
    data, torch = _whole(data), sys.modules.get("torch")
    if isinstance(data, tuple):
        return tuple(_part(one, places) for one in data)
    if isinstance(data, Mapping):
        return {name: _part(one, places) for name, one in data.items()}
    if hasattr(data, "select") and hasattr(data, "column_names"):  # of `datasets`
        return data.select(places.tolist())
    if hasattr(data, "iloc"):  # of pandas
        return data.iloc[places]
    if torch is not None and isinstance(data, torch.utils.data.Dataset):
        return torch.utils.data.Subset(data, places.tolist())
    return data[places] if hasattr(data, "shape") else [data[place] for place in places.tolist()]


def _labels(data: Any, given: Any, size: int) -> npt.NDArray[Any] | None:  # noqa: ANN401
    """As given, or those of the data; None if it has none that are known."""
    data = _whole(data)
    if given is None:
        named = [name for name in _LABELS if name in _columns(data)]
        tensors = getattr(data, "tensors", ())  # of a TensorDataset
        held = data if isinstance(data, tuple) else tensors
        given = named[0] if named else getattr(data, "targets", held[-1] if len(held) > 1 else None)
    return None if given is None else _column(data, given, size, "labels")


def _chance(seed: int) -> np.random.Generator:
    try:
        return np.random.default_rng(index(seed))
    except (TypeError, ValueError):
        raise SettingsError(f"`seed` is {seed!r}; expected a whole number, 0 or more") from None


def _require_labels(data: Any, given: Any, size: int) -> npt.NDArray[Any]:  # noqa: ANN401
    found = _labels(data, given, size)
    if found is None:
        raise SettingsError("this way of dealing goes by labels: give (inputs, labels), or say labels=...")
    if found.dtype.kind == "f" and not (found == np.rint(found)).all():
        raise SettingsError(
            "this way of dealing goes by labels, and these are measured numbers: take `iid`, or say which of them belong "
            "together, as in labels=np.digitize(values, [0.5, 1.5])"
        )
    return found


def _columns(data: Any) -> Sequence[str]:  # noqa: ANN401
    """The names of its columns, if it has any."""
    named = data.keys() if isinstance(data, Mapping) else getattr(data, "column_names", getattr(data, "columns", ()))
    return list(named)


def _column(data: Any, given: Any, size: int, what: str) -> npt.NDArray[Any]:  # noqa: ANN401
    """A value for each sample: given as such, or by the name of a column."""
    if isinstance(given, str):
        data = _whole(data)
        table = data[0] if isinstance(data, tuple) else data
        if given not in _columns(table):
            known = ", ".join(map(str, _columns(table))) or "none"
            raise SettingsError(f"`{what}` is {given!r}, and no column is called so; there are {known}")
        given = table[given]
    found = np.asarray(given)
    if found.shape != (size,):
        raise SettingsError(f"`{what}` has the shape {found.shape}; expected one value for each of {size} samples")
    if any(one is None or one != one for one in found.tolist()):  # noqa: PLR0124 -- NaN
        raise SettingsError(f"`{what}` has missing values: leave those samples out first")
    return found.astype(np.str_) if found.dtype.kind == "O" else found
