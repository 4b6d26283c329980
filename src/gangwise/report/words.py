"""What a page says in words: its title, what its terms mean, each policy in a sentence.

Sentences about policies are the summaries of the catalogue; the rest of the words stand here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any, NamedTuple

from gangwise.core.registry import Entry, Kind, entries
from gangwise.experiments.statistics import number
from gangwise.jobs.scheduler import parts


class Family(NamedTuple):
    """A family: what policies do, what happens in a slot, what a reward is, where to read on."""

    doing: str
    slot: str
    reward: str
    page: str


FAMILIES = {
    "gain_overhead": Family(
        "sharing servers among jobs",
        "In every slot jobs of some types arrive; the policy gives each of them devices of the "
        "servers that it has channels to. Devices are held for the slot and come back.",
        "Computation gain of the devices given minus the overhead of their communication, summed "
        "over the jobs of the slot. It has no unit; compare it between policies.",
        "algorithms/ogasched",
    ),
    "gain_overhead_gang": Family(
        "placing gangs on servers",
        "In every slot jobs of some types arrive; the policy places all tasks of a job or none. "
        "Devices are held for the slot and come back.",
        "Computation gain of the gangs that were placed minus the overhead of their communication. "
        "It has no unit; compare it between policies.",
        "algorithms/gang",
    ),
    "fluctuating_speeds": Family(
        "choosing servers of unknown speed",
        "In every slot jobs of some types arrive; the policy switches channels between job types "
        "and servers on. How fast a channel is shows only while it is on, and it fluctuates.",
        "Utility that the channels brought minus what their devices cost, summed over the slot and "
        "normalised, so that the best channel brings about 1.",
        "algorithms/esdp",
    ),
    "fluctuating_speeds_gang": Family(
        "placing gangs on servers of unknown speed",
        "In every slot jobs of some types arrive; the policy places all tasks of a job or none, on "
        "servers whose speed shows only while they are used.",
        "Utility that the gangs brought minus what their devices cost, summed over the slot.",
        "algorithms/gang",
    ),
    "approximation_jobs": Family(
        "sharing machines among jobs with deadlines",
        "In every slot the policy hands machines to jobs that have a deadline and a budget. A job "
        "that gets less work done gives a coarser result, and is worth less.",
        "Utility that the work of the slot adds: a concave function of all work that a job got.",
        "algorithms/opm",
    ),
    "jobs": Family(
        "placing jobs on nodes",
        "Jobs are submitted, wait, are placed whole, run and end; time is continuous.",
        "Mean completion time unless said otherwise: from submission to end, in seconds.",
        "jobs/model",
    ),
}

TERMS = {
    "contention": "How scarce devices are: it multiplies what every job asks for, while servers "
    "stay as they are. At 10 the jobs of a slot want far more than there is.",
    "rho": "The probability that a job of a type arrives in a slot.",
    "load": "Work that arrives, as a share of what the nodes could do.",
}
"""Settings that need a word."""

METRICS = {
    "gain": "computation gain, before the overhead is taken off",
    "overhead": "overhead of communication",
    "utilisation": "devices given, as a share of the devices of the servers",
    "jobs": "jobs that arrived",
    "launched": "gangs that were placed",
    "tasks": "tasks that were placed",
    "moved": "devices that jobs which stayed got anew",
    "mean_utility": "the expected value of the decision: the reward without the noise",
    "cost": "what the devices used cost",
    "channels": "channels that were on",
    "jobs_utility": "what jobs gain, payments taken off",
    "cluster_utility": "what the cluster gains: payments less costs",
    "average_utility": "utility if every machine had its mean rate",
    "work": "work that was done",
    "busy": "machines at work",
    "refused": "tasks that a budget could not pay",
    "displaced": "machines that an active job lost",
    "swaps": "those of them that another job got",
    "net_moves": "machines that went from a job to another",
    "fit": "how far costs ran ahead of budgets",
    "over": "cost that exceeds budgets",
}
"""What environments measure beside the reward; sums over a slot."""

NO_WAITING = (
    "Nothing waits in this family: a job that gets nothing in its slot is gone, so waiting and "
    "completion times have no meaning."
)

_NUMBERS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]

QUEUES = {
    "fcfs": "first come, first served",
    "sjf": "shortest requested limit first",
    "edf": "earliest deadline first",
    "priority": "highest priority first",
    "fair-share": "users who have used least first",
    "wfp3": "long waits of large jobs first (WFP3)",
}
BACKFILLING = {
    "none": "nobody passes",
    "easy": "later jobs pass if the first one is not delayed",
    "conservative": "later jobs pass if nobody is delayed",
}
CHOICES = {
    "first-fit": "nodes in their order",
    "best-fit": "the fullest node that fits",
    "worst-fit": "the emptiest node",
    "fgd": "the node that is fragmented least",
    "label": "the node with the best declared speed",
    "labels": "the node with the best declared speed, for every type of job",
    "learned": "the node believed fastest, from rates measured while jobs run",
    "learned-moving": "the node believed fastest, and jobs move when that pays",
    "ucb": "the node with the best optimistic estimate of its speed",
    "oracle": "the truly fastest node, which nobody can know",
    "oracle-moving": "the truly fastest node, which nobody can know, and jobs move when that pays",
    "labels-moving": "the node with the best declared speed, and jobs move when that pays",
}


def period(seconds: float) -> str:
    """A time with two digits in a unit that fits it.

    >>> period(11_160), period(42), period(0), period(1.2e6)
    ('3.1 h', '42 s', '0 s', '14 days')
    """
    for size, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * size or (size < 86400 and abs(seconds) >= 1.5 * size):
            scaled = seconds / size
            return f"{number(scaled, 1 if abs(scaled) < 9.95 else 0)} {name}"
    return f"{number(seconds, 0 if abs(seconds) >= 9.95 or seconds == 0 else 1)} s"


def numbered(n: int, one: str, many: str) -> str:
    """A number of things as a sentence begins.

    >>> numbered(11, "policy", "policies"), numbered(1, "seed", "seeds")
    ('Eleven policies', 'One seed')
    """
    word = _NUMBERS[n].capitalize() if n < len(_NUMBERS) else f"{n:,}"
    return f"{word} {one if n == 1 else many}"


def enumerated(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> enumerated(["a"]), enumerated(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def about_scenario(name: str) -> str:
    """A scenario in words where the catalogue has some: what stands before its conditions."""
    known = _known("scenario", name)
    if known is None:
        return ""
    return known.summary.partition(";")[0]


def title(
    family: str, scenario: str, deciders: Sequence[str], many: str, varied: Sequence[str]
) -> str:
    """A title as a person would write it.

    >>> title("gain_overhead", "ogasched-default-v1", ["drf", "greedy"], "policies", ["contention"])
    'drf and greedy sharing servers among jobs as contention varies'
    >>> title("of my own", "my-cluster", list("abcde"), "policies", [])
    'Five policies on my-cluster'
    """
    who = enumerated(deciders) if len(deciders) < 4 else numbered(len(deciders), "", many)
    doing = FAMILIES[family].doing if family in FAMILIES else f"on {scenario}"
    vary = f" as {enumerated(varied)} {'varies' if len(varied) == 1 else 'vary'}" if varied else ""
    return f"{who} {doing}{vary}"


def glossary(
    family: str, settings: Mapping[str, Any], comparators: Sequence[str]
) -> dict[str, str]:
    """What the terms of a page mean, by term."""
    found = {}
    if (known := FAMILIES.get(family)) is not None:
        found = {"slot": known.slot, "reward": known.reward}
        if family == "jobs":
            found = {"jobs": known.slot, "ranked by": known.reward}
    found |= {name: said for name, said in TERMS.items() if name in settings}
    if comparators:
        found["comparator"] = (
            "What policies are held to: it knows what they cannot, and its value is proved."
        )
        found["regret"] = "The comparator's total reward minus the policy's on the same slots."
    if family != "jobs":
        found["seed"] = (
            "A drawn world: its instance, arrivals and noise, the same for all policies."
        )
    return found


def in_words(metric: str) -> str:
    """A metric of one number per run as a reader would say it.

    >>> in_words("reward.mean"), in_words("overhead.mean"), in_words("completion.p95")
    ('reward per slot', 'overhead per slot', '95th percentile of completion')
    """
    name, _, of = metric.rpartition(".")
    if name and of == "mean" and name in (*METRICS, "reward"):
        return f"{name.replace('_', ' ')} per slot"
    known = {"mean": "mean {}", "total": "total {}", "p95": "95th percentile of {}"}
    return known[of].format(name.replace("_", " ")) if name and of in known else metric


def sentence_case(text: str) -> str:
    """As a sentence or title begins."""
    return f"{text[:1].upper()}{text[1:]}"


def about_policy(name: str) -> str:
    """A policy in a sentence, from the catalogue; empty for one that is not in it."""
    known = _known("policy", name)
    return "" if known is None else _sentence(known.summary)


def about_scheduler(name: str) -> str:
    """A scheduler in a sentence: that of the catalogue, or those of its parts.

    >>> about_scheduler("fcfs+easy+best-fit")
    'First come, first served; later jobs pass if the first one is not delayed; jobs go to the ...'
    """
    known = entries("scheduler").get(name.partition(":")[0])
    if known is not None:
        return _sentence(known.summary)
    named = name.split("+")
    order, backfilling, choice = ([p for p in named if p in parts(of)][:1] for of in _PARTS)
    said = [QUEUES.get(p, p) for p in order] + [BACKFILLING.get(p, p) for p in backfilling]
    said += [f"jobs go to {CHOICES.get(p, p)}" for p in choice]
    return _sentence("; ".join(said)) if said else ""


_PARTS: tuple[Any, ...] = ("queue", "backfilling", "choice")


def documentation(family: str) -> tuple[str, str]:
    """The page of the documentation about a family: its path, and its address if one is known."""
    page = FAMILIES[family].page if family in FAMILIES else "reference"
    try:
        known = metadata("gangwise").get_all("Project-URL") or []
    except PackageNotFoundError:  # used from a checkout without being installed
        known = []
    address = dict(tuple(each.split(", ", 1)) for each in known).get("Documentation", "")
    return page, f"{address.rstrip('/')}/{page}/" if address else ""


def _known(kind: Kind, name: str) -> Entry | None:
    return entries(kind).get(name.partition(":")[0])


def _sentence(text: str) -> str:
    return f"{sentence_case(text)}." if text else ""
