"""What each party of a task saw: the promises of its profile (SECURITY.md), and what is known of this task."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from crowdfl.documents.signed import Definition
from crowdfl.protocols.shares.round.upload import upload_bytes
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.dealt import dealt_sizes


class PartySight(NamedTuple):
    """One party that follows the protocol."""

    party: str
    learns: str
    not_learns: str


_WIRE = PartySight("anyone on the wire", "sizes and times", "everything else")
_KGC = PartySight("KGC", "everything, while it deals", "-")
PROMISES: Mapping[str, tuple[PartySight, ...]] = MappingProxyType(
    {
        "shares": (
            PartySight(
                "SP",
                "who uploaded when and who was left out; amounts, round by round, once claimed: "
                "under the rule `gate` they show numbers of samples",
                "any update, average or total; any length, weight or unclaimed reward",
            ),
            PartySight("CSP", "who is enrolled, who was in a round; amounts once claimed", "the same as SP"),
            _KGC,
            PartySight("requester", "every average, every total", "any single update or reward"),
            PartySight(
                "participant",
                "the average of every round but the last, the total of the samples, its own rewards, who was in a round, "
                "who was left out and why (pseudonyms)",
                "anyone else's update, samples or reward",
            ),
            _WIRE,
        ),
        "hardened": (
            PartySight(
                "SP",
                "who uploaded when, the size of the model, the budget; amounts, round by round, once they are claimed",
                "any model or average, any sample count, any distance, weight or unclaimed reward",
            ),
            PartySight(
                "CSP",
                "who is enrolled and, with rewards on, who was averaged in a round (pseudonyms); the task's definition, "
                "with its budget; amounts, round by round, once they are claimed; about a divisor, at most the bound in "
                "docs/security.md",
                "the same as SP",
            ),
            _KGC,
            PartySight(
                "requester",
                "the last average; what all participants together earned, and claimed once claims have ended",
                "any model, any single reward (except that if one participant alone claims, or all but one, the sums reveal "
                "that one's reward)",
            ),
            PartySight(
                "participant",
                "the average of every round but the last (also the last average, if a later round was given up), the total "
                "of the samples unless hidden, its own rewards",
                "anyone else's model, samples or reward",
            ),
            _WIRE,
        ),
        "paper": (
            PartySight("CSP", "the averaged model, the total, the distances and the rewards", "-"),
            PartySight("SP", "every upload, with the help of one fake participant", "-"),
            _KGC,
        ),
    }
)
_COLLUDE = "SP and CSP together read everything: let two organisations run them."


def seen(definition: Definition, status: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rows for a table, and the sentence under it."""
    known = {"SP": _sp(definition, status), "CSP": _csp(definition, status), "KGC": _kgc(definition)}
    rows = [sight._asdict() | {"known": known.get(sight.party, "")} for sight in PROMISES[definition.settings.profile]]
    return {"profile": definition.settings.profile, "rows": rows, "note": _COLLUDE}


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
