"""What every service does alike: ids, versions, health, numbers, logs."""

import json
import logging
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from crowdfl.errors import ServiceUnavailable, SettingsError
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.client.transport import Bearer, Signer
from crowdfl.services.http.wire import PROTOCOL_HEADER, REQUEST_ID_HEADER
from crowdfl.settings import TOKEN_ROLES
from tests.http.test_auth import OPENS, call
from tests.http.world import definition_of

SERVICES = ("kgc", "sp", "csp")


@pytest.mark.parametrize("service", SERVICES)
def test_a_request_keeps_its_id_or_gets_one(campaign, service, logged):
    """The id is in the answer and in the log; one that could forge a line is replaced."""
    http = campaign.world.http(service)
    assert http.get("/healthz", headers={REQUEST_ID_HEADER: "my-id.1"}).headers[REQUEST_ID_HEADER] == "my-id.1"
    assert logged[-1]["request"] == "my-id.1"
    for bad in ("a b", "x" * 65, '"}'):
        made = http.get("/healthz", headers={REQUEST_ID_HEADER: bad}).headers[REQUEST_ID_HEADER]
        assert made not in ("", bad)


@pytest.mark.parametrize("service", SERVICES)
def test_another_version_of_the_protocol_is_refused(campaign, service):
    for other in ("1", "2", "4", "", "3, 2"):
        answer = campaign.world.http(service).get("/v1/anything", headers={PROTOCOL_HEADER: other})
        assert (answer.status_code, answer.json()["type"]) == (426, "urn:crowdfl:problem:wrong-protocol")
        assert answer.headers["upgrade"] == "crowdfl/3"
        assert answer.headers[PROTOCOL_HEADER] == "3"


@pytest.mark.parametrize(
    ("service", "role", "path"),
    [("kgc", "sp", "/v1/tasks/{}/bundle"), ("csp", "sp", f"/v1/tasks/{{}}/requests/{'0' * 64}")],
)
def test_a_server_must_say_which_protocol_it_speaks(campaign, service, role, path):
    headers = campaign.world.token(service, role).headers("", "", b"", 0.0)
    assert campaign.world.http(service).get(path.format(campaign.task), headers=headers).status_code == 426


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_healthy_ready_and_documented(campaign, service):
    http = campaign.world.http(service)
    assert [http.get(path).status_code for path in ("/healthz", "/readyz", "/openapi.json")] == [200, 200, 200]
    assert http.get("/openapi.json").json()["openapi"].startswith("3.")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_without_its_disk_is_alive_but_not_ready(world, service):
    """A supervisor must not restart it, a load balancer must not use it."""
    world.close()
    shutil.rmtree(world.folder / service)
    http = world.http(service)
    assert (http.get("/healthz").status_code, http.get("/readyz").status_code >= 500) == (200, True)


def test_numbers_are_counted_by_route_and_status(campaign, person):
    upload = person.update()
    for _ in range(2):
        person.sp.upload(campaign.task, 1, upload)
    campaign.world.http("sp").get(f"/v1/tasks/{'0' * 64}")
    text = numbers(campaign.world, "sp")
    assert 'crowdfl_uploads_acknowledged_total{kind="new"} 1.0' in text
    assert 'crowdfl_uploads_acknowledged_total{kind="again"} 1.0' in text
    assert 'crowdfl_rounds{state="open"} 1.0' in text
    assert 'crowdfl_requests_total{method="GET",route="/v1/tasks/{task}",status="404"} 1.0' in text
    looks = 3.0 * len(campaign.people) + 1.0  # before inviting, at the papers, and whether there is a place
    assert f'crowdfl_request_seconds_count{{route="/v1/tasks/{{task}}"}} {looks}' in text


def test_an_invented_method_makes_one_label(campaign, logged):
    """In the numbers and in the log: on a route that is there, and on one that is not."""
    for number in range(3):
        for path in ("/made-up", "/healthz", f"/v1/tasks/{campaign.task}"):
            assert campaign.world.http("sp").request(f"INVENTED{number}", path).status_code in (404, 405)
    text = numbers(campaign.world, "sp")
    assert 'method="other",route="unmatched",status="404"} 3.0' in text
    assert "INVENTED" not in text + json.dumps(logged, default=repr)


def test_labels_do_not_grow_with_what_strangers_send(campaign):
    """Many paths and methods make as many labels as one of each."""
    http = campaign.world.http("kgc")

    def ask(number):
        http.request(f"M{number}", f"/x{number}")
        http.request("GET", f"/x{number}")
        http.request("GET", f"/v1/tasks/{number:032x}/bundle")
        http.request(f"M{number}", f"/v1/tasks/{number:032x}/bundle")

    ask(0)
    numbers(campaign.world, "kgc")  # which is a request, too
    before = len(numbers(campaign.world, "kgc").splitlines())
    for number in range(1, 50):
        ask(number)
    assert len(numbers(campaign.world, "kgc").splitlines()) == before


@pytest.mark.parametrize("service", SERVICES)
def test_no_route_logs_what_its_callers_sent(campaign, service, logged, caplog):
    """Every route with every credential: no token, signature, key or body in any line, though each line names its request."""
    world, person, sent = campaign.world, campaign.people[0], []
    callers = [*(world.token(service, role) for role in TOKEN_ROLES), world.owner(service)]
    callers += [Signer(person.who, person.keys.signing), Bearer("crowdfl_" + "s3cret" * 8)]

    def headers_of(caller, *given):
        made = caller.headers(*given)
        sent.extend(re.findall(r"[A-Za-z0-9_-]{30,}", " ".join(made.values())))
        return made

    with caplog.at_level(logging.DEBUG):
        for route in OPENS[service]:
            if "DELETE" not in route:
                for caller in callers:
                    call(campaign, service, route, partial(headers_of, caller))
    text = json.dumps(logged, default=repr) + caplog.text
    private = [world.requester.signing.private.hex(), person.keys.signing.private.hex(), world.receipts.private.hex()]
    assert [secret for secret in {*sent, *private} if secret in text] == []
    named = {f"{line['method']} {line['route']}" for line in logged if "route" in line}
    assert named >= {route for route in OPENS[service] if "DELETE" not in route}
    assert all(entry.get("request") for entry in logged)


def test_keys_in_the_making_do_not_take_up_the_service(world, monkeypatch):
    """Some wait, the next is told to come again, and health is told at once."""
    go, started = threading.Event(), threading.Semaphore(0)

    def slow(_kgc, _definition):
        started.release()
        assert go.wait(20)
        raise SettingsError("enough")

    monkeypatch.setattr(type(world.kgc), "create_task", slow)
    client = KgcClient(world.service("kgc", world.owner("kgc")))
    definition = definition_of(world.requester.signing).sign(world.requester.signing)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(client.create_task, definition) for _ in range(4)]
        for _ in waiting:
            assert started.acquire(timeout=20)
        with pytest.raises(ServiceUnavailable, match="other tasks"):
            client.create_task(definition)
        assert world.http("kgc").get("/healthz").status_code == 200
        go.set()
        assert {type(future.exception()) for future in waiting} == {SettingsError}
    with pytest.raises(SettingsError):
        client.create_task(definition)


def numbers(world, service):
    headers = world.token(service, "operator").headers("", "", b"", 0.0)
    return world.http(service).get("/metrics", headers=headers).text
