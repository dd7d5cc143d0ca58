"""What the services' own OpenAPI documents lead a tool to send: requests of the documented form, and of forms beside it."""

import functools

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from tests.fuzz.platform import SERVICES, Ask
from tests.fuzz.test_routes import CREDENTIALS, with_headers
from tests.fuzz.trial import scaled

BASE = "https://service"


@functools.cache
def cases(service, mode, document):
    schema = schemathesis.openapi.from_dict(document())
    found = [result.ok() for result in schema.get_all_operations()]
    return st.one_of([operation.as_strategy(generation_mode=mode) for operation in found])


def as_ask(platform, service, case, task, name):
    """The case as bytes, for a task that is there and a deposit of one of few names."""
    if "task" in case.path_parameters and task is not None:
        case.path_parameters["task"] = task
    if "name" in case.path_parameters and name is not None:
        case.path_parameters["name"] = name
    prepared = requests.Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
    body = prepared.body or b""
    raw = body.encode() if isinstance(body, str) else body
    kept = {"content-type", "content-length"}
    headers = tuple(
        (key.lower().encode(), value.encode() if isinstance(value, str) else value)
        for key, value in prepared.headers.items()
        if key.lower() in kept
    )
    return Ask(service, case.method, prepared.url.removeprefix(BASE), headers, (raw,))


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@settings(max_examples=scaled(80), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_requests_made_from_the_schema(platform, service, mode, data):
    """Whoever sends them, each is served or refused by name, and a refusal changes nothing."""
    case = data.draw(cases(service, mode, platform.world.apps[service].openapi))
    task = data.draw(st.sampled_from([platform.open, platform.over, None]))
    ask = as_ask(platform, service, case, task, data.draw(st.sampled_from(["first", "n"])))
    credential = data.draw(st.sampled_from(CREDENTIALS))
    platform.check(with_headers(platform, ask, credential, ask.headers))
