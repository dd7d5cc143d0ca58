"""Tokens on disk, and who may open what."""

import json
import re
import stat

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    Conflict,
    Forbidden,
    KeyFileDamaged,
    KeyFilePermissions,
    NotAuthenticated,
    NotReady,
    SettingsError,
    TokenExpired,
)
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.ports import ManualClock
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.client.transport import Owner, Signer
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.wire import new_token, token_digest
from crowdfl.settings import TOKEN_ROLES
from tests.http.world import definition_of

PUBLIC = "public"
SIGNED = "signed"  # by a participant of the task
OWNER = "owner"  # a requester's token, and the signature of the requester whose task it is
OPENS: dict[str, dict[str, set[str]]] = {
    "kgc": {
        "GET /v1/key": {PUBLIC},
        "POST /v1/tasks": {OWNER},
        "GET /v1/tasks/{task}/bundle": {"sp", "csp"},
        "GET /v1/tasks/{task}/dealt/{number}": {"sp", "csp"},
        "POST /v1/tasks/{task}/acknowledge": {"sp", "csp", OWNER},
        "POST /v1/tasks/{task}/end": {"sp"},
        "POST /v1/tasks/{task}/participants": {PUBLIC},
        "POST /v1/tasks/{task}/close": {OWNER},
        "GET /v1/tasks/{task}/invitations": {OWNER},
        "GET /v1/tasks/{task}/invitations/{name}": {OWNER},
    },
    "sp": {
        "GET /v1/key": {PUBLIC},
        "POST /v1/tasks": {"requester"},
        "PATCH /v1/weights/{parcel}": {"requester"},
        "GET /v1/weights/{parcel}/offset": {"requester"},
        "PUT /v1/tasks/{task}/deposits/{name}": {OWNER},
        "POST /v1/tasks/{task}/deposits/{name}/confirmation": {"bank"},
        "POST /v1/tasks/{task}/deposits/{name}/rejection": {"bank"},
        "POST /v1/tasks/{task}/orders": {OWNER},
        "PUT /v1/tasks/{task}/rounds/{number}/reference": {OWNER},
        "GET /v1/tasks/{task}/ledger": {OWNER},
        "GET /v1/tasks/{task}/attested": {OWNER},
        "GET /v1/tasks/{task}/compliance": {OWNER},
        "GET /v1/tasks/{task}/consents": {OWNER},
        "PUT /v1/tasks/{task}/participants/{who}/destination": {SIGNED},
        "PUT /v1/tasks/{task}/participants/{who}/push": {SIGNED},
        "DELETE /v1/tasks/{task}/participants/{who}/push": {SIGNED},
        "GET /v1/tasks": {PUBLIC},
        "GET /v1/tasks/{task}": {PUBLIC},
        "GET /v1/tasks/{task}/initial": {PUBLIC},
        "POST /v1/tasks/{task}/places": {PUBLIC},
        "POST /v1/tasks/{task}/participants": {PUBLIC},
        "DELETE /v1/tasks/{task}/participants/{who}": {SIGNED},
        "GET /v1/tasks/{task}/participants/{who}/pay": {SIGNED},
        "GET /v1/tasks/{task}/rounds/{number}/average": {SIGNED, OWNER},
        "GET /v1/tasks/{task}/rounds/{number}/reward": {SIGNED},
        "GET /v1/tasks/{task}/rounds/{number}/end": {SIGNED},
        "POST /v1/tasks/{task}/claims": {SIGNED},
        "PUT /v1/tasks/{task}/rounds/{number}/uploads/{who}": {SIGNED},
        "PATCH /v1/tasks/{task}/rounds/{number}/uploads/{who}": {SIGNED},
        "GET /v1/tasks/{task}/rounds/{number}/uploads/{who}": {SIGNED},
        "GET /v1/tasks/{task}/rounds/{number}/uploads/{who}/offset": {SIGNED},
        "POST /v1/tasks/{task}/rounds/{number}/uploads/{who}/commit": {SIGNED},
    },
    "csp": {
        "GET /v1/tasks/{task}/attested": {"sp"},
        "GET /v1/tasks/{task}/claims-extension": {"sp"},
        "POST /v1/tasks/{task}/prepare": {"sp"},
        "POST /v1/tasks/{task}/end": {"sp"},
        "POST /v1/tasks/{task}/participants": {"sp"},
        "POST /v1/tasks/{task}/requests": {"sp"},
        "GET /v1/tasks/{task}/requests/{digest}": {"sp"},
        "PATCH /v1/tasks/{task}/requests/{parcel}": {"sp"},
        "GET /v1/tasks/{task}/requests/{parcel}/offset": {"sp"},
        "POST /v1/tasks/{task}/requests/{parcel}": {"sp"},
    },
}
for _routes in OPENS.values():
    _routes |= {"GET /healthz": {PUBLIC}, "GET /readyz": {PUBLIC}, "GET /metrics": {"operator", "monitor"}}
    _routes |= {"GET /v1/whoami": set(TOKEN_ROLES)}
ROUTES = [(service, route) for service, routes in OPENS.items() for route in routes]
GUARDED = [(service, route) for service, route in ROUTES if PUBLIC not in OPENS[service][route]]


@pytest.mark.parametrize("service", OPENS)
def test_every_route_is_in_the_table_of_rights(campaign, service):
    """A route added without a word about who may call it fails here."""
    paths = campaign.world.apps[service].openapi()["paths"]
    assert {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} == set(OPENS[service])


SAID = {
    SIGNED: {"participant signature": []},
    OWNER: {"requester token": [], "requester signature": []},
    **{role: {f"{role} token": []} for role in TOKEN_ROLES},
}


@pytest.mark.parametrize(("service", "route"), ROUTES)
def test_openapi_says_what_opens_a_route(campaign, service, route):
    """The very table that the tests below hold the services to; every scheme is described."""
    document, (method, path) = campaign.world.apps[service].openapi(), route.split(" ")
    found = document["paths"][path][method.lower()]["security"]
    expected = [SAID[who] for who in OPENS[service][route] if who != PUBLIC]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert {scheme for wanted in found for scheme in wanted} <= set(document["components"]["securitySchemes"])


def call(campaign, service, route, headers_of, who=None):
    """Call a route with a body that would do, and see what comes of it."""
    method, path = route.split(" ")
    values = {
        "task": campaign.task,
        "number": "1",
        "name": "n",
        "digest": "0" * 64,
        "parcel": "0" * 64,
        "who": who or campaign.people[0].who,
    }
    target = re.sub(r"{(\w+)}", lambda found: values[found[1]], path)
    target += "?offset=0" if method == "PATCH" else ""
    body = b"" if method in ("GET", "DELETE") else campaign.update if method == "PATCH" else b"{}"
    signed = (upload_digest(body),) if method == "PATCH" else ()  # by its name
    headers = {"X-CrowdFL-Protocol": "3"} | headers_of(method, target, body, campaign.world.clock.now(), *signed)
    return campaign.world.http(service).request(method, target, content=body or None, headers=headers)


@pytest.mark.parametrize(("service", "route"), GUARDED)
def test_a_route_opens_to_its_own_role_alone(campaign, service, route):
    """No credential, an unknown or misspelt one, another service's token, any other role's token: refused."""
    world, allowed = campaign.world, OPENS[service][route]
    other_service = "csp" if service == "sp" else "sp"
    own = next(iter(sorted(allowed & set(TOKEN_ROLES))), "requester")
    refused = [
        lambda *_: {},
        lambda *_: {"Authorization": "Bearer "},
        lambda *_: {"Authorization": "Bearer crowdfl_" + "A" * 43},
        lambda *_: {"Authorization": "Basic cm9vdDpyb290"},
        lambda *_: {"Authorization": f"Token {world.token(service, own).token}"},
        world.token(other_service, own).headers,
        Owner(world.token(other_service, own).token, world.requester.signing).headers,
        Signer(campaign.people[0].who, SigningKey.fresh()).headers,
        Signer("0" * 20, campaign.people[0].keys.signing).headers,
    ]
    for headers_of in refused:
        answer = call(campaign, service, route, headers_of)
        assert answer.status_code == 401, answer.text
        assert "Bearer" in answer.headers["www-authenticate"]
    for role in set(TOKEN_ROLES) - allowed:
        token = world.token(service, role)
        assert call(campaign, service, route, token.headers).status_code in (401, 403), role
        if role != "requester":
            owner = Owner(token.token, world.requester.signing)
            assert call(campaign, service, route, owner.headers).status_code in (401, 403), role


@pytest.mark.parametrize(("service", "route"), [(s, r) for s, r in GUARDED if SIGNED in OPENS[s][r] and "{who}" in r])
def test_a_participant_opens_nothing_of_anothers(campaign, service, route):
    first, second = campaign.people[:2]
    signer = Signer(first.who, first.keys.signing)
    assert call(campaign, service, route, signer.headers, who=second.who).status_code == 403


@pytest.mark.parametrize(("service", "route"), GUARDED)
def test_a_route_opens_to_its_role(campaign, service, route):
    """The table of rights is not kept by refusing everyone."""
    world, person = campaign.world, campaign.people[0]
    holders = {SIGNED: Signer(person.who, person.keys.signing), OWNER: world.owner(service)}
    for who in OPENS[service][route]:
        credential = holders.get(who) or world.token(service, who)
        answer = call(campaign, service, route, credential.headers)
        assert answer.status_code not in (401, 403), answer.text
        if "DELETE" in route:  # it did leave: somebody else stands in for the other tests
            campaign.people[0] = world.add_person(campaign.task)


@pytest.mark.parametrize(("service", "route"), [(s, r) for s, r in GUARDED if OWNER in OPENS[s][r] and "{task}" in r])
def test_a_requester_opens_nothing_of_anothers_task(campaign, service, route):
    """Its token is good and its signature stands, but the task's definition names another key."""
    stranger = Owner(campaign.world.token(service, "requester").token, SigningKey.fresh())
    assert call(campaign, service, route, stranger.headers).status_code == 403


def test_keys_go_to_the_requester_who_signed_the_definition_and_to_no_other(world):
    """A definition is public: whoever read it and has a token of its own gets nothing for it from KGC."""
    definition = definition_of(world.requester.signing).sign(world.requester.signing)
    stranger = Owner(world.token("kgc", "requester").token, SigningKey.fresh())
    with pytest.raises(Forbidden):
        KgcClient(world.service("kgc", stranger)).create_task(definition)
    with pytest.raises(NotAuthenticated):
        KgcClient(world.service("kgc", world.token("kgc", "requester"))).create_task(definition)
    assert KgcClient(world.service("kgc", world.owner("kgc"))).create_task(definition).bundle


def test_a_requester_s_signature_is_for_one_body_and_for_a_while(campaign):
    world, deposit, ledger = (
        campaign.world,
        f"/v1/tasks/{campaign.task}/deposits/n",
        f"/v1/tasks/{campaign.task}/ledger",
    )
    headers = world.owner("sp").headers("PUT", deposit, b'{"amount": 1}', world.clock.now())
    answer = world.http("sp").put(deposit, content=b'{"amount": 9}', headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:crowdfl:problem:bad-signature")
    headers = world.owner("sp").headers("GET", ledger, b"", world.clock.now() - 301)
    assert world.http("sp").get(ledger, headers=headers).status_code == 401


def test_a_token_is_known_by_its_name_and_role_and_is_not_in_the_file(tokens):
    """A SHA-256 of 256 random bits gives nothing away. The file has the form that `docs/` says, and is its owner's alone."""
    token = tokens.add("platform", "sp")
    assert (tokens.check(token).name, tokens.check(token).role) == ("platform", "sp")
    assert len(token) >= 43  # 256 bits in base64
    text = tokens.path.read_text()
    assert token not in text
    assert json.loads(text)["version"] == 1
    assert [sorted(entry) for entry in json.loads(text)["tokens"]] == [["name", "role", "sha256"]]
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    new = tokens.rotate("platform")
    with pytest.raises(NotAuthenticated):
        tokens.check(token)
    assert tokens.check(new).role == "sp"


def test_names_and_roles_of_tokens_are_checked(tokens):
    tokens.add("platform", "sp")
    for act, error in (
        (lambda: tokens.add("platform", "sp"), Conflict),
        (lambda: tokens.add("other", "root"), SettingsError),
        (lambda: tokens.add("", "sp"), SettingsError),
        (lambda: tokens.rotate("nobody"), NotReady),
        (lambda: tokens.revoke("nobody"), NotReady),
    ):
        with pytest.raises(error):
            act()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2, "tokens": []}', '{"version": 1, "tokens": [1]}'])
def test_a_damaged_file_of_tokens_is_named(tokens, text):
    tokens.add("platform", "sp")
    tokens.path.write_text(text)
    with pytest.raises(KeyFileDamaged):
        tokens.entries()


def test_a_file_that_others_can_read_is_refused(tokens):
    """Someone may have added a token of their own."""
    token = tokens.add("platform", "sp")
    tokens.path.chmod(0o644)
    with pytest.raises(KeyFilePermissions):
        tokens.check(token)


HOUR = 3600.0


@pytest.fixture
def clock():
    return ManualClock(1_000_000.0)


@pytest.fixture
def tokens(tmp_path, clock):
    return Tokens(tmp_path / "tokens.json", clock.now)


def test_both_tokens_are_good_until_the_overlap_ends(tokens, clock):
    old = tokens.add("sp", "sp")
    new = tokens.rotate("sp", HOUR)
    assert (tokens.check(old).expires, tokens.check(new).expires) == (1_003_600.0, None)
    clock.time += HOUR - 1
    assert tokens.check(old).role == "sp"
    clock.time += 1
    with pytest.raises(TokenExpired, match="good until 1970-01-12 14:46:40 UTC"):
        tokens.check(old)
    assert tokens.check(new).role == "sp"


def test_a_second_rotation_does_not_lengthen_the_first_one_s_overlap(tokens, clock):
    first = tokens.add("sp", "sp")
    second = tokens.rotate("sp", HOUR)
    third = tokens.rotate("sp", 10 * HOUR)
    clock.time += 2 * HOUR
    with pytest.raises(TokenExpired):
        tokens.check(first)
    assert {tokens.check(token).name for token in (second, third)} == {"sp"}


def test_a_stolen_token_is_ended_at_once(tokens):
    """Rotation without an overlap and revocation reach the old ones of the name too, and nobody else's."""
    other, first = tokens.add("csp", "csp"), tokens.add("sp", "sp")
    second = tokens.rotate("sp", HOUR)
    third = tokens.rotate("sp")
    for token in (first, second):
        with pytest.raises(NotAuthenticated):
            tokens.check(token)
    fourth = tokens.rotate("sp", HOUR)
    tokens.revoke("sp")
    for token in (third, fourth):
        with pytest.raises(NotAuthenticated):
            tokens.check(token)
    assert tokens.check(other).role == "csp"


def test_what_has_ended_leaves_the_file_at_the_next_change(tokens, clock):
    tokens.add("sp", "sp")
    tokens.rotate("sp", HOUR)
    assert len(tokens.entries()) == 2
    clock.time += HOUR
    tokens.add("csp", "csp")
    found = json.loads(tokens.path.read_text())
    assert [entry["name"] for entry in found["tokens"]] == ["sp", "csp"]


def test_a_holder_makes_its_own_token_and_tells_the_digest_alone(tokens, clock):
    """Safe to repeat; the next one replaces it, with or without an overlap."""
    first, second, third = new_token(), new_token(), new_token()
    tokens.accept("sp", "sp", token_digest(first))
    before = tokens.path.read_bytes()
    tokens.accept("sp", "sp", token_digest(first))
    assert tokens.path.read_bytes() == before
    tokens.accept("sp", "sp", token_digest(second), HOUR)
    assert (tokens.check(first).expires, tokens.check(second).expires) == (1_003_600.0, None)
    tokens.accept("sp", "sp", token_digest(second), HOUR)
    assert tokens.check(first).expires == 1_003_600.0
    tokens.accept("sp", "sp", token_digest(third))
    for token in (first, second):
        with pytest.raises(NotAuthenticated):
            tokens.check(token)


def test_a_holder_may_go_back_to_its_old_token_during_the_overlap(tokens):
    """The digest that comes again has no end any more, and is in the file once."""
    first, second = new_token(), new_token()
    tokens.accept("sp", "sp", token_digest(first))
    tokens.accept("sp", "sp", token_digest(second), HOUR)
    tokens.accept("sp", "sp", token_digest(first), HOUR)
    assert (tokens.check(first).expires, tokens.check(second).expires) == (None, 1_003_600.0)
    assert len(tokens.entries()) == 2


@pytest.mark.parametrize("end", ["-1", "1e300", "NaN", "Infinity", '"soon"'])
def test_an_end_that_is_no_time_is_a_damaged_file(tokens, end):
    """Nobody is let in by it, and nothing fails without a name."""
    token = tokens.add("sp", "sp")
    entry = f'{{"name": "sp", "role": "sp", "sha256": "{token_digest(token)}", "expires": {end}}}'
    tokens.path.write_text(f'{{"version": 1, "tokens": [{entry}]}}')
    with pytest.raises(KeyFileDamaged):
        tokens.check(token)


def test_nobody_takes_another_s_digest_or_name(tokens):
    """Digests are public: with another's, its owner would be taken for somebody else."""
    digest = token_digest(new_token())
    tokens.accept("sp", "sp", digest)
    with pytest.raises(Conflict, match="every holder makes its own"):
        tokens.accept("evil", "requester", digest)
    with pytest.raises(Conflict, match="another role"):
        tokens.accept("sp", "requester", token_digest(new_token()))
    for wrong in ("", "0" * 63, "0" * 65, "G" * 64, "0" * 64 + "\n"):
        with pytest.raises(SettingsError, match="64 hexadecimal"):
            tokens.accept("new", "requester", wrong)
    with pytest.raises(SettingsError, match="not negative"):
        tokens.rotate("sp", -1.0)
    assert len(tokens.entries()) == 1
