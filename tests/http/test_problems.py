"""Every error becomes a problem, and the same error again at the client."""

import errno

import pytest

from crowdfl import errors
from crowdfl.errors import KeyFileMissing, StorageFull
from crowdfl.reasons import Reason
from crowdfl.roles.ports import ManualClock
from crowdfl.services.http.logs import Ration
from crowdfl.services.http.problems import MEDIA_TYPE, problem_for
from crowdfl.services.http.wire import error_from
from tests.hosts import raising

TREE = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_every_error_of_the_tree_comes_back_as_itself(kind):
    """By its type, with a status that fits: what the caller got wrong is no 5xx and the reverse."""
    problem = problem_for(kind("what was wrong"))
    assert type(error_from(problem.status, problem.body())) is kind
    assert 400 <= problem.status < 600


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.BadSignature, 403),
        (errors.NotAuthenticated, 401),
        (errors.Forbidden, 403),
        (errors.UnknownTask, 404),
        (errors.NotReady, 404),
        (errors.Conflict, 409),
        (errors.AlreadyCounted, 409),
        (errors.TooLate, 410),
        (errors.LimitExceeded, 413),
        (errors.Truncated, 400),
        (errors.NotAUnit, 422),
        (errors.WrongAmount, 422),
        (errors.WrongProtocol, 426),
        (errors.KeyFileMissing, 500),
        (errors.ServiceUnavailable, 503),
        (errors.StorageFull, 507),
    ],
)
def test_an_error_has_the_status_of_its_nearest_ancestor(kind, status):
    assert problem_for(kind("")).status == status


def test_an_error_that_is_not_in_the_tree_yet_is_covered():

    class Tomorrow(errors.TooLate):
        """Not thought of."""

    assert problem_for(Tomorrow("later")).status == 410


def test_a_fault_of_the_service_is_told_without_its_message():
    assert "secret.key" not in str(problem_for(KeyFileMissing("secret.key is gone")).body())


@pytest.mark.parametrize(
    "error",
    [
        errors.StoreUnavailable('sqlite:////srv/sp/state.db cannot be used now: connection to "10.1.2.3" failed'),
        errors.StoreOutdated("postgresql+psycopg://crowdfl@10.1.2.3/srv lacks tables"),
        errors.StoreTooNew("sqlite:////srv/sp/state.db was changed by a newer program"),
        errors.ServiceUnavailable("https://10.1.2.3:7102/srv cannot be reached (ConnectError): refused"),
        OSError(errno.EMFILE, "Too many open files", "/srv/sp/blobs"),
        OSError(errno.EIO, "Input/output error", "/srv/sp/blobs"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_address_of_a_database_or_peer_is_told(error):
    """Nor a file: a caller can do nothing with it but attack it."""
    text = str(problem_for(error).body())
    assert not any(part in text for part in ("srv", "10.1.2.3", "://", "crowdfl@"))


def test_a_store_that_is_away_is_told_without_its_address(world, logged):
    """Over HTTP, by whatever route; the operator finds it in the log."""
    world.close()
    path = world.folder / "sp/state.db"
    path.unlink()
    path.mkdir()
    for target in (f"/v1/tasks/{'0' * 64}", "/readyz"):
        answer = world.http("sp").get(target)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:crowdfl:problem:store-unavailable")
        assert "try again later" in answer.json()["detail"]
        assert not any(part in answer.text for part in ("sqlite", str(world.folder), "state.db"))
    assert str(path) in str([entry.get("reason") for entry in logged])


@pytest.mark.parametrize(
    ("number", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EMFILE, 503), (errno.EIO, 500)]
)
def test_a_failure_of_the_disk_has_the_status_of_its_kind(number, status):
    """A client knows whether its request was fine, and when to come again; a file's name is not for it."""
    problem = problem_for(OSError(number, "not now", "somewhere/private"))
    assert (problem.status, "private" in str(problem.body())) == (status, False)
    assert isinstance(error_from(problem.status, problem.body()), StorageFull) is (status == 507)
    assert dict(problem.headers) == ({"Retry-After": "5"} if status == 503 else {})


def test_an_error_that_nobody_foresaw_is_a_500_without_details(world, monkeypatch, logged):
    """The answer holds the request's id alone; the log holds where it happened, under that id, without the message."""
    monkeypatch.setattr(type(world.kgc), "bundle", raising(ZeroDivisionError("lambda = 1234567")))
    headers = world.token("kgc", "sp").headers("", "", b"", 0.0) | {"X-CrowdFL-Protocol": "3", "X-Request-Id": "abc"}
    answer = world.http("kgc").get(f"/v1/tasks/{'0' * 64}/bundle", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (500, MEDIA_TYPE)
    assert answer.json()["request"] == "abc"
    assert "1234567" not in answer.text + str(logged)
    assert [(entry["error"], entry["request"]) for entry in logged if entry["event"] == "failed"] == [
        ("ZeroDivisionError", "abc")
    ]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"definition": 7}', b'{"definition": "x", "more": 1}', b"\xff\xfe"],
    ids=["empty", "cut", "list", "missing", "wrong type", "unknown field", "not text"],
)
def test_a_body_of_another_form_is_a_422_in_the_same_form(world, body):
    headers = world.owner("kgc").headers("POST", "/v1/tasks", body, world.clock.now())
    answer = world.http("kgc").post("/v1/tasks", content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (422, MEDIA_TYPE)
    assert answer.json()["type"] == "urn:crowdfl:problem:invalid-request"
    assert answer.json()["errors"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PATCH", "/v1/key", 405),
        ("GET", "/v1/tasks/not-a-task", 422),
        ("GET", f"/v1/tasks/{'0' * 64}", 404),
        ("POST", f"/v1/tasks/{'0' * 64}/claims", 404),
        ("GET", f"/v1/tasks/{'0' * 64}/rounds/1/average", 401),
    ],
)
def test_a_wrong_address_is_a_problem_too(world, method, path, status):
    answer = world.http("sp").request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE)
    assert answer.json()["status"] == status


@pytest.mark.parametrize("number", ["0", "-1", str(10**30), "one", "1.5"])
def test_a_round_that_no_database_can_count_is_refused(campaign, number):
    target = f"/v1/tasks/{campaign.task}/rounds/{number}/average"
    headers = campaign.world.owner("sp").headers("GET", target, b"", campaign.world.clock.now())
    answer = campaign.world.http("sp").get(target, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (422, MEDIA_TYPE)


def test_refusals_are_logged_at_a_limited_rate(world, logged):
    """Each kind by itself; the metrics count them all, and the next minute's first line says how many were left out."""
    http, path = world.http("sp"), f"/v1/tasks/{'0' * 64}"
    for _ in range(100):
        http.get(path)
    http.get("/nowhere")
    lines = [entry for entry in logged if entry["event"] == "refused"]
    assert [entry["error"] for entry in lines].count("UnknownTask") == 60
    assert len(lines) == 61


def test_a_ration_says_how_many_lines_were_left_out():
    clock = ManualClock(0.0)
    ration = Ration(2, clock.now)
    assert [ration.take("a") for _ in range(5)] == [0, 0, None, None, None]
    assert ration.take("b") == 0
    clock.time = 61.0
    assert [ration.take("a") for _ in range(3)] == [3, 0, None]


def test_why_an_upload_was_left_out_travels_as_a_code():
    """Beside its English: another program compares the code alone, and refuses one that it does not know."""
    left_out = errors.UploadRejected(Reason.BROKEN_SEAL.words, Reason.BROKEN_SEAL)
    body = problem_for(left_out).body()
    assert body["reason"] == "broken_seal"
    assert error_from(409, body).reason is Reason.BROKEN_SEAL
    for wrong in ("its seal does not open", "", None, {}):
        with pytest.raises(errors.FormatError):
            error_from(409, body | {"reason": wrong})
    unsaid = problem_for(errors.UploadRejected("the platform does not say why")).body()
    assert "reason" not in unsaid
    assert error_from(409, unsaid).reason == ""
