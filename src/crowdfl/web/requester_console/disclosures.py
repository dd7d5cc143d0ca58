"""What each party of a task learns (`crowdfl.disclosures`), and what is known of this task."""

from collections.abc import Mapping
from typing import Any

from crowdfl.disclosures import learnt_in, weaknesses_of
from crowdfl.documents.signed import Definition
from crowdfl.protocols.shares.round.upload import upload_bytes
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.dealt import dealt_sizes


def learnt(definition: Definition, status: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rows for a table, and the known weaknesses under it."""
    profile = definition.settings.profile
    known = {"SP": _sp(definition, status), "CSP": _csp(definition, status), "KGC": _kgc(definition)}
    rows = [
        {"party": row.party, "learns": row.learns, "hidden": row.hidden, "known": known.get(row.party, "")}
        for row in learnt_in(profile)
    ]
    weak = [f"{' or '.join(row.parties)}{', deviating' * row.deviates}: {row.gains}." for row in weaknesses_of(profile)]
    return {"profile": profile, "rows": rows, "weak": weak}


def _sp(definition: Definition, status: Mapping[str, Any] | None) -> str:
    parts = [f"a model of {definition.spec.parameters:,} parameters"]
    if definition.settings.profile == "shares":
        parts.append(f"uploads of {upload_bytes(SharesShape(definition.spec)):,} bytes")
    rounds = [] if status is None else status["rounds"]
    parts += [f"round {entry['number']}: {entry['uploads']} uploads" for entry in rounds]
    return ", ".join([*parts, *_dealt(definition, "sp")])


def _csp(definition: Definition, status: Mapping[str, Any] | None) -> str:
    people = [] if status is None else [f"{status['enrolled']} enrolled"]
    return ", ".join([*people, *_dealt(definition, "csp")])


def _kgc(definition: Definition) -> str:
    sizes = dealt_sizes(definition)
    total = sum(sizes.values()) * definition.settings.rounds
    return f"dealt {total:,} bytes in all" if sizes else ""


def _dealt(definition: Definition, role: str) -> list[str]:
    size = dealt_sizes(definition).get(role)
    return [] if size is None else [f"{size:,} bytes dealt for each round"]
