"""Reading Kubernetes objects: quantities, what a pod asks for, where it may run, its gang.

Objects are as the API server writes them in JSON. Amounts become whole thousandths; memory is
counted in GiB, requests rounded up and what a node has rounded down.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from gangwise import notation
from gangwise.core.errors import EngineError
from gangwise.engines import engine

OURS = "gangwise.io/"  # prefix of annotations and labels that are read or written here
DEVICES = {"nvidia.com/gpu": "gpu"}  # what resources are called here; others keep their name
controller = notation.controller
PORT = f"{OURS}port:"  # each node has one of each port that a pod asks for
WITHOUT = f"{OURS}without:"
"""Nodes without a taint carry a label of this prefix; pods that do not tolerate it ask for it."""
MATCHES = f"{OURS}matches:"
"""Nodes that fit a required node affinity carry it; pods with that affinity ask for it."""

WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_OPERATOR = "training.kubeflow.org/operator-name"  # ``pytorchjob-controller``, ``mpi-operator``
REMADE = ("job", "owner")
"""Kinds of gangs whose pods are made again by whatever made them."""


def quantity(text: str | int | float) -> Fraction:
    """A Kubernetes quantity, exactly; raises EngineError for what is none.

    >>> quantity("500m"), quantity("16Gi") == 2**34, quantity("1e3"), quantity(2)
    (Fraction(1, 2), True, Fraction(1000, 1), Fraction(2, 1))
    """
    try:
        return notation.exact_quantity(text)
    except notation.NotationError as error:
        raise EngineError(f"{error} such as 500m or 16Gi, as Kubernetes writes it") from None


def thousandths(kind: str, text: str | int | float, up: bool) -> int:
    """Thousandths of a device; of a GiB where bytes are counted.

    >>> thousandths("cpu", "0.0005", up=True), thousandths("memory", "1500Mi", up=False)
    (1, 1464)
    """
    amount = 1000 * quantity(text)
    if kind in ("memory", "ephemeral-storage") or kind.startswith("hugepages-"):
        amount /= 2**30
    return math.ceil(amount) if up else math.floor(amount)


def seconds(time: str | None) -> float:
    """Seconds since 1970 of a time as Kubernetes writes it; NaN for none."""
    stamp = notation.timestamp(time)
    return math.nan if stamp is None else stamp


def demand(pod: Mapping[str, Any]) -> dict[str, int]:
    """Thousandths that a pod takes of its node; the pod itself is one of ``pods``."""
    total = notation.pod_total(pod["spec"], _amounts)
    total["pods"] = 1000
    total.update(ports(pod))
    return {DEVICES.get(kind, kind): amount for kind, amount in sorted(total.items()) if amount}


def _amounts(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {kind: thousandths(kind, text, up=True) for kind, text in quantities.items()}


# Where to run


class Taint(NamedTuple):
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> tuple[Taint, ...]:
        rows = (node.get("spec") or {}).get("taints") or ()
        taints = (cls(t["key"], t.get("value") or "", t["effect"]) for t in rows)
        # PreferNoSchedule keeps no pod away.
        return tuple(t for t in taints if t.effect in ("NoSchedule", "NoExecute"))

    def tolerated(self, pod: Mapping[str, Any]) -> bool:
        for toleration in pod["spec"].get("tolerations") or ():
            # An empty effect, or an empty key, stands for all of them.
            if toleration.get("effect") and toleration["effect"] != self.effect:
                continue
            if toleration.get("key") and toleration["key"] != self.key:
                continue
            exists = toleration.get("operator", "Equal") == "Exists"
            if exists or (toleration.get("key") and (toleration.get("value") or "") == self.value):
                return True
        return False


def affinity(pod: Mapping[str, Any]) -> list[Any]:
    """Terms of the required node affinity, of which a node must fit one; empty for none."""
    return list((notation.required(pod, "nodeAffinity") or {}).get("nodeSelectorTerms") or ())


def digest(terms: list[Any]) -> str:
    return hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:12]


def fits_affinity(terms: list[Any], node: str, labels: Mapping[str, str]) -> bool:
    return any(
        # A term without expressions fits no node, as in Kubernetes.
        bool(term.get("matchExpressions") or term.get("matchFields"))
        and all(_holds(e, labels) for e in term.get("matchExpressions") or ())
        and all(_holds(e, {"metadata.name": node}) for e in term.get("matchFields") or ())
        for term in terms
    )


def check_affinity(terms: list[Any]) -> None:
    """Raise EngineError for an expression that can be tried on no node."""
    for term in terms:
        for rule in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())):
            # Without the label and with it: an operator may fail on one of the two.
            for labels in ({}, {rule["key"]: "1"}):
                _holds(rule, labels)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    holds = _OPERATORS.get(str(expression["operator"]))
    if holds is None:
        raise EngineError(f"node affinity has the unknown operator {expression['operator']!r}")
    return holds(labels.get(expression["key"]), list(expression.get("values") or ()))


def _whole(text: str | None) -> float:
    """A whole number; NaN for other text, which is neither more nor less than anything."""
    return float(text) if text and re.fullmatch(r"-?\d+", text) else math.nan


_OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda has, values: has in values,
    # Also where there is no such label, as in Kubernetes.
    "NotIn": lambda has, values: has not in values,
    "Exists": lambda has, values: has is not None,
    "DoesNotExist": lambda has, values: has is None,
    "Gt": lambda has, values: _whole(has) > _whole(values[0]),
    "Lt": lambda has, values: _whole(has) < _whole(values[0]),
}


def per_node(pod: Mapping[str, Any]) -> int:
    """1 where the pod keeps the others of its gang off its node, 0 for as many as fit.

    Raises EngineError for other required rules between pods, which are not modelled: a rule that
    selects pods of other gangs would have to hold against all that come later.
    """
    if notation.required(pod, "podAffinity"):
        raise EngineError("it requires pod affinity, which is not modelled")
    most = int(note(pod, "per-node", 0.0))
    # A rule against pods of one's own gang can be kept: it is one task to a node.
    own = {*WORDS["labels"], *(key for part, key, _ in WORDS["gangs"] if part == "labels")}
    for term in notation.required(pod, "podAntiAffinity") or ():
        chosen = (term.get("labelSelector") or {}).get("matchLabels") or {}
        within = own & chosen.keys() and selects(term, pod)
        if term.get("topologyKey") != "kubernetes.io/hostname" or not within:
            raise EngineError("it requires pod anti-affinity to others, which is not modelled")
        most = 1
    return most


def keeps_away(pod: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Terms of the required anti-affinity of a pod, each with the namespace of the pod."""
    home = pod["metadata"]["namespace"]
    return [(home, term) for term in notation.required(pod, "podAntiAffinity") or ()]


def selects(term: Mapping[str, Any], pod: Mapping[str, Any], namespace: str = "") -> bool:
    """Whether a term of a pod in ``namespace`` (empty: the same one) selects this pod."""
    selector = term.get("labelSelector")
    labels = pod["metadata"].get("labels") or {}
    spaces = term.get("namespaces") or [namespace or pod["metadata"]["namespace"]]
    # Which namespaces such a selector chooses is not known here: it may be any.
    if pod["metadata"]["namespace"] not in spaces and term.get("namespaceSelector") is None:
        return False
    # No selector selects nothing, an empty one everything.
    if selector is None:
        return False
    plain = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    return plain and all(_holds(e, labels) for e in selector.get("matchExpressions") or ())


def not_modelled(pod: Mapping[str, Any]) -> str:
    """Parts of a pod's request that are not modelled; empty where all are."""
    spec = pod["spec"]
    reasons = [text for key, text in WORDS["not_modelled"].items() if spec.get(key)]
    for volume in spec.get("volumes") or ():
        reasons += [f"a volume of the kind {kind}" for kind in WORDS["volumes"] if volume.get(kind)]
        if volume.get("csi") or set(volume) & {"gcePersistentDisk", "awsElasticBlockStore", "rbd"}:
            reasons.append("a volume that is bound to nodes")
    for rule in spec.get("topologySpreadConstraints") or ():
        if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            reasons.append(f"spread over {rule.get('topologyKey')}")
    return ", ".join(dict.fromkeys(reasons))


def ports(pod: Mapping[str, Any]) -> dict[str, int]:
    """Ports of its node that a pod takes, each a device of which a node has one.

    The address that it listens on is not told apart, so that two pods with one port never share a
    node, whatever their addresses.
    """
    spec = pod["spec"]
    needs = {}
    for container in spec["containers"]:
        for port in container.get("ports") or ():
            # On the host's network a container's port is the node's own.
            number = port.get("hostPort") or (spec.get("hostNetwork") and port.get("containerPort"))
            if number:
                needs[f"{PORT}{port.get('protocol') or 'TCP'}:{int(number)}"] = 1000
    return needs


# Gangs


class Membership(NamedTuple):
    """Membership of a pod in a gang."""

    namespace: str
    kind: str
    """``group``, by a label or annotation; ``owner``, by the label of an object that makes pods of
    several kinds; ``job``, of a batch Job; or ``pod``, by itself."""
    name: str
    api: str = ""  # group, version and plural of the object that says how many there must be
    uid: str = ""  # of the batch Job: another one may have its name, while pods of this one end

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> Membership:
        meta = pod["metadata"]
        for part, key, api in WORDS["gangs"]:
            if name := (meta.get(part) or {}).get(key):
                operator = str((meta.get("labels") or {}).get(_OPERATOR, ""))
                # Its MPIJob is of another version than the jobs of the training operator.
                if operator == "mpi-operator":
                    api = api.replace("v1/{}", "v2beta1/mpijob")
                api = api.format(operator.removesuffix("-controller"))
                kind = "group" if api.endswith("podgroups") or not api else "owner"
                return cls(meta["namespace"], kind, name, api)
        owner = controller(pod)
        if owner is not None and owner["kind"] == "Job":
            return cls(meta["namespace"], "job", owner["name"], uid=str(owner.get("uid", "")))
        return cls(meta["namespace"], "pod", meta["uid"])


def declared_size(pod: Mapping[str, Any]) -> int | None:
    for part, key in WORDS["sizes"]:
        if (text := (pod["metadata"].get(part) or {}).get(key)) is not None:
            if not re.fullmatch(r"[1-9]\d{0,5}", text):
                raise EngineError(
                    f"{text!r} is not the number of pods of a gang; give a whole number"
                )
            return int(text)
    return None


def gang_size(item: Mapping[str, Any]) -> int:
    """Number of pods that start together, by the object that makes them or speaks for them.

    >>> workers = [{"replicas": 4}, {"replicas": 2, "numOfHosts": 2}]
    >>> gang_size({"spec": {"headGroupSpec": {}, "workerGroupSpecs": workers}})
    9
    >>> roles = {"Launcher": {}, "Worker": {"replicas": 8}}
    >>> gang_size({"spec": {"mpiReplicaSpecs": roles}})
    9
    """
    spec = item.get("spec") or {}

    def count(of: Mapping[str, Any], key: str, usual: int) -> int:
        value = of.get(key)
        return usual if value is None else engine.whole(value, key)

    if "replicatedJobs" in spec:
        jobs = spec["replicatedJobs"]
        order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder")
        if order == "InOrder" or any(job.get("dependsOn") for job in jobs):
            raise engine.Malformed("its jobs start one after another, not together")
        return sum(count(job, "replicas", 1) * gang_size(job["template"]) for job in jobs)
    if "headGroupSpec" in spec:
        groups = spec.get("workerGroupSpecs") or ()
        # An autoscaler of Ray's keeps minReplicas, whatever replicas says.
        least = (max(count(g, "replicas", 0), count(g, "minReplicas", 0)) for g in groups)
        return 1 + sum(n * count(g, "numOfHosts", 1) for n, g in zip(least, groups))
    for key, roles in spec.items():
        if key.endswith("ReplicaSpecs"):
            # Such a launcher is made when the workers run, so that it does not start with them.
            late = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
            roles = {k: role for k, role in roles.items() if not (late and k == "Launcher")}
            return sum(count(role, "replicas", 1) for role in roles.values())
    if "minMember" in spec:
        return max(count(spec, "minMember", 1), 1)
    # No more pods start together than are still to complete.
    most = count(spec, "parallelism", 1)  # a batch Job
    return max(min(most, count(spec, "completions", most)), 1)


def asked(pod: Mapping[str, Any]) -> str:
    """Request of a pod, as text: pods of one text are alike."""
    spec = pod["spec"]
    about = demand(pod), spec.get("nodeSelector"), affinity(pod), spec.get("tolerations")
    rules = [notation.required(pod, "podAntiAffinity"), note(pod, "per-node", 0.0)]
    return json.dumps([*about, *rules], sort_keys=True)


def note(pod: Mapping[str, Any], name: str, default: float) -> float:
    """A number among our annotations; raises EngineError for what is none, or negative."""
    text = (pod["metadata"].get("annotations") or {}).get(OURS + name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # Written so that NaN fails it.
    if not value >= 0:
        raise EngineError(f"annotation {OURS}{name} is {text!r}; give a number of 0 or more")
    return value


def own_value(pod: Mapping[str, Any], name: str) -> str:
    """Value of one of our annotations or labels; empty for none."""
    meta = pod["metadata"]
    value = (meta.get("annotations") or {}).get(OURS + name)
    return str(value or (meta.get("labels") or {}).get(OURS + name) or "")


def job_type(pod: Mapping[str, Any]) -> str:
    """The job type: our annotation, the label of the application, or the name without numbers."""
    labels = pod["metadata"].get("labels") or {}
    named = own_value(pod, "type") or labels.get("app.kubernetes.io/name") or labels.get("app")
    if named:
        return str(named)
    belongs = Membership.of(pod)
    name = pod["metadata"]["name"] if belongs.kind == "pod" else belongs.name
    return re.sub(r"([-_.]\d+)+$", "", name) or name


def natural(name: str) -> tuple[Any, ...]:
    """Sort key that puts worker-10 after worker-9."""
    # Python refuses to read a number of more than 4,300 digits.
    parts = re.split(r"([0-9]{1,99})", name)
    return tuple(int(p) if i % 2 else p for i, p in enumerate(parts))


def common(values: Iterable[Any], what: str) -> Any:
    """The one value that all have; raises EngineError when they differ."""
    listed = list(values)
    if any(value != listed[0] for value in listed):
        raise EngineError(f"its pods do not all have the same {what}")
    return listed[0]
