"""What an operator installs names options, files and metrics that exist."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from gangwise.cli import app
from gangwise.service.api import _Metrics
from tests.service.test_api import Made

DEPLOY = Path(__file__).parents[1] / "deploy"
UNIT = DEPLOY / "gangwise.service"


def options_of(line: str) -> set[str]:
    return set(re.findall(r"(?<!\S)--[a-z-]+", line))


def known_options() -> set[str]:
    command: Any = typer.main.get_command(app).commands["serve"]
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts)}


def rendered(overlay: str) -> list[dict[str, Any]]:
    """As kubectl renders it, or the same by hand: resources, patched, in one namespace."""
    if shutil.which("kubectl"):
        done = subprocess.run(
            ["kubectl", "kustomize", str(DEPLOY / "kubernetes" / overlay)],
            capture_output=True,
            text=True,
            check=True,
        )
        return list(yaml.safe_load_all(done.stdout))
    found: list[dict[str, Any]] = []
    for kind in ("watch", overlay)[: 1 + (overlay == "act")]:
        folder = DEPLOY / "kubernetes" / kind
        base = yaml.safe_load((folder / "kustomization.yaml").read_text())
        for name in base["resources"]:
            for item in yaml.safe_load_all((folder / name).read_text()) if ".." not in name else ():
                found += item["items"] if item["kind"] == "List" else [item]
        for patch in base.get("patches", ()):
            change = yaml.safe_load((folder / patch["path"]).read_text())
            merge(next(i for i in found if i["kind"] == change["kind"]), change)
    for item in found:
        if "Cluster" not in item["kind"] and item["kind"] != "Namespace":
            item["metadata"]["namespace"] = "gangwise"
    return found


def merge(old: dict[str, Any], new: dict[str, Any]) -> None:
    """A strategic merge: tables by their keys, lists by the names of their entries."""
    for key, value in new.items():
        if isinstance(value, dict) and key in old:
            merge(old[key], value)
        elif isinstance(value, list) and key in old:
            for entry in value:
                merge(next(each for each in old[key] if each["name"] == entry["name"]), entry)
        else:
            old[key] = value


def test_the_unit_starts_what_there_is_and_is_confined(tmp_path: Path):
    text = UNIT.read_text()
    (command,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
    assert options_of(command) <= known_options()
    settings = dict(re.findall(r"(?m)^(\w+)=(.*)$", text))
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictNamespaces"):
        assert settings[name] == "yes"
    assert (settings["ProtectSystem"], settings["CapabilityBoundingSet"]) == ("strict", "")
    if shutil.which("systemd-analyze"):
        here = tmp_path / UNIT.name
        here.write_text(text.replace(command, "/bin/true"))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False
        )
        wrong = [line for line in done.stderr.splitlines() if UNIT.name in line]
        assert not wrong, wrong


@pytest.mark.parametrize("overlay", ["", "act"])
def test_the_manifests_name_what_there_is(overlay: str):
    items = {(item["kind"], item["metadata"]["name"]): item for item in rendered(overlay)}
    pod = items["StatefulSet", "gangwise"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mode,) = (v["value"] for v in container["env"] if v["name"] == "GANGWISE_MODE")
    assert options_of(container["args"][0].replace("$GANGWISE_MODE", mode)) <= known_options()
    assert items["ServiceAccount", pod["serviceAccountName"]]["metadata"]["namespace"] == "gangwise"
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    claims = items["StatefulSet", "gangwise"]["spec"]["volumeClaimTemplates"]
    assert mounts == {v["name"] for v in [*pod["volumes"], *(c["metadata"] for c in claims)]}
    verbs = {
        verb
        for (kind, _), item in items.items()
        if kind in ("Role", "ClusterRole")
        for rule in item["rules"]
        for verb in rule["verbs"]
    }
    watching = {"get", "list", "watch"}
    if overlay == "act":
        assert (mode, verbs) == (
            "--act --set lease=gangwise/leader",
            watching | {"create", "delete", "update"},
        )
    else:
        assert (mode, verbs) == ("--shadow", watching)
        assert items["StatefulSet", "gangwise"]["spec"]["replicas"] == 1


DIGEST = "docker.io/library/python@sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(("age", "lives"), [(5, True), (200, False), (-200, False)])
def test_a_pod_whose_service_is_frozen_is_started_again_whatever_the_clock(age, lives, tmp_path):
    (service,) = (item for item in rendered("watch") if item["kind"] == "StatefulSet")
    (container,) = service["spec"]["template"]["spec"]["containers"]
    (tmp_path / "heartbeat").touch()
    os.utime(tmp_path / "heartbeat", (time.time() - age,) * 2)
    for name in ("startupProbe", "livenessProbe"):
        *shell, line = container[name]["exec"]["command"]
        line = line.replace("/var/lib/gangwise/state", str(tmp_path))
        assert (subprocess.run([*shell, line], check=False).returncode == 0) == lives


@pytest.mark.parametrize("printed", [DIGEST, "docker.io/library/python:3.12-slim", ""])
def test_the_image_is_built_on_a_digest_or_not_at_all(printed: str, tmp_path: Path):
    """With a stand-in for podman; a second build keeps the base of the first."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    shutil.copy(DEPLOY.parent / "pyproject.toml", tmp_path)
    (tmp_path / "deploy" / "base").unlink(missing_ok=True)
    tool = tmp_path / "podman"
    tool.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f'[ "$2" = inspect ] && echo "{printed}"\nexit 0\n'
    )
    tool.chmod(0o755)
    for _ in range(2):
        done = subprocess.run(
            [tmp_path / "deploy" / "build"],
            env={"TOOL": str(tool), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) == (printed == DIGEST), done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    builds = [call for call in calls if call.startswith("build")]
    assert len(builds) == 2 * (printed == DIGEST)
    assert all(f"--build-arg BASE={DIGEST} ." in call for call in builds)
    assert sum(call.startswith("pull") for call in calls) == (1 if printed == DIGEST else 2)


def test_the_image_installs_what_the_tests_were_run_with():
    """All that gangwise needs is pinned with digests, to the versions of constraints.txt."""
    text = (DEPLOY / "requirements.txt").read_text().replace("\\\n", "")
    pinned = dict(re.findall(r"(?m)^(\S+)==(\S+)(?=(?:\s+--hash=sha256:[0-9a-f]{64})+$)", text))
    assert len(pinned) == sum("==" in line for line in text.splitlines())
    constraints = (DEPLOY.parent / "constraints.txt").read_text()
    known = dict(re.findall(r"(?m)^([^#=\s]+)==(\S+)$", constraints))
    known = {canonical(name): version for name, version in known.items()}
    assert {n: v for n, v in pinned.items() if v != known.get(canonical(n), v)} == {}
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    wanted += project["project"]["optional-dependencies"]["live"]
    names = {canonical(re.split(r"[<>=;\[ ]", each)[0]) for each in wanted}
    assert names <= {canonical(name) for name in pinned}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_bill_of_materials_is_what_cyclonedx_takes(tmp_path: Path):
    """By the schema of its own library; with the digest of the wheel, and every pinned part."""
    library = pytest.importorskip("cyclonedx.validation.json", reason="comes with pip-audit")
    from cyclonedx.schema import SchemaVersion

    wheel = tmp_path / "gangwise-9.9-py3-none-any.whl"
    about = (
        "Metadata-Version: 2.4\nName: gangwise\nVersion: 9.9\nLicense-Expression: Apache-2.0\n\n"
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gangwise-9.9.dist-info/METADATA", about)
    command = [sys.executable, str(DEPLOY / "sbom.py"), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    text = wheel.with_suffix(".cdx.json").read_text()
    assert library.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    pinned = (DEPLOY / "requirements.txt").read_text().count("==")
    assert len(bill["components"]) == pinned > 30


@pytest.mark.full
def test_the_manifests_are_taken_by_the_api_server(tmp_path_factory):
    from tests.engines.kubernetes_lab import KubernetesLab

    lab = KubernetesLab(tmp_path_factory.mktemp("kubernetes"))
    try:
        for item in rendered("act"):
            group = item["apiVersion"]
            start = f"/apis/{group}" if "/" in group else f"/api/{group}"
            space = item["metadata"].get("namespace")
            kind = item["kind"].lower() + "s"
            path = f"{start}/namespaces/{space}/{kind}" if space else f"{start}/{kind}"
            code, answer = lab.api("POST", path, item)
            assert code in (201, 409), answer  # 409: the lab has applied the rights
        code, answer = lab.api("GET", "/apis/apps/v1/namespaces/gangwise/statefulsets/gangwise")
        assert (code, answer["spec"]["replicas"]) == (200, 2)
    finally:
        lab.stop()


def test_dashboard_and_alerts_name_metrics_that_exist():
    ends = {"counter": "_total", "histogram": "_bucket"}
    made = {m.name + ends.get(m.type, "") for m in _Metrics(Made()).collect()}
    board = json.loads((DEPLOY / "monitoring/grafana.json").read_text())
    rules = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())["groups"][0]["rules"]
    asked = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
    asked += [rule["expr"] for rule in rules]
    named = {name for expr in asked for name in re.findall(r"\bgangwise_\w+", expr)}
    assert named <= made, named - made
    assert made <= named, f"on no panel and in no alert: {made - named}"
    if shutil.which("promtool"):  # which alerts fire, and which do not
        test = ["promtool", "test", "rules", str(DEPLOY / "monitoring/alerts-test.yaml")]
        done = subprocess.run(test, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    told = (DEPLOY.parent / "docs/how-to/kubernetes.md").read_text()
    assert not [name for name in made if f"`{name}`" not in told]
