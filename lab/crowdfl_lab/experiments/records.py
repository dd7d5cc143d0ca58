"""Records of what was measured, and tables made of them."""

from collections.abc import Mapping, Sequence

from crowdfl_lab.report.results import ResultTable

Value = str | int | float | bool | None
Record = dict[str, Value]
Records = list[Record]


def number(record: Mapping[str, Value], name: str) -> float:
    """A record's value as a number; what is not there counts as nothing."""
    return float(record[name] or 0)


def joined(results: Sequence[Records]) -> Records:
    return [record for records in results for record in records]


def table_of(
    title: str, records: Records, columns: Sequence[str] | Mapping[str, str], floats: str = ".3g"
) -> ResultTable:
    """A row for each record, a column for each name; a mapping gives columns headings of their own."""
    named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    rows = tuple(tuple(_shown(record.get(name), floats) for name in named.values()) for record in records)
    return ResultTable(title, tuple(named), rows)


def _shown(value: Value, floats: str) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, str) else f"{value:{floats if isinstance(value, float) else ','}}"
