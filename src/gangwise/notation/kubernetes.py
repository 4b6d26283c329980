"""What Kubernetes writes: times, and what a pod asks for."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from gangwise.notation import NotationError


def timestamp(text: Any) -> float | None:
    """Seconds since 1970 of a time as the API writes it; None where there is none.

    NotationError: When it is no time.

    >>> timestamp("1970-01-01T00:01:00Z"), timestamp(None)
    (60.0, None)
    """
    if not text:
        return None
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        raise NotationError(f"{text!r:.40} is no time") from None


def controller(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference to the owner that controls an object."""
    owners = record["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def required(pod: Mapping[str, Any], kind: str) -> Any:
    """The rules of an affinity of a pod without which it does not start; None for none."""
    rules = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return rules.get("requiredDuringSchedulingIgnoredDuringExecution")


def pod_total(
    spec: Mapping[str, Any], amounts: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Counter[str]:
    """Request of a pod by resource, in the numbers that ``amounts`` makes of quantities.

    Init containers run one by one before the others, but one that restarts always (a sidecar) goes
    on beside all that come later. So a pod asks for its containers and sidecars together, or for an
    init container with the sidecars before it where that is more, and for its overhead on top.

    >>> def cpus(number, **more):
    ...     return {"resources": {"requests": {"cpu": number}}, **more}
    >>> spec = {
    ...     "initContainers": [cpus(2, restartPolicy="Always"), cpus(6)],
    ...     "containers": [cpus(1)],
    ... }
    >>> pod_total(spec, dict)["cpu"]
    8
    """
    total, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()

    def asked(container: Mapping[str, Any]) -> Mapping[str, Any]:
        """The API server copies limits to requests where these are not given; so do we."""
        resources = container.get("resources") or {}
        return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})

    for container in spec.get("containers") or ():
        total.update(asked(container))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.update(asked(container))
            # ``|`` of Counters is the larger amount of each resource.
            peak |= sidecars
        else:
            # While this one runs, the sidecars before it run as well.
            peak |= sidecars + Counter(asked(container))
    total.update(sidecars)
    total |= peak
    # A pod may ask as a whole; its limit is its request where its containers have none.
    of_pod = spec.get("resources") or {}
    for name, size in amounts(of_pod.get("limits") or {}).items():
        total.setdefault(name, size)
    for name, size in amounts(of_pod.get("requests") or {}).items():
        total[name] = size
    total.update(amounts(spec.get("overhead") or {}))
    return total
