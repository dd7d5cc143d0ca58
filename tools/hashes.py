"""Writes deploy/requirements.txt and deploy/build-requirements.txt: what an image installs, by hash.

Versions are those of constraints.txt; files are the wheels for Python 3.11 on x86-64 and 64-bit ARM. Needs an index.
"""

import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("s3", "services", "tracing")
MACHINES = ("x86_64", "aarch64")
_GLIBC = range(5, 37)  # as Debian 12 has it


def wheels(wanted: list[str], machine: str) -> dict[str, str]:
    """By name and version, the SHA-256 of the wheel that such a machine takes."""
    fits = [f"--platform=manylinux_2_{minor}_{machine}" for minor in reversed(_GLIBC)]
    fits += [f"--platform=manylinux2014_{machine}", "--python-version=3.11", "--only-binary=:all:"]
    with tempfile.TemporaryDirectory() as folder:
        report, constraints = Path(folder) / "report", ROOT / "constraints.txt"
        how = ["--dry-run", "--quiet", "--ignore-installed", f"--target={folder}/none", f"--report={report}"]
        command = [sys.executable, "-m", "pip", "install", *how, *fits, f"--constraint={constraints}", *wanted]
        subprocess.run(command, check=True)  # noqa: S603 -- pip, with the project's own requirements
        found = json.loads(report.read_text())["install"]
    return {
        f"{one['metadata']['name']}=={one['metadata']['version']}": one["download_info"]["archive_info"]["hashes"][
            "sha256"
        ]
        for one in found
    }


def text(wanted: list[str]) -> str:
    known: dict[str, list[str]] = {}
    for machine in MACHINES:
        for name, digest in wheels(wanted, machine).items():
            known[name] = [*known.get(name, []), *([] if digest in known.get(name, []) else [digest])]
    lines = [
        " \\\n".join([name, *(f"    --hash=sha256:{digest}" for digest in known[name])])
        for name in sorted(known, key=str.lower)
    ]
    return "# By `python tools/hashes.py`.\n" + "\n".join(lines) + "\n"


def main() -> None:
    if platform.system() != "Linux":
        sys.exit("run this on Linux: markers of requirements are read on the machine that asks")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [name for extra in EXTRAS for name in project["project"]["optional-dependencies"][extra]]
    (ROOT / "deploy/requirements.txt").write_text(text(project["project"]["dependencies"] + extras))
    (ROOT / "deploy/build-requirements.txt").write_text(text(project["build-system"]["requires"]))


if __name__ == "__main__":
    main()
