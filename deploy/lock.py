#!/usr/bin/env python3
"""Pins what the image installs: versions of constraints.txt, with the digest of each wheel.

    python deploy/lock.py    # writes deploy/requirements.txt, for pip --require-hashes

Digests are those of the index that pip is set up with, for Linux on x86_64 and aarch64.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deploy" / "requirements.txt"
PYTHON = "3.12"  # that of the base image
MACHINES = ("x86_64", "aarch64")
GLIBC = ("2_17", "2_24", "2_26", "2_27", "2_28", "2_34")


def resolved(wanted: list[str], machine: str) -> list[dict]:
    """What pip would install on a machine."""
    tags = [f"manylinux_{g}_{machine}" for g in GLIBC] + [f"manylinux2014_{machine}"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary=:all:", "--implementation", "cp"]
        command += ["--python-version", PYTHON, "--target", folder, "--report", str(report)]
        command += [word for tag in tags for word in ("--platform", tag)]
        subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), *wanted], check=True)
        return json.loads(report.read_text())["install"]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    wanted += project["project"]["optional-dependencies"]["live"]
    digests: dict[str, set[str]] = {}
    for machine in MACHINES:
        for each in resolved(wanted, machine):
            name = f"{each['metadata']['name'].lower()}=={each['metadata']['version']}"
            digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
            digests.setdefault(name, set()).add(digest)
    lines = ["# Made by deploy/lock.py: what the image installs, for Python 3.12 on Linux."]
    for name in sorted(digests):
        lines.append(
            " \\\n".join([name, *(f"    --hash=sha256:{d}" for d in sorted(digests[name]))])
        )
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
