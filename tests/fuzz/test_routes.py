"""Random requests to every route of the three services, with every kind of credential and with none."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.invitations import EnrolmentRequest, Invitation, Ticket
from crowdfl.documents.signed import EnrolmentEnd, Order
from crowdfl.protocols.uploads import Parcel, upload_digest
from crowdfl.settings import TOKEN_ROLES
from tests.fuzz.platform import SERVICES, Ask, digest
from tests.fuzz.trial import JSON, NAMES, Form, changed_body, mutated, scaled
from tests.http.world import INITIAL, definition_of

CREDENTIALS = ("none", "signed", "elsewhere", *TOKEN_ROLES)
services = pytest.mark.parametrize("service", SERVICES)
SEGMENTS = st.sampled_from(
    ["0", "-1", "1", "2", "99", str(10**30), "..", "%2e%2e", "%00", "%ff", "a" * 300, "é", "%0a"]
)
HEADERS = st.sampled_from(
    [
        (b"authorization", b"Bearer \xff\xfe"),
        (b"authorization", b"Bearer " + b"x" * 2000),
        (b"authorization", b'CrowdFL who="0", time="1", signature="2"'),
        (b"content-length", b"99999999999"),
        (b"content-length", b"-1"),
        (b"content-length", b"\xb2"),
        (b"content-type", b"text/plain; charset=\xff"),
        (b"x-content-sha256", b"0" * 64),
        (b"x-crowdfl-protocol", b"3"),
        (b"x-request-id", b"\x00\xff"),
        (b"transfer-encoding", b"chunked"),
        (b"cookie", b"\xff=\xfe"),
    ]
)
ANY_HEADER = st.tuples(st.from_regex(rb"[a-z][a-z0-9-]{0,10}", fullmatch=True), st.binary(max_size=30))
BODIES = st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode())


PARCEL = Parcel.of(INITIAL).to_bytes()  # first weights as they travel
INVITED = SigningKey.fresh()  # whose public half an invitation names


def good_bodies(platform):
    """A body for every route that takes one, by a word of its path; each would be let in, or nearly."""
    world, task = platform.world, platform.open
    stored = world.sp.store.task(task)
    person = platform.people[task][0]
    certificate = world.sp.store.participant(task, person.who).certificate
    expires = world.clock.now() + 1000
    made = Invitation(task, "0" * 32, 1, INVITED.public, expires).sign(world.requester.signing)
    ticket = Ticket(made, INVITED)
    invitation, request = ticket.invitation, EnrolmentRequest.make(ticket, person.keys).sign(INVITED)
    stranger = definition_of(world.receipts, window=7).sign(world.receipts)
    order = Order(task, "nothing", 0.0).sign(world.requester.signing)
    close = EnrolmentEnd("0" * 64).sign(world.requester.signing)
    papers = {
        "definition": stored.definition,
        "appointment": stored.appointment,
        "weights": "",
    }
    return {
        "tasks": [papers, {"definition": stored.definition}, papers | {"definition": stranger}],
        "weights": [PARCEL],
        "deposits": [{"amount": 5}],
        "orders": [{"order": order}],
        "close": [{"order": close}],
        "participants": [
            {"certificate": certificate},
            {"invitation": invitation, "request": request},
        ],
        "claims": platform.claims,
        "uploads": [platform.update],
        "commit": [{"digest": digest(platform.update)}],
        "requests": platform.requests,
    }


def words(path):
    return [part for part in reversed(path.split("/")) if part and not part.startswith("{")]


@st.composite
def bodies(draw, platform, path):
    """A good body of the route, one altered, one with hostile fields, or anything."""
    good = next((platform.bodies[word] for word in words(path) if word in platform.bodies), [b""])
    chosen = draw(st.sampled_from(good))
    raw = chosen if isinstance(chosen, bytes) else Form(json.dumps(chosen).encode())
    kind = draw(st.sampled_from(["good", "altered", "altered", "fields", "signed", "any"]))
    if kind == "good":
        return raw
    if kind == "altered":
        return draw(mutated(raw))
    if isinstance(chosen, dict) and kind == "fields":
        return json.dumps(draw(changed_body(chosen))).encode()
    if isinstance(chosen, dict) and kind == "signed":
        return json.dumps(draw(signed_nonsense(platform, chosen))).encode()
    return draw(BODIES)


@st.composite
def signed_nonsense(draw, platform, body):
    """A form whose document says anything under a signature that stands: its owner's, or that of a broken KGC."""
    name = draw(st.sampled_from(sorted(body)))
    if not isinstance(body[name], str) or not body[name].startswith("crowdfl "):
        return draw(changed_body(body))
    _, usual, _, payload = body[name].split(" ", 3)
    said = draw(changed_body(json.loads(payload)))
    if said.get("action") in ("cancel", "pause"):  # random text does not say so; a later example needs the round
        return body
    keys = {
        "certificate": platform.world.kgc.signing,
        EnrolmentRequest.kind: INVITED,
    }
    key = keys.get(usual, platform.world.requester.signing)
    kind = draw(st.sampled_from([usual] * 4 + ["order"]) | NAMES)
    return body | {name: _signed(kind, said, key)}


def _signed(kind, body, key):
    """A document; of what cannot be signed, with a signature that does not stand."""
    payload = json.dumps(body)
    try:
        return Envelope.sign(kind, payload, key).text
    except UnicodeEncodeError:
        return Envelope(kind, payload, bytes(64)).text


@st.composite
def asks(draw, platform, service):
    """A request to one of a service's routes, or to none."""
    path, methods = draw(st.sampled_from(platform.routes[service]))
    task = draw(st.sampled_from([platform.open, platform.open, platform.over, "0" * 64]))
    people = platform.people.get(task, [])
    values = {
        "task": task,
        "number": draw(st.sampled_from(["1", "1", "2", "1000000"])),
        "name": draw(st.sampled_from(["first", "n", "-"])),
        "digest": draw(st.sampled_from([digest(request) for request in platform.requests] + ["0" * 64])),
        "parcel": draw(st.sampled_from([upload_digest(PARCEL), "0" * 64])),
        "who": draw(st.sampled_from([person.who for person in people] + ["0" * 20])),
    }
    spoilt = draw(st.sampled_from([None, None, None, *values]))
    if spoilt is not None:
        values[spoilt] = draw(SEGMENTS | st.text(max_size=10).map(lambda text: re.sub(r"[?#/]", "", text)))
    target = re.sub(r"{(\w+)}", lambda found: values[found[1]], path)
    asked = ["", "?offset=0", f"?offset=0&total={len(INITIAL)}", "?offset=-1", "?offset=1&offset=x", "?%ff=%00"]
    target += draw(st.sampled_from(asked))
    method = draw(st.sampled_from([*methods, *methods, *methods, "OPTIONS", "HEAD", "PUT"]))
    body = draw(bodies(platform, path))
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=2)))
    pieces = tuple(body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True))
    return Ask(service, method, target, (), pieces, draw(st.sampled_from([False, False, False, True])))


def with_headers(platform, ask, credential, more):
    """The same request from a caller of this kind."""
    spoken = ((b"x-crowdfl-protocol", b"1"), *platform.headers(ask, credential))
    names = {name for name, _ in more}
    kept = tuple(header for header in spoken if header[0].lower() not in names)
    return Ask(ask.service, ask.method, ask.target, (*kept, *more), ask.pieces, ask.cut)


@pytest.fixture(scope="module", autouse=True)
def prepared(platform):
    platform.bodies = good_bodies(platform)
    platform.routes = {
        name: [(path, [method.upper() for method in found]) for path, found in app.openapi()["paths"].items()]
        + [("/nowhere/{name}", ["GET", "POST"]), ("/v1/tasks/{task}/", ["GET"]), ("/openapi.json", ["GET"])]
        for name, app in platform.world.apps.items()
    }


@pytest.mark.second
@services
@settings(max_examples=scaled(350))
@given(data=st.data())
def test_any_request_is_served_or_refused_by_name(platform, service, data):
    """No unhandled error, no bare refusal, and a refused request leaves every store and folder as it was."""
    ask = data.draw(asks(platform, service))
    more = tuple(data.draw(st.lists(HEADERS | ANY_HEADER, max_size=2) | st.just([])))
    platform.check(with_headers(platform, ask, data.draw(st.sampled_from(CREDENTIALS)), more))


def test_repro_half_a_character_in_a_refusal(platform):
    """JSON can name what UTF-8 cannot write; a refusal that quotes it is still a refusal."""
    document = json.dumps({"kind": "\ud800" * 1100, "body": {}, "signature": ""})
    body = json.dumps({"certificate": document}).encode()
    answer = platform.check(Ask("sp", "POST", f"/v1/tasks/{platform.open}/participants", (), (body,)))
    assert (answer.status, len(answer.body) < 3000) == (400, True)
