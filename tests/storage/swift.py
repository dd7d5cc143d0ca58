"""An S3 server for tests: OpenStack Swift with its S3 interface, all of it in a folder of its own."""

import base64
import contextlib
import datetime
import hashlib
import hmac
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests import subprocesses

from crowdfl.settings import S3Settings

PARTS = ("account", "container", "object")
WHO, SECRET = "test:tester", "testing"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": WHO, "AWS_SECRET_ACCESS_KEY": SECRET}
_HASHES = """[swift-hash]
swift_hash_path_prefix = a
swift_hash_path_suffix = b
[storage-policy:0]
name = one
default = yes
"""
_COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
devices = {folder}/disks
mount_check = false
user = {user}
workers = 0
log_level = ERROR
"""
_PART = """[pipeline:main]
pipeline = {part}-server
[app:{part}-server]
use = egg:swift#{part}
"""
_PROXY = """[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth slo proxy-server
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
# It must be there, and may be out of reach: nothing listens at this port.
use = egg:swift#memcache
memcache_servers = 127.0.0.1:9
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:slo]
use = egg:swift#slo
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
"""


def require_swift() -> None:
    if any(shutil.which(f"swift-{part}-server") is None for part in (*PARTS, "proxy")):
        pytest.skip("NO S3 SERVER: install swift-proxy, swift-account, swift-container and swift-object")


@contextlib.contextmanager
def serving_s3(folder: Path) -> Iterator[S3Settings]:
    """A bucket; `CREDENTIALS` are to be in the environment."""
    (folder / "disks/d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(_HASHES)
    ports = dict(zip((*PARTS, "proxy"), subprocesses.free_ports(4), strict=True))
    for name, port in ports.items():
        common = _COMMON.format(port=port, folder=folder, user=folder.owner())
        (folder / f"{name}.conf").write_text(common + (_PROXY if name == "proxy" else _PART.format(part=name)))
    for part in PARTS:
        ring = ["swift-ring-builder", str(folder / f"{part}.builder")]
        subprocesses.run([*ring, "create", "4", "1", "1"], check=True, capture_output=True)
        subprocesses.run([*ring, "add", f"r1z1-127.0.0.1:{ports[part]}/d1", "1"], check=True, capture_output=True)
        subprocesses.run([*ring, "rebalance"], check=False, capture_output=True)  # 1: it warns of the one disk
    with contextlib.ExitStack() as stack:
        for name in ports:
            command = [f"swift-{name}-server", str(folder / f"{name}.conf"), "--verbose"]
            process = subprocesses.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        endpoint = f"http://127.0.0.1:{ports['proxy']}"
        _make_bucket(endpoint, "crowd")
        yield S3Settings(bucket="crowd", endpoint=endpoint)


def _make_bucket(endpoint: str, name: str) -> None:
    """By S3's older signature, which takes no library."""
    until = time.monotonic() + 400
    while True:
        date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        signed = hmac.new(SECRET.encode(), f"PUT\n\n\n{date}\n/{name}".encode(), hashlib.sha1).digest()
        headers = {"Date": date, "Authorization": f"AWS {WHO}:{base64.b64encode(signed).decode()}"}
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.put(f"{endpoint}/{name}", headers=headers, timeout=60.0)
            if answer.status_code in (200, 409):
                return
        assert time.monotonic() < until, "the S3 server did not start"
        time.sleep(0.2)
