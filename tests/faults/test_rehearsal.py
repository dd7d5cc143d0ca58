"""A rehearsal: three SPs over one PostgreSQL and one bucket lose their database's host and their machines, amid a campaign."""

import contextlib
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, text

from crowdfl.services.client.transport import Link
from crowdfl.settings import S3Settings
from crowdfl.storage.database import open_engine
from tests import subprocesses
from tests.faults.test_restore import SERVERS, Platform, check, rehearse
from tests.storage.conftest import SERVER
from tests.storage.swift import CREDENTIALS, require_swift, serving_s3

SPS = ("sp", "sp+2", "sp+3")


@dataclass
class Company(Platform):
    """SP runs as three processes, each on a machine with a copy of its folder."""

    bucket: S3Settings | None = None
    after: str = ""  # the database that takes the lost one's place
    report: dict[str, Any] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)

    def prepare(self, database: str | None) -> None:
        super().prepare(database)
        assert self.bucket is not None
        settings = self.settings("sp")
        sealed = settings.read_text().replace("# passphrase_file =", "passphrase_file =")
        place = f'\n[s3]\nbucket = "{self.bucket.bucket}"\nprefix = "sp"\nendpoint = "{self.bucket.endpoint}"\n'
        settings.write_text(sealed + place)
        port = next(line for line in sealed.splitlines() if line.startswith("port = ")).split()[2]
        self._ports = dict(zip(SPS, (int(port), *subprocesses.free_ports(2)), strict=True))
        self._give_passphrase()

    def _give_passphrase(self) -> None:
        """No archive has it."""
        secret = self.roles / "sp/passphrase"
        secret.write_text("what seals SP's keys in the bucket")
        secret.chmod(0o600)

    def start(self, role: str) -> None:
        if role != "sp":
            return super().start(role)
        self._give_passphrase()
        for copy in SPS[1:]:
            shutil.copytree(self.roles / "sp", self.roles / copy)
            own = self.settings(copy)
            own.write_text(own.read_text().replace(f"port = {self._ports['sp']}", f"port = {self._ports[copy]}"))
        for one in SPS:
            self.serve("sp", one)
        return None

    def lose(self, database: str | None) -> None:
        """The database's host while SP runs, then SP's machines. The bucket is elsewhere."""
        assert database is not None
        drop(database)
        for one in SPS:
            self.kill(one)
            shutil.rmtree(self.roles / one)

    def link_of_phone(self, number: int) -> Link:
        """Each phone reaches another machine, before the loss and after it."""
        first = self.link("sp")
        port = self._ports[SPS[number % len(SPS)]]
        return Link(first.url.replace(f":{self._ports['sp']}", f":{port}"), first.ca)

    def servers(self) -> Iterator[Link]:
        yield self.link("kgc")
        yield from (self.link_of_phone(number) for number in range(len(SPS)))

    def rehearse_more(self, archive: Path) -> None:
        """A drill first: beside three SPs that run."""
        (self.folder / "scratch").mkdir()
        tried = self.do("drill", self.settings("sp"), archive, "--scratch", self.folder / "scratch", "--json")
        self.report = json.loads(tried.out)
        assert list((self.folder / "scratch").iterdir()) == []
        shutil.copy(self.settings("sp"), self.folder / "new.toml")  # kept where the loss does not reach

    def where(self, database: str | None) -> tuple[object, ...]:
        """The database comes back on another host, which the settings name."""
        chosen = self.folder / "new.toml"
        assert database is not None
        assert database in chosen.read_text()
        chosen.write_text(chosen.read_text().replace(database, self.after))
        return ("--settings", chosen)


def outside() -> Engine:
    assert SERVER
    return open_engine(SERVER).execution_options(isolation_level="AUTOCOMMIT")


def drop(database: str) -> None:
    """With all that is connected to it."""
    engine = outside()
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {make_url(database).database} WITH (FORCE)"))
    engine.dispose()


@contextlib.contextmanager
def own_database() -> Iterator[str]:
    """One that can be lost as a host is."""
    name, engine = f"test_{secrets.token_hex(8)}", outside()
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    url = engine.url.set(database=name).render_as_string(hide_password=False)
    try:
        yield url
    finally:
        drop(url)


@pytest.mark.skipif(SERVER is None, reason="NO POSTGRESQL: CROWDFL_TEST_POSTGRES names a server")
def test_a_campaign_of_three_sps_goes_on_after_their_database_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Restored on another host, with the bucket of before: everyone is averaged in both rounds and paid once. The drill before
    had told what would be lost."""
    require_swift()
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        (tmp_path / "s3").mkdir()
        bucket = stack.enter_context(serving_s3(tmp_path / "s3"))
        before, after = (stack.enter_context(own_database()) for _ in range(2))
        platform = Company(tmp_path, bucket=bucket, after=after)
        stack.callback(platform.stop)
        platform.prepare(before)
        for role in SERVERS:
            platform.start(role)
        check(platform, *rehearse(platform, before))
        assert (platform.report["role"], platform.report["ok"], platform.report["tasks"]) == ("sp", True, [])
        assert platform.report["counts"]["uploads"] in (1, 2)  # the second may have come while the backup was taken
