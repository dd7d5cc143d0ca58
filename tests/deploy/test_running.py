"""deploy/ at work: the trial's services with PostgreSQL, nginx in front of SP, the images where they can be built."""

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from crowdfl.roles.participant.agent import Agent
from crowdfl.services.client.peers import SpClient
from crowdfl.services.client.transport import Link
from crowdfl.services.http import tls
from crowdfl.web.pages import phone_assets
from tests import subprocesses
from tests.deploy.parts import DEPLOY, ROLES, ROOT, command_of, compose
from tests.http.pieces import InPieces
from tests.http.processes import serving
from tests.http.world import task_definition
from tests.roles.test_agent import Trainer

pytestmark = pytest.mark.second
SERVER = os.environ.get("CROWDFL_TEST_POSTGRES")
BASE_IMAGE = os.environ.get("CROWDFL_TEST_BASE_IMAGE")


@pytest.fixture
def databases():
    """The trial's databases under names of their own, made by its own script; the URL of a role's, with ROLE in it."""
    if SERVER is None:
        pytest.skip("set CROWDFL_TEST_POSTGRES to start the trial's services: there is no PostgreSQL")
    own, server = f"trial_{secrets.token_hex(4)}", make_url(SERVER)
    script = (DEPLOY / "trial" / "databases.sql").read_text().replace("crowdfl_", f"{own}_")
    names = re.findall(r"CREATE DATABASE (\w+);", script)
    plain = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    yield server.set(drivername="postgresql+psycopg", database=f"{own}_ROLE").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


def test_the_trials_services_start_as_the_files_say_and_take_a_task(tmp_path, databases):
    """Its init script, the images' own commands, PostgreSQL for each role; a requester creates a task; SIGTERM ends them."""
    shim = tmp_path / "bin" / "crowdfl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m crowdfl "$@"\n')
    shim.chmod(0o755)
    path, folder = f"{shim.parent}:{os.environ['PATH']}", tmp_path / "campaign"
    ports = dict(zip(ROLES, subprocesses.free_ports(3), strict=True))
    options = " ".join(f"--{role}-port {port}" for role, port in ports.items())
    hosts = {f"{role.upper()}_HOST": "127.0.0.1" for role in ROLES}
    given = {"CAMPAIGN": str(folder), "DATABASE_URL": databases, "INIT_OPTIONS": options, "LISTEN": "127.0.0.1"}
    shell = compose()["services"]["init"]["entrypoint"][0]
    script = [shell, str(DEPLOY / "trial" / "init.sh")]
    for _ in range(2):  # the second time there is nothing to do
        subprocesses.run(script, env=os.environ | {"PATH": path} | hosts | given, check=True, timeout=600)
    with contextlib.ExitStack() as stack:
        started = {role: stack.enter_context(_role(role, folder / role, path)) for role in ROLES}
        for role, process in started.items():
            _wait_until_alive(process, folder / role / "settings.toml")
        with httpx.Client(timeout=60, verify=tls.client_context(folder / "sp" / "peers" / "ca.pem")) as http:
            ready = [http.get(f"https://127.0.0.1:{port}/readyz").status_code for port in ports.values()]
        assert ready == [200, 200, 200]
        task = tmp_path / "task.toml"
        new = [str(shim), "task", "new"]
        task.write_bytes(subprocesses.run(new, check=True, stdout=subprocess.PIPE, timeout=600).stdout)
        create = [str(shim), "task", "create", str(task), "-s", str(folder / "requester" / "settings.toml")]
        made = subprocesses.run(create, check=True, stdout=subprocess.PIPE, text=True, timeout=900).stdout.split()[-1]
        for process in started.values():
            process.terminate()
        assert [process.wait(60) for process in started.values()] == [0, 0, 0]
    for role in ROLES:
        url = make_url(databases.replace("ROLE", role)).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False)) as connection:
            assert connection.execute("SELECT task FROM tasks").fetchall() == [(made,)]
        assert not (folder / role / "state.db").exists()


@contextlib.contextmanager
def _role(role, folder, path):
    with open(folder / "log", "wb") as log:
        options = {"env": os.environ | {"PATH": path}, "stderr": log}
        with subprocesses.running(command_of(role, folder), **options) as process:
            yield process


def _wait_until_alive(process, settings):
    check = [sys.executable, str(DEPLOY / "healthcheck.py"), str(settings)]
    until = time.monotonic() + 90
    while subprocesses.run(check, capture_output=True, check=False).returncode:
        assert process.poll() is None, (settings.parent / "log").read_text()[-2000:]
        assert time.monotonic() < until
        time.sleep(0.2)


@contextlib.contextmanager
def nginx_before(platform, folder, **changes):
    """The example in front of a running SP, on a free port, with this machine's certificates; its address."""
    (port,) = subprocesses.free_ports(1)
    text = (DEPLOY / "nginx" / "crowdfl-sp.conf").read_text()
    there = platform.urls["sp"].removeprefix("https://")
    replaced = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "    listen [::]:443 ssl;\n": "",
        "server 127.0.0.1:7102;": f"server {there};",
        "/etc/ssl/crowdfl/sp.pem": str(next(folder.glob("sp*.pem"))),
        "/etc/ssl/crowdfl/sp.key": str(next(folder.glob("sp*.key"))),
        "/etc/ssl/crowdfl/ca.pem": str(platform.ca),
        "proxy_ssl_name sp.example.org;": "proxy_ssl_name localhost;",
    } | changes
    for before, after in replaced.items():
        assert before in text, before
        text = text.replace(before, after)
    (folder / "site.conf").write_text(text)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\nlog_format plain '$uri \"$request\" $status $upstream_addr';\naccess_log {folder}/access.log plain;\n"
        f"{temporary}include {folder}/site.conf;\n}}\n"
    )
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "error.log")]
    tested = subprocesses.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    with subprocesses.running(command) as process:
        try:
            yield f"https://127.0.0.1:{port}"
        finally:
            process.terminate()  # a killed master would leave its workers behind
            process.wait(30)


@pytest.fixture
def with_nginx():
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed: its example is not started (Debian: apt-get install nginx-light)")


def reach_through(platform, url, person, link):
    service = Link(url, platform.ca).open()
    platform.closing.callback(service.close)
    person.sp = link(service)


@pytest.mark.usefixtures("with_nginx")
def test_phones_take_part_through_nginx_and_survive_its_limits(tmp_path):
    """Uploads whole and in pieces, averages, rewards and claims, though nginx turns most of what comes at once away."""
    slow = {"rate=20r/s": "rate=4r/s", "burst=60": "burst=2"}
    with serving(tmp_path) as platform, nginx_before(platform, tmp_path, **slow) as url:
        _, _, people = platform.open_round(task_definition(), links := (SpClient, InPieces, SpClient))
        for person, link in zip(people, links, strict=True):
            reach_through(platform, url, person, link)
        agents = [Agent(person, lambda seconds: time.sleep(min(seconds, 0.3))) for person in people]
        definition = people[0].look()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda agent: agent.take_part(definition, Trainer(), ""), agents))
        paid = [person.claimed.booked or 0 for person in people]
        assert 35_000_000 < sum(paid) <= 36_000_000
        log = (tmp_path / "access.log").read_text()
    turned_away = len(re.findall(r'" 429 ', log))
    assert turned_away > 0


@pytest.mark.usefixtures("with_nginx")
def test_a_phone_gets_the_whole_page_at_once_through_nginx(tmp_path):
    """Every file, twice: the page loads them, and its worker keeps them. Headers come through as SP sent them."""
    places = [f"{place}/{name}" for place, found in phone_assets().items() for name in found]
    with (
        serving(tmp_path) as platform,
        nginx_before(platform, tmp_path) as url,
        httpx.Client(base_url=url, timeout=60, verify=tls.client_context(platform.ca)) as http,
        ThreadPoolExecutor(6) as pool,
    ):
        _wait_for_port(http)
        answers = list(pool.map(http.get, places * 2))
    assert len(answers) > 100
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.headers["content-security-policy"] for answer in answers}) == 1


@pytest.mark.usefixtures("with_nginx")
def test_nginx_turns_away_with_a_problem_and_hides_what_is_the_operators(tmp_path):
    """429 with a time to wait, in the services' own form; /metrics and /readyz are not there; a long body is refused."""
    slow = {"rate=20r/s": "rate=1r/s", "burst=60": "burst=3", "client_max_body_size 350m": "client_max_body_size 1m"}
    with serving(tmp_path) as platform, nginx_before(platform, tmp_path, **slow) as url:
        with httpx.Client(base_url=url, timeout=60, verify=tls.client_context(platform.ca)) as http:
            _wait_for_port(http)
            answers = [http.get("/healthz") for _ in range(12)]
            refused = [answer for answer in answers if answer.status_code == 429]
            assert len(refused) >= 5
            assert {answer.headers["retry-after"] for answer in refused} == {"2"}
            assert json.loads(refused[0].text)["type"] == "urn:crowdfl:problem:service-unavailable"
            found = [_patiently(http, "GET", path).status_code for path in ("/metrics", "/readyz", "/healthz")]
            assert found == [404, 404, 200]
            long = _patiently(http, "POST", "/v1/tasks", content=bytes(2 * 1024 * 1024))
            assert long.status_code == 413
        with contextlib.closing(SpClient(Link(url, platform.ca).open())) as sp:
            assert sp.key() == sp.key()  # by a client that waits as it is told


@pytest.mark.usefixtures("with_nginx")
def test_all_pieces_of_an_upload_go_to_the_same_sp(tmp_path):
    """Whatever is asked about it; uploads are spread over all SPs, and so are other requests. Nobody answers here: the log says
    who was asked."""
    silent = [f"127.0.0.1:{port}" for port in subprocesses.free_ports(2)]
    both = {
        "server 127.0.0.1:7102;": "\n".join(f"server {there} max_fails=0;" for there in silent),
        "rate=20r/s": "rate=9000r/s",
    }
    uploads = [f"/v1/tasks/{task:064x}/rounds/2/uploads/{who:020x}" for task in (1, 2) for who in range(8)]
    with (
        serving(tmp_path) as platform,
        nginx_before(platform, tmp_path, **both) as url,
        # A connection each: nginx closes one whose body nobody took.
        httpx.Client(
            base_url=url, timeout=60, verify=tls.client_context(platform.ca), headers={"Connection": "close"}
        ) as http,
    ):
        _wait_for_port(http)
        for upload in uploads:
            for offset in (0, 500):
                http.patch(f"{upload}?offset={offset}", content=b"piece")
            http.get(f"{upload}/offset")
            http.post(f"{upload}/commit")
            http.get("/v1/key")
    asked = [line.split() for line in (tmp_path / "access.log").read_text().splitlines()]
    for upload in uploads:
        assert len({line[-1] for line in asked if line[0].startswith(upload)}) == 1
    assert {line[-1] for line in asked if line[0].endswith("/commit")} == set(silent)
    assert {line[-1] for line in asked if line[0] == "/v1/key"} == set(silent)


def _wait_for_port(http):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(httpx.ConnectError):
            http.get("/metrics")
            return
        time.sleep(0.05)


def _patiently(http, method, path, **given):
    for _ in range(30):
        answer = http.request(method, path, **given)
        if answer.status_code != 429:
            return answer
        time.sleep(1.0)
    raise AssertionError("it was always turned away")


@pytest.mark.slow
def test_the_images_packages_can_be_installed():
    """As the Containerfile does, resolved and not installed."""
    how = ["--dry-run", "--quiet", "--ignore-installed", "--require-hashes", "-r", "deploy/requirements.txt"]
    command = [sys.executable, "-m", "pip", "install", *how]
    done = subprocesses.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_IN_THE_IMAGE = """
test "$(id -u)" = 10001
crowdfl init /tmp/campaign --kgc-port $0 > /dev/null
crowdfl kgc serve /tmp/campaign/kgc/settings.toml &
until python3 /usr/local/lib/crowdfl/healthcheck.py /tmp/campaign/kgc/settings.toml 2> /dev/null; do sleep 0.2; done
kill $!
wait $!
"""


def test_an_image_is_built_and_its_role_answers_in_it():
    """With buildah, from a base image that is there: CROWDFL_TEST_BASE_IMAGE names one with Python 3.11."""
    if shutil.which("buildah") is None or BASE_IMAGE is None:
        pytest.skip("needs buildah, and a base image that CROWDFL_TEST_BASE_IMAGE names: images are read, not built")

    def buildah(*arguments: str) -> str:
        done = subprocesses.run(["buildah", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    options = [*os.environ.get("CROWDFL_TEST_BUILD_OPTIONS", "").split(), "--build-arg", f"BASE={BASE_IMAGE}"]
    for role in ROLES:
        buildah("bud", "--layers", *options, "-f", "deploy/Containerfile", "--target", role, "-t", f"test-{role}", ".")
        made = json.loads(buildah("inspect", "--type", "image", f"test-{role}"))["OCIv1"]["config"]
        assert (made["User"], made["Entrypoint"][:3]) == ("10001:10001", ["crowdfl", role, "serve"])
    container = buildah("from", "test-kgc")
    try:
        (port,) = subprocesses.free_ports(1)
        buildah("run", container, "--", "timeout", "120", "sh", "-ec", _IN_THE_IMAGE, str(port))
    finally:
        buildah("rm", container)
