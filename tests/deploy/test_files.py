"""What can be checked of deploy/ without building or starting anything."""

import re
import shutil
import sys
import tomllib
from fnmatch import fnmatch

import kubernetes_validate
import pytest
import yaml

from crowdfl.settings import ServiceSettings
from tests import subprocesses
from tests.deploy.parts import DEPLOY, HOME, ROLES, ROOT, command_of, compose, copied, of_image, stages
from tests.http.processes import serving


@pytest.mark.parametrize("role", ROLES)
def test_a_roles_image_starts_the_role_as_nobody_and_says_how_it_is(role, tmp_path):
    """Its own command, a user without rights, a check, its port, and SIGTERM."""
    assert command_of(role, tmp_path) == ["crowdfl", role, "serve", f"{tmp_path}/settings.toml"]
    assert of_image(role, "USER") == "10001:10001"
    assert "healthcheck.py" in (of_image(role, "HEALTHCHECK") or "")
    assert of_image(role, "EXPOSE") == {"kgc": "7101", "sp": "7102", "csp": "7103"}[role]
    assert (of_image(role, "STOPSIGNAL"), of_image(role, "VOLUME")) == ("SIGTERM", HOME)


def test_the_images_are_built_in_stages_from_what_the_checkout_has():
    """What builds stays behind; every source is there and reaches the build; packages are those of the tests, by hash."""
    known = stages()
    assert {stage.base for stage in known.values()} == {"${BASE}", "role"}
    assert next(rest for name, rest in known["role"].steps if name == "COPY").startswith("--from=build")
    shown = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]
    assert len(copied()) >= 6
    for source in copied():
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in shown), f"{source} is ignored"
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()
    (install,) = (rest for name, rest in known["build"].steps if name == "RUN")
    assert install.count("--require-hashes") == 2
    assert install.count("--no-index") == 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    of_roles = [
        *project["project"]["dependencies"],
        *(one for name in ("s3", "services", "tracing") for one in extras[name]),
    ]
    known = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:])
    for file, wanted in (
        ("requirements.txt", of_roles),
        ("build-requirements.txt", project["build-system"]["requires"]),
    ):
        text = (DEPLOY / file).read_text()
        pinned = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE))
        assert len(pinned) == text.count("==")
        by_name = {_plain(name): version for name, version in pinned.items()}
        assert {_plain(re.split(r"[\[><=]", one)[0]) for one in wanted} <= set(by_name)
        assert by_name.items() <= {_plain(name): version for name, version in known.items()}.items()


def _plain(name):
    return name.lower().replace("_", "-")


@pytest.mark.parametrize("role", ROLES)
def test_a_kubernetes_manifest_is_valid_and_gives_a_role_few_rights(role):
    """By the schemas of the newest version that is known; its image, port and probes are the role's."""
    documents = list(yaml.safe_load_all((DEPLOY / f"kubernetes/{role}.yaml").read_text()))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    kinds = [document["kind"] for document in documents]
    assert kinds[1:3] == ["Service", "PodDisruptionBudget"]
    assert ("HorizontalPodAutoscaler" in kinds) is (role == "sp")
    pod = documents[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert str(container["ports"][0]["containerPort"]) == of_image(role, "EXPOSE")
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == of_image(role, "USER")
    assert (container["securityContext"]["readOnlyRootFilesystem"], pod["automountServiceAccountToken"]) == (
        True,
        False,
    )
    assert container["volumeMounts"][0]["mountPath"] == HOME


def test_the_trial_gives_each_role_its_own_folder_and_no_rights():
    """No role's container sees another's keys; the database's password is asked for."""
    services = compose()["services"]
    for role in ROLES:
        own = services[role]
        assert own["volumes"] == [f"{role}:{HOME}"]
        assert (own["read_only"], own["cap_drop"], own["build"]["target"]) == (True, ["ALL"], role)
        assert "no-new-privileges:true" in own["security_opt"]
        assert (DEPLOY / "trial" / own["build"]["context"] / own["build"]["dockerfile"]).resolve().is_file()
        assert all(port.startswith("127.0.0.1:") for port in own.get("ports", ()))
    assert services["database"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    for service in services.values():
        mounted = [volume.partition(":")[0] for volume in service["volumes"]]
        assert all((DEPLOY / "trial" / source).is_file() for source in mounted if source.startswith("."))
        assert {source for source in mounted if not source.startswith(".")} <= set(compose()["volumes"])


def test_a_container_is_healthy_while_its_role_answers(tmp_path):
    """Over TLS, by the settings of the role, and not after its end; without a file it says so."""
    check = [sys.executable, str(DEPLOY / "healthcheck.py"), str(tmp_path / "kgc" / "settings.toml")]

    def status():
        return subprocesses.run(check, capture_output=True, timeout=60, check=False)

    assert status().returncode == 1
    with serving(tmp_path) as platform:
        port = platform.urls["kgc"].rpartition(":")[2]
        text = f'host = "127.0.0.1"\nlisten = "0.0.0.0"\nport = {port}\ncertificate = "x"\nca = "{platform.ca}"\n'
        (tmp_path / "kgc" / "settings.toml").write_text(text)
        assert (status().returncode, status().stderr) == (0, b"")
    assert status().returncode == 1
    assert b"not alive" in status().stderr
    assert {"host", "listen", "port", "certificate", "ca"} <= set(ServiceSettings.model_fields)


UNIT = DEPLOY / "systemd" / "crowdfl@.service"


def test_a_unit_is_what_systemd_understands(tmp_path):
    """For each role, with the program where the unit looks for it; and the unit leaves the role few rights."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the unit's syntax is not checked")
    program = tmp_path / "crowdfl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "network-online.target").write_text("[Unit]\n")
    text = UNIT.read_text().replace("/opt/crowdfl/bin/crowdfl", str(program))
    text = re.sub(
        "^(User|Group|Documentation|After|Wants)=.*\n", "", text, flags=re.M
    )  # none of them is on this machine
    for role in ROLES:
        (tmp_path / f"crowdfl@{role}.service").write_text(text)
        command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / f"crowdfl@{role}.service")]
        done = subprocesses.run(command, capture_output=True, text=True, timeout=120, check=False)
        said = [line for line in done.stderr.splitlines() if "crowdfl" in line]
        assert (done.returncode, said) == (0, []), done.stderr


def test_a_unit_restarts_reloads_and_stops_a_role_and_takes_its_rights():
    lines = UNIT.read_text().splitlines()
    for wanted in (
        "ExecStart=/opt/crowdfl/bin/crowdfl %i serve /var/lib/crowdfl-%i/settings.toml",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=on-failure",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "StateDirectory=crowdfl-%i",
        "StateDirectoryMode=0700",
        "CapabilityBoundingSet=",
        "LimitCORE=0",
    ):
        assert wanted in lines
    users = (DEPLOY / "systemd" / "crowdfl.sysusers").read_text()
    assert all(f"u crowdfl-{role} " in users for role in ROLES)
