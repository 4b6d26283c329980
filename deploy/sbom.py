#!/usr/bin/env python3
"""The software bill of materials of a wheel: CycloneDX 1.6, beside it.

    pip wheel --no-deps --wheel-dir dist . && python deploy/sbom.py dist/gangwise-*.whl

It lists the wheel with its digest, and what deploy/requirements.txt installs with it.
"""

import hashlib
import json
import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

PINNED = Path(__file__).with_name("requirements.txt")


def component(kind: str, name: str, version: str, digests: list[str], **more: object) -> dict:
    url = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    hashes = [{"alg": "SHA-256", "content": digest} for digest in digests]
    about = {"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url}
    return {**about, "hashes": hashes, **more}


def bill(wheel: Path) -> dict:
    with zipfile.ZipFile(wheel) as archive:
        file = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        about = HeaderParser().parsestr(archive.read(file).decode())
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    licence = [{"license": {"id": about["License-Expression"]}}]
    main = component("library", about["Name"], about["Version"], [digest], licenses=licence)
    parts = []
    for entry in PINNED.read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        if match := re.match(r"([^=#\s]+)==(\S+)", entry):
            digests = re.findall(r"sha256:([0-9a-f]{64})", entry)
            # Which wheel of several was installed depends on the machine: then it has no digest.
            parts.append(component("library", match[1], match[2], digests * (len(digests) == 1)))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"component": main},
        "components": parts,
        "dependencies": [
            {"ref": main["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        out = Path(name).with_suffix(".cdx.json")
        out.write_text(json.dumps(bill(Path(name)), indent=1) + "\n", encoding="utf-8")
        print(f"wrote {out}")
