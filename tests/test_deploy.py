"""What an operator installs names options, files and metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
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
    command: Any = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts)}


def rendered() -> list[dict[str, Any]]:
    """As kubectl renders it, or the same by hand: a base of resources in one namespace."""
    if shutil.which("kubectl"):
        done = subprocess.run(
            ["kubectl", "kustomize", str(DEPLOY / "kubernetes")],
            capture_output=True,
            text=True,
            check=True,
        )
        return list(yaml.safe_load_all(done.stdout))
    base = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
    found: list[dict[str, Any]] = []
    for name in base["resources"]:
        for item in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()):
            found += item["items"] if item["kind"] == "List" else [item]
    for item in found:
        if "Cluster" not in item["kind"] and item["kind"] != "Namespace":
            item["metadata"]["namespace"] = base["namespace"]
    return found


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


def test_the_base_names_what_there_is():
    items = {(item["kind"], item["metadata"]["name"]): item for item in rendered()}
    pod = items["StatefulSet", "gangwise"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert options_of(container["args"][0]) <= known_options()
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
    assert verbs <= {"get", "list", "watch", "create", "delete", "update"}


@pytest.mark.full
def test_the_base_is_taken_by_the_api_server(tmp_path_factory):
    from tests.engines.kubernetes_lab import KubernetesLab

    lab = KubernetesLab(tmp_path_factory.mktemp("kubernetes"))
    try:
        for item in rendered():
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
    made = {m.name + ends.get(m.type, "") for m in _Metrics(Made()).collect()}  # type: ignore[arg-type]
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
