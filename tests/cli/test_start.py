"""Commands and `import crowdfl` start at once: what they load is counted, for seconds are another number on each machine."""

import os
import subprocess
import sys

import pytest

from tests import subprocesses
from tests.cli.test_commands import COMMANDS

LOADED = """
import contextlib, io, sys
{before}
for words in {commands}:
    sys.argv = ["crowdfl", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        from crowdfl.cli.main import run
        run()
print(*sys.modules)
"""
HEAVY = {"asyncio", "cryptography", "fastapi", "gmpy2", "httpx", "numpy", "sqlalchemy", "starlette", "torch", "uvicorn"}
LABORATORY = ("audit", "bench", "demo", "demo-phone", "reproduce", "wisdm")
OWN = [words for words in COMMANDS if words and words[0] not in LABORATORY]


def loaded(before="", commands=(), **environment):
    """The modules of a process that does this."""
    script = LOADED.format(before=before, commands=[list(words) for words in commands])
    options = {"stdout": subprocess.PIPE, "text": True, "check": True, "env": os.environ | environment}
    return set(subprocesses.run([sys.executable, "-c", script], **options).stdout.split())


def heavy(modules):
    return {name.partition(".")[0] for name in modules} & HEAVY


@pytest.mark.parametrize("words", [("--help",), ()], ids=["help", "nothing"])
def test_a_list_of_commands_loads_none_of_them(words):
    modules = loaded(commands=[words])
    assert not heavy(modules) | {name for name in modules if name.startswith(("crowdfl.settings", "pydantic"))}
    assert len(modules) < 420


def test_completing_a_command_loads_none():
    modules = loaded(commands=[()], _CROWDFL_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="crowdfl pa")
    assert "typer" in modules
    assert not heavy(modules)
    assert "crowdfl.settings" not in modules


def test_help_of_every_command_loads_nothing_that_computes_or_serves():
    """All of them in one process, groups and what is in them: a body imports what it needs when it runs."""
    modules = loaded(commands=[(*words, "--help") for words in OWN])
    assert {"crowdfl.cli.servers", "crowdfl.cli.task.commands", "crowdfl.cli.train"} <= modules
    assert not heavy(modules)
    assert len(modules) < 500


def test_help_of_the_laboratory_loads_no_measurement():
    """All but `reproduce`, whose options say which experiments take them."""
    commands = [(name, "--help") for name in LABORATORY if name != "reproduce"]
    modules = loaded(commands=commands)
    assert "crowdfl_lab.audit.command" in modules
    assert not heavy(modules) - {"numpy", "gmpy2", "cryptography"}
    assert len(modules) < 750


def test_simulate_loads_no_database_and_no_profile_but_the_usual_one():
    modules = loaded("import crowdfl; crowdfl.simulate")
    assert "crowdfl.simulation.run" in modules
    assert not heavy(modules) & {"asyncio", "fastapi", "httpx", "sqlalchemy", "torch"}
    late = "crowdfl.protocols.hardened", "crowdfl.protocols.paper", "crowdfl.roles.sp", "rich.console"
    assert not {name for name in modules if name.startswith(late)}
    assert len(modules) < 560


def test_a_server_loads_no_database_but_its_own():
    """What migrates, another database's programs, object stores and clusters wait until they are asked for."""
    modules = loaded("import crowdfl.services.local_role")
    assert "crowdfl.services.run" in modules
    late = "alembic", "boto3", "botocore", "distributed", "pandas", "sqlalchemy.dialects.postgresql", "torch"
    late += "crowdfl.learning.recipe", "crowdfl.services.cluster", "numpy.random"  # what trains, a cluster's workers
    assert not {name for name in modules if name.startswith(late)}
    assert len(modules) < 1100


def test_a_first_start_makes_the_tables_without_what_migrates(tmp_path):
    """A server would keep it in memory for as long as it runs."""
    modules = loaded(f"from crowdfl.storage import upgrading; upgrading.upgrade('sqlite:///{tmp_path}/a.db')")
    assert "crowdfl.storage.migrations" in modules
    assert not {name for name in modules if name.startswith(("alembic", "mako"))}
