"""Pods as users write them, drawn from a seed, and what each of them demands of its node.

The oracle reads specifications and bindings as the API server has them: nothing of how they came.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

NEEDED = "requiredDuringSchedulingIgnoredDuringExecution"
WISHED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "zone"
GROUP = "scheduling.x-k8s.io/pod-group"

Spec = dict[str, Any]


def node(name: str) -> dict[str, Any]:
    """Eight nodes of two models in two zones; b3 has a taint, b4 is cordoned, a4 has an FPGA."""
    labels = {HOST: name, "model": name[0], ZONE: "z1" if name[1] in "12" else "z2"}
    labels["rank"] = name[1]
    has = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2", "pods": "9"}
    has["ephemeral-storage"] = "10Gi"
    if name == "a4":
        has["example.com/fpga"] = "1"
    status = {"capacity": has, "allocatable": has}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    spec: Spec = {"unschedulable": True} if name == "b4" else {}
    if name == "b3":
        spec["taints"] = [{"key": "team", "value": "x", "effect": "NoSchedule"}]
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


NODES = {f"{model}{i}": node(f"{model}{i}") for model in "ab" for i in (1, 2, 3, 4)}


def _asks(**of: str) -> Spec:
    return {
        "resources": {
            k.replace("_", "-").replace("gpu", "nvidia.com/gpu"): v for k, v in of.items()
        }
    }


def _on(key: str, operator: str, *values: str, field: bool = False) -> Spec:
    rule = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    return {"matchFields" if field else "matchExpressions": [rule]}


def _nodes(*terms: Spec) -> Spec:
    return {"affinity": {"nodeAffinity": {NEEDED: {"nodeSelectorTerms": list(terms)}}}}


def _pods(kind: str, app: str, where: str = HOST, how: str = NEEDED, **selector: Any) -> Spec:
    term: Any = {"labelSelector": selector or {"matchLabels": {"app": app}}, "topologyKey": where}
    if how == WISHED:
        term = {"weight": 1, "podAffinityTerm": term}
    return {"affinity": {kind: {how: [term]}}}


def _tolerates(**of: str) -> Spec:
    return {"tolerations": [of]}


def _port(number: int, **more: Any) -> Spec:
    return {"ports": [{"containerPort": number, "hostPort": number, **more}]}


def _spread(where: str, how: str) -> Spec:
    selector = {"matchLabels": {"app": "own"}}
    rule = {"maxSkew": 1, "topologyKey": where, "whenUnsatisfiable": how, "labelSelector": selector}
    return {"topologySpreadConstraints": [rule]}


def _volume(**of: Any) -> Spec:
    return {"volumes": [{"name": "v", **of}]}


_IN_A = _on("model", "In", "a")
KINDS: dict[str, tuple[Spec, ...]] = {
    "amounts": (
        *(_asks(cpu="500m"), _asks(cpu="3"), _asks(gpu="1"), _asks(gpu="2", cpu="1")),
        *(_asks(memory="10Gi"), _asks(ephemeral_storage="6Gi"), {"limits": {"cpu": "2"}}),
        *({"resources": {"example.com/fpga": "1"}}, {"resources": {"example.com/none": "1"}}),
        *({"second": {"cpu": "2"}}, {"first": {"cpu": "3"}}),
    ),
    "selector": tuple(
        {"nodeSelector": s}
        for s in ({"model": "a"}, {ZONE: "z2"}, {HOST: "b2"}, {"model": "c"}, {"rank": "1"})
    ),
    "affinity": (
        *(_nodes(_on("model", "In", "a", "c")), _nodes(_on("model", "NotIn", "a"))),
        *(_nodes(_on("rank", "Gt", "2")), _nodes(_on("rank", "Lt", "2"))),
        *(_nodes(_on(ZONE, "Exists")), _nodes(_on("model", "DoesNotExist"))),
        *(_nodes(_on("metadata.name", "In", "a3", field=True)), _nodes(_on("rank", "In", "9"))),
        *(_nodes(_IN_A, _on("rank", "In", "1")), _nodes({**_IN_A, **_on("rank", "In", "2")})),
        {"affinity": {"nodeAffinity": {WISHED: [{"weight": 9, "preference": _IN_A}]}}},
    ),
    "taints": (
        _tolerates(key="team", operator="Equal", value="x", effect="NoSchedule"),
        *(_tolerates(key="team", operator="Exists"), _tolerates(operator="Exists")),
        *(_tolerates(key="team", value="y"), _tolerates(key="team", value="x", effect="NoExecute")),
    ),
    "ports": (
        *(_port(80), _port(80, protocol="UDP"), _port(80, hostIP="127.0.0.1"), _port(81)),
        {"hostNetwork": True, "ports": [{"containerPort": 80}]},
    ),
    "pods": (
        *(_pods("podAntiAffinity", "own"), _pods("podAntiAffinity", "own", ZONE)),
        *(
            _pods("podAntiAffinity", "other"),
            _pods("podAffinity", "shy"),
            _pods("podAffinity", "own"),
        ),
        *(_pods("podAffinity", "own", how=WISHED), _pods("podAntiAffinity", "own", how=WISHED)),
        _pods("podAntiAffinity", "", matchExpressions=[{"key": "app", "operator": "Exists"}]),
        *({"labels": {"app": "shy"}}, {"labels": {"app": "other"}}, {"labels": {"app": "seen"}}),
    ),
    "spread": (
        *(_spread(HOST, "DoNotSchedule"), _spread(ZONE, "DoNotSchedule")),
        _spread(HOST, "ScheduleAnyway"),
    ),
    "volumes": (
        *(_volume(emptyDir={}), _volume(hostPath={"path": "/x"}), _volume(configMap={"name": "n"})),
        _volume(persistentVolumeClaim={"claimName": "missing"}),
        _volume(csi={"driver": "nobody.example"}),
    ),
    "order": ({"priorityClassName": "high"}, {"priorityClassName": "low"}),
    "words": (
        *({"activeDeadlineSeconds": 60}, {"terminationGracePeriodSeconds": 0}, {"hostname": "h"}),
        *(
            {"annotations": {"gangwise.io/per-node": "1"}},
            {"annotations": {"gangwise.io/tasks": "x"}},
        ),
    ),
    "gang": tuple(
        {"gang": (size, pods)} for size, pods in ((2, 2), (3, 3), (4, 4), (3, 2), (1, 2))
    ),
}
COUNT = sum(map(len, KINDS.values()))
GUARDS = [
    {"app": "guard", "rule": _pods("podAntiAffinity", "shy"), "node": "a1"},
    {"app": "guard", "rule": _pods("podAntiAffinity", "seen", ZONE), "node": "b1"},
]
"""Pods that another scheduler has placed, and that keep others away from their node or zone."""


def requests(seed: int, count: int) -> list[Spec]:
    """All kinds first, one by one; then two and three of different kinds at once."""
    rng = random.Random(seed)
    alone = [one for kind in KINDS.values() for one in kind]
    rng.shuffle(alone)
    found = [copy.deepcopy(one) for one in alone[:count]]
    while len(found) < count:
        chosen = rng.sample(sorted(KINDS), rng.choice((2, 2, 3)))
        merged: Spec = {}
        for kind in chosen:
            for key, value in copy.deepcopy(rng.choice(KINDS[kind])).items():
                both = isinstance(value, dict) and isinstance(merged.get(key), dict)
                merged[key] = {**merged[key], **value} if both else value
        found.append(merged)
    return found


def manifests(number: int, asked: Spec, scheduler: str) -> list[Spec]:
    """The pods of a request."""
    asked = copy.deepcopy(asked)
    minimum, count = asked.pop("gang", (0, 1))
    labels = {"app": "own", **asked.pop("labels", {})}
    annotations = asked.pop("annotations", {})
    if minimum:
        labels[GROUP] = f"g{number}"
        annotations = {"gangwise.io/tasks": str(minimum), **annotations}
    limits = asked.pop("limits", {})
    wanted = {"cpu": "100m", **asked.pop("resources", {})}
    whole = {k: v for k, v in wanted.items() if "/" in k}  # extended resources need a limit
    container: Spec = {"name": "c", "image": "none", "ports": asked.pop("ports", [])}
    container["resources"] = {"requests": wanted, "limits": {**limits, **whole}}
    if limits:
        container["resources"] = {"limits": limits}
    spec: Spec = {"schedulerName": scheduler, "containers": [container]}
    for key, kind in (("second", "containers"), ("first", "initContainers")):
        if more := asked.pop(key, None):
            extra = {"name": key, "image": "none", "resources": {"requests": more}}
            spec[kind] = [*spec.get(kind, []), extra]
    spec |= asked
    return [
        {
            "metadata": {"name": f"r{number}-{i}", "labels": labels, "annotations": annotations},
            "spec": spec,
        }
        for i in range(count)
    ]


# ------------------------------------------------------------------------------------ the oracle

_UNITS = {"m": 1e-3, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "": 1.0}


def _amount(text: str) -> float:
    digits = text.rstrip("mKiMG")
    return float(digits) * _UNITS[text[len(digits) :]]


def _asked(container: Spec) -> dict[str, float]:
    found = container.get("resources") or {}
    return {
        k: _amount(v) for k, v in {**found.get("limits", {}), **found.get("requests", {})}.items()
    }


def taken(pod: Spec) -> dict[str, float]:
    """What a pod holds: its containers together, or a start-up container where that is more."""
    total: Counter[str] = Counter()
    for each in pod["spec"]["containers"]:
        total.update(_asked(each))
    for each in pod["spec"].get("initContainers") or ():
        for kind, amount in _asked(each).items():
            total[kind] = max(total[kind], amount)
    return {**total, "pods": 1.0}


def _fits(rule: Spec, labels: Mapping[str, str]) -> bool:
    has, values = labels.get(rule["key"]), rule.get("values") or [""]
    match rule["operator"]:
        case "In":
            return has in values
        case "NotIn":
            return has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt":
            return has is not None and int(has) > int(values[0])
        case _:
            return has is not None and int(has) < int(values[0])


def _chosen(selector: Spec, labels: Mapping[str, str]) -> bool:
    plain = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    return plain and all(_fits(e, labels) for e in selector.get("matchExpressions") or ())


def of_its_node(pod: Spec, where: Spec) -> list[str]:
    """What of a pod's request its node itself does not give."""
    spec, labels, bad = pod["spec"], where["metadata"]["labels"], []
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        bad.append("selector")
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(NEEDED)
    name = {"metadata.name": where["metadata"]["name"]}
    if required and not any(
        all(_fits(e, labels) for e in term.get("matchExpressions") or ())
        and all(_fits(e, name) for e in term.get("matchFields") or ())
        for term in required["nodeSelectorTerms"]
    ):
        bad.append("affinity")
    for taint in where["spec"].get("taints") or ():
        if not any(
            t.get("key", taint["key"]) == taint["key"]
            and t.get("effect", taint["effect"]) == taint["effect"]
            and (t.get("operator") == "Exists" or t.get("value") == taint["value"])
            for t in spec.get("tolerations") or ()
        ):
            bad.append("taint")
    tolerates_all = any(
        t.get("operator") == "Exists" and not t.get("key") for t in spec.get("tolerations") or ()
    )
    if where["spec"].get("unschedulable") and not tolerates_all:
        bad.append("cordon")
    if any("persistentVolumeClaim" in v for v in spec.get("volumes") or ()):
        bad.append("claim that is not there")
    return bad


def violations(pods: Iterable[Spec], nodes: Mapping[str, Spec] = NODES) -> dict[str, list[str]]:
    """Pod → what it, or another pod with it, required and did not get, of all that are bound."""
    bound = [p for p in pods if p["spec"].get("nodeName")]
    bad: dict[str, list[str]] = defaultdict(list)
    held: dict[str, Counter[str]] = defaultdict(Counter)
    used: dict[tuple[str, str, int], list[Spec]] = defaultdict(list)
    for pod in bound:
        name, where = pod["metadata"]["name"], nodes[pod["spec"]["nodeName"]]
        bad[name] += of_its_node(pod, where)
        held[pod["spec"]["nodeName"]].update(taken(pod))
        has = where["status"]["allocatable"]
        for kind, amount in held[pod["spec"]["nodeName"]].items():
            if amount > _amount(has.get(kind, "0")) + 1e-6:
                bad[name].append(f"more {kind} than there is")
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                number = port.get("hostPort") or 0
                key = pod["spec"]["nodeName"], port.get("protocol", "TCP"), number
                if number and any(_same_address(port, other) for other in used[key]):
                    bad[name].append(f"port {number} twice")
                used[key].append(port)
        for other in bound:
            if other is not pod and _kept_off(pod, other, nodes):
                bad[name].append(f"beside {other['metadata']['name']}, which it keeps away")
        for term in _terms(pod, "podAffinity"):
            near = [o for o in bound if o is not pod and _same_place(pod, o, term, nodes)]
            chosen = [o for o in near if _chosen(term["labelSelector"], o["metadata"]["labels"])]
            if not chosen and not _chosen(term["labelSelector"], pod["metadata"]["labels"]):
                bad[name].append("away from whom it asks for")
    return {name: why for name, why in bad.items() if why}


def broken_gangs(pods: Iterable[Spec]) -> list[str]:
    """Gangs of which some pods are bound and others are not."""
    groups: dict[str, list[Spec]] = defaultdict(list)
    for pod in pods:
        if group := pod["metadata"]["labels"].get(GROUP):
            groups[group].append(pod)
    found = []
    for name, members in groups.items():
        count = sum(bool(p["spec"].get("nodeName")) for p in members)
        declared = members[0]["metadata"]["annotations"].get("gangwise.io/tasks", "")
        if count and declared.isdigit() and count < int(declared):
            found.append(name)
    return found


def _terms(pod: Spec, kind: str) -> list[Spec]:
    return ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(NEEDED) or []


def _same_place(a: Spec, b: Spec, term: Spec, nodes: Mapping[str, Spec]) -> bool:
    key = term["topologyKey"]
    labels = [nodes[p["spec"]["nodeName"]]["metadata"]["labels"] for p in (a, b)]
    return labels[0].get(key) is not None and labels[0].get(key) == labels[1].get(key)


def _kept_off(pod: Spec, other: Spec, nodes: Mapping[str, Spec]) -> bool:
    return any(
        _same_place(pod, other, term, nodes)
        and _chosen(term["labelSelector"], other["metadata"]["labels"])
        for term in _terms(pod, "podAntiAffinity")
    )


def _same_address(a: Spec, b: Spec) -> bool:
    anywhere = ("", "0.0.0.0")
    one, two = a.get("hostIP", ""), b.get("hostIP", "")
    return one in anywhere or two in anywhere or one == two
