"""docs/security.md lists everything that one party asks another, with what guards whoever believes the answer."""

import re
from pathlib import Path

from crowdfl.roles.participant.enrolment import EnrollingKgc
from crowdfl.roles.participant.participant import ParticipantSp
from crowdfl.roles.ports import CspPeer, EndPeer, KgcPeer
from crowdfl.roles.requester import RequesterKgc, RequesterSp

PEERS = (ParticipantSp, EnrollingKgc, KgcPeer, EndPeer, CspPeer, RequesterKgc, RequesterSp)


def test_everything_that_is_asked_of_another_party_is_in_the_list_with_what_guards_it():
    text = (Path(__file__).parents[2] / "docs/security.md").read_text()
    table = text.split("### Whose word is believed")[1].split("### ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", table, re.MULTILINE)
    asked = [f"{peer.__name__}.{name}" for peer in PEERS for name in vars(peer) if not name.startswith("_")]
    assert [place for place, _, _ in rows] == asked


def test_no_role_has_another_peer():
    """Every protocol in `roles` that is another party, seen from one of them, is compared with the list."""
    roles = Path(__file__).parents[2] / "src/crowdfl/roles"
    named = re.compile(
        r"^class (\w+)\(Protocol\):\n    \"\"\"(.+) reaches it|^class (EndPeer)\(Protocol\)", re.MULTILINE
    )
    found = {match[1] or match[3] for path in roles.rglob("*.py") for match in named.finditer(path.read_text())}
    assert found == {peer.__name__ for peer in PEERS}
