"""OGASched: what its artefacts share, and Figs. 3 to 7, reward against settings (§4.1 to §4.3).

The paper's Algorithm 1 decides before the arrivals are seen and projects wrongly; its experiments
must have decided afterwards (see ``docs/papers/ogasched.md``). So OGASched is played in four
versions, from Algorithm 1 as printed to the one that works.

On the large cluster (Fig. 5, 100 job types and 1024 servers) the paper plays 10,000 slots once; so
does this, with several seeds, since seeds are what clusters differ by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.plotting import Panel
from gangwise.reproduce.artefact import (
    Above,
    Artefact,
    Below,
    Claim,
    Found,
    NotCompared,
    Scale,
    change,
    from_optimum,
    lead,
    least,
    recorded,
    smallest_lead,
    smallest_step,
    so_far,
    table,
    values,
)

SCENARIO = "ogasched-default-v1"
OURS, PRINTED, RESERVE, GREEDY, DRF = (
    "ogasched-react",
    "ogasched-as-printed",
    "ogasched-reserve",
    "greedy",
    "drf",
)
RESTARTED = "ogasched-react, restarted in every slot"
EXACT, ONE_STEP = "Algorithm 1, exact projection", "one step after the arrivals"
OPTIMUM, BEST_FIXED = "per_slot_optimum", "best_fixed"
BASELINES: Mapping[str, str] = {
    "DRF": "drf-as-printed",
    "FAIRNESS": "fairness",
    "BINPACKING": "binpacking",
    "SPREADING": "spreading",
}
VERSIONS: Mapping[str, str] = {"as printed": PRINTED, EXACT: EXACT, ONE_STEP: ONE_STEP, OURS: OURS}
"""Versions of OGASched: as printed; its projection corrected; also shown the arrivals first, as the
paper's experiments must have been; also with a step that does not vanish."""

PLAYED = (OURS, ONE_STEP, EXACT, PRINTED, RESERVE, *BASELINES.values(), DRF)
CONTENDERS: tuple[str | PolicyTable, ...] = (
    GREEDY,
    PolicyTable(name=OURS, label=RESTARTED, arguments={"memory": False}),
)
"""Rivals that the paper did not play, beside DRF by progressive filling."""

PAPER = (25.0, 0.9999)
"""η₀ and its decay, Table 1."""

DEVICES = "device ranges and requests are not published"
READING = (
    "Algorithm 1 decides before the arrivals are seen, so that what it holds for absent jobs is "
    "lost; " + DEVICES
)


def gradient(version: str, label: str, eta: float, decay: float) -> PolicyTable:
    """A version with the paper's learning rate η₀ · decay^t."""
    rate: dict[str, Any] = {"eta": eta, "decay": decay}
    if version == PRINTED:
        return PolicyTable(name=PRINTED, label=label, arguments=rate)
    if version == EXACT:
        return PolicyTable(name=RESERVE, label=label, arguments={"rule": "decay", **rate})
    more = {"rule": "decay", "steps": 1, "smoothing": 0.0}
    return PolicyTable(name=OURS, label=label, arguments={**more, **rate})


def study(
    name: str,
    scale: Scale,
    slots: tuple[int, int] = (200, 2000),
    seeds: tuple[int, int] = (2, 10),
    scenario: str = SCENARIO,
    optimum_slots: tuple[int, int] = (5, 40),
    more: Sequence[str | PolicyTable] = (),
    comparators: Sequence[str] = (OPTIMUM,),
    **fields: Any,
) -> Experiment:
    """All policies in one experiment; pairs are for the quick scale and the full one."""
    policies: list[str | PolicyTable] = [
        gradient(who, who, *PAPER) if who in (EXACT, ONE_STEP, PRINTED) else who for who in PLAYED
    ]
    return Experiment(
        name=f"ogasched-{name}",
        scenario=scenario,
        policies=[*policies, *more],
        slots=scale.pick(*slots),
        seeds=scale.first_seeds(*seeds),
        comparators=list(comparators),
        optimum_slots=scale.pick(*optimum_slots),
        **fields,
    )


@lru_cache(maxsize=32)
def _behind(results: Results) -> pl.DataFrame:
    return results.against(OPTIMUM)


def optimum(results: Results, **cell: Any) -> Floats:
    """Reward of the per-slot optimum over all slots; shape [seeds].

    It is known on some slots only. There ``ogasched-react`` is measured against it; its own reward
    over all slots is then corrected by that, which leaves far less to chance than the sampled slots
    do by themselves.
    """
    rows = _behind(results).filter(pl.col("policy") == OURS)
    for key, value in cell.items():
        rows = rows.filter(pl.col(key) == value)
    found: Floats = so_far(results, OURS, **cell) + rows.sort("seed")["regret"].to_numpy()
    return found


def per_version(
    results: Results, measure: Callable[[Results, str], Estimate]
) -> dict[str, Estimate]:
    """A measure of every version of OGASched."""
    return {version: measure(results, who) for version, who in VERSIONS.items()}


def against_setting(
    panel: str, results: Results, key: str, slots: float = 1.0
) -> list[tuple[str, str, float | str, Estimate]]:
    """Points of a picture: reward against a setting, over ``slots``.

    Clusters differ far more from seed to seed than policies do on any of them; so intervals are
    those of the difference to FAIRNESS, which itself has none.
    """
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for x in values(results, key):
        cell = {key: x}
        fair = so_far(results, BASELINES["FAIRNESS"], **cell) / slots
        at = x if isinstance(x, str) else float(x)
        rows += [
            (panel, who, at, from_optimum(so_far(results, who, **cell) / slots, fair))
            for who in PLAYED
        ]
        rows.append((panel, OPTIMUM, at, from_optimum(optimum(results, **cell) / slots, fair)))
    return rows


SERVERS, TYPES, CONTENTION = (f"ogasched-{n}" for n in ("servers", "job-types", "contention"))
KEYS = {SERVERS: "servers", TYPES: "job_types", CONTENTION: "contention"}
FAIR = BASELINES["FAIRNESS"]
EVERY = list(BASELINES.values())


def _contention(scale: Scale) -> Experiment:
    return study("contention", scale, grid={"contention": [0.1, 0.3, 1, 3, 10, 20]})


def _scales(scale: Scale) -> Sequence[Experiment]:
    return [
        study(
            "servers",
            scale,
            optimum_slots=(3, 20),
            grid={"servers": [32, 128, 512] if scale.quick else [32, 64, 128, 256, 512]},
        ),
        study(
            "job-types",
            scale,
            optimum_slots=(3, 20),
            grid={"job_types": [5, 10, 40] if scale.quick else [5, 10, 20, 40]},
        ),
        _contention(scale),
    ]


def _smallest_leads(found: Found) -> dict[str, Estimate]:
    return {
        f"{version}, {key}": smallest_lead(found[name], who, key, EVERY)
        for name, key in KEYS.items()
        for version, who in VERSIONS.items()
    }


def lead_moves(name: str, first: float, last: float) -> Callable[[Found], dict[str, Estimate]]:
    """By how many points of per cent the lead over FAIRNESS changes between two values."""

    def measure(results: Results, who: str) -> Estimate:
        cells: list[dict[str, Any]] = [{KEYS[name]: x} for x in (first, last)]
        before, after = (
            so_far(results, who, **cell) / so_far(results, FAIR, **cell) for cell in cells
        )
        return mean_and_interval(100 * (after - before))

    return lambda found: per_version(found[name], measure)


def _moves(name: str, first: float, last: float) -> Callable[[Found], dict[str, Estimate]]:
    def ours(found: Found) -> dict[str, Estimate]:
        return {
            who: change(found[name], who, KEYS[name], first, last)
            for who in (*VERSIONS.values(), *EVERY)
        }

    return ours


def _slope(results: Results, who: str, key: str, among: Sequence[Any], metric: str) -> Any:
    earned = np.array([so_far(results, who, None, metric, **{key: x}) for x in among])
    return np.polyfit(np.log(np.array(among, dtype=np.float64)), np.log(earned), 1)[0]


def _weaker(found: Found) -> dict[str, Estimate]:
    def measure(_: Results, who: str) -> Estimate:
        slopes = [
            _slope(found[name], who, KEYS[name], values(found[name], KEYS[name]), "reward")
            for name in (SERVERS, TYPES)
        ]
        return mean_and_interval(slopes[0] - slopes[1])

    return per_version(found[SERVERS], measure)


FIGURE_3 = Artefact(
    "ogasched",
    "figure-3",
    "accumulated reward and scale (± of the difference to FAIRNESS)",
    _scales,
    lambda found: table(
        [
            row
            for name, key in reversed(KEYS.items())
            for row in against_setting(key, found[name], key)
        ]
    ),
    [
        Panel("servers", "servers |R|", "accumulated reward", "points", log_x=True, log_y=True),
        Panel("job_types", "job types |L|", "accumulated reward", "points", log_x=True),
        Panel("contention", "contention level", "accumulated reward", "points", log_x=True),
    ],
    [
        Claim(
            "smallest lead of OGASched over any baseline, %",
            "always performs the best",
            _smallest_leads,
            Above(0),
            READING,
        ),
        Claim(
            "smallest change of OGASched's reward with twice the servers or more, %",
            "increases",
            lambda found: per_version(
                found[SERVERS], lambda r, who: smallest_step(r, who, "servers")
            ),
            Above(0),
        ),
        Claim(
            "OGASched's lead over FAIRNESS from 32 to 128 servers, % points",
            "first increases",
            lead_moves(SERVERS, 32, 128),
            Above(0),
            "density is fixed, so job types per server do not change; " + DEVICES,
        ),
        Claim(
            "OGASched's lead over FAIRNESS from 128 to 512 servers, % points",
            "then decreases",
            lead_moves(SERVERS, 128, 512),
            Below(0),
            "density is fixed, so job types per server do not change; " + DEVICES,
        ),
        Claim(
            "exponent of the reward in servers less that in job types",
            "job types have a weaker impact",
            _weaker,
            Above(0),
        ),
        Claim(
            "reward from contention 0.1 to 1, %", "increases", _moves(CONTENTION, 0.1, 1), Above(0)
        ),
        Claim(
            "reward from contention 1 to 20, %",
            "decreases",
            _moves(CONTENTION, 1, 20),
            Below(0),
            "a request is an upper limit: a larger one takes nothing from the optimum; " + DEVICES,
        ),
        Claim(
            "OGASched's lead over FAIRNESS from contention 1 to 20, % points",
            "decreases",
            lead_moves(CONTENTION, 1, 20),
            Below(0),
            DEVICES,
        ),
    ],
)


def _gain_and_overhead(found: Found) -> pl.DataFrame:
    results = found[CONTENTION]
    slots = float(results.runs[0]["slots"])
    return table(
        [
            (
                metric,
                who,
                float(x),
                mean_and_interval(so_far(results, who, None, metric, contention=x) / slots),
            )
            for metric in ("gain", "overhead")
            for who in PLAYED
            for x in values(results, "contention")
        ]
    )


def _grows(
    metric: str, over: str = "", among: Sequence[float] = (1, 3, 10, 20)
) -> Callable[[Found], dict[str, Estimate]]:
    """Exponent of a metric in the contention level, less that of another one."""

    def measure(results: Results, who: str) -> Estimate:
        found = _slope(results, who, "contention", among, metric)
        less = _slope(results, who, "contention", among, over) if over else 0.0
        return mean_and_interval(found - less)

    def ours(found: Found) -> dict[str, Estimate]:
        results = found[CONTENTION]
        return per_version(results, measure) | {base: measure(results, base) for base in EVERY}

    return ours


FIGURE_6 = Artefact(
    "ogasched",
    "figure-6",
    "computation gain and communication overhead of a slot",
    lambda scale: [_contention(scale)],
    _gain_and_overhead,
    [
        Panel(name, "contention level", f"{name} of a slot", "points", log_x=True)
        for name in ("gain", "overhead")
    ],
    [
        Claim(
            "exponent of the overhead in the contention level, from 0.1 to 20",
            "increases",
            _grows("overhead", among=(0.1, 0.3, 1, 3, 10, 20)),
            Above(0),
        ),
        Claim(
            "exponent of the overhead in the contention level, from 1 to 20",
            "increases slowly: above 0",
            _grows("overhead"),
            Above(0),
            "beyond contention 1 servers are full, and what is handed out hardly grows",
        ),
        Claim(
            "exponent of the overhead in the contention level, from 0.1 to 1",
            "slowly: below 1/2",
            _grows("overhead", among=(0.1, 0.3, 1)),
            Below(0.5),
            "as long as servers are not full, allocation and overhead grow with requests",
        ),
    ],
)


RATES = "ogasched-rates"
SWEPT = {ONE_STEP: ONE_STEP, EXACT: EXACT, "as printed": PRINTED}
ETAS = (0.1, 1.0, 5.0, 25.0, 100.0)
DECAYS = (0.95, 0.99, 0.995, 0.9999, 1.0001)
GOOD = (0.995, 0.9999)


def _label(version: str, eta: float, decay: float) -> str:
    return f"{version}, {eta:g}, {decay:g}"


def _rates_experiments(scale: Scale) -> Sequence[Experiment]:
    rates = [(eta, PAPER[1]) for eta in ETAS]
    rates += [(PAPER[0], decay) for decay in DECAYS if decay != PAPER[1]]
    return [
        Experiment(
            name=RATES,
            scenario=SCENARIO,
            slots=scale.pick(200, 2000),
            seeds=scale.first_seeds(2, 10),
            policies=[
                *(
                    gradient(who, _label(version, *rate), *rate)
                    for version, who in SWEPT.items()
                    for rate in rates
                ),
                OURS,
                RESERVE,
                FAIR,
            ],
        )
    ]


def _rates_numbers(found: Found) -> pl.DataFrame:
    results = found[RATES]
    fair = so_far(results, FAIR)
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for panel, rates in (
        ("initial learning rate", [(f"{eta:g}", eta, PAPER[1]) for eta in ETAS]),
        ("decay", [(f"{decay:g}", PAPER[0], decay) for decay in DECAYS]),
    ):
        for x, eta, decay in rates:
            lines = {who: _label(version, eta, decay) for version, who in SWEPT.items()}
            rows.append((panel, OURS, x, from_optimum(so_far(results, OURS), fair)))
            rows += [
                (panel, line, x, from_optimum(so_far(results, who), fair))
                for line, who in (lines | {who: who for who in (RESERVE, FAIR)}).items()
            ]
    return table(rows)


def _slower_than_faster(found: Found) -> dict[str, Estimate]:
    return {
        version: lead(found[RATES], _label(version, *PAPER), _label(version, PAPER[0], 1.0001))
        for version in SWEPT
    }


def _inside(found: Found) -> dict[str, Estimate]:
    results = found[RATES]

    def best(version: str, among: Sequence[float]) -> str:
        labels = [_label(version, PAPER[0], decay) for decay in among]
        return max(labels, key=lambda label: float(so_far(results, label).mean()))

    others = [decay for decay in DECAYS if decay not in GOOD]
    return {v: lead(results, best(v, GOOD), best(v, others)) for v in SWEPT}


def _worst(found: Found) -> dict[str, Estimate]:
    results, slots = found[RATES], float(found[RATES].runs[0]["slots"])
    return {
        version: least(
            mean_and_interval(so_far(results, _label(version, *rate)) / slots)
            for rate in [(e, PAPER[1]) for e in ETAS] + [(PAPER[0], d) for d in DECAYS]
        )
        for version in SWEPT
    }


def _over_tuned(results: Results, version: str, ours: str) -> Estimate:
    labels = [_label(version, eta, PAPER[1]) for eta in ETAS]
    labels += [_label(version, PAPER[0], decay) for decay in DECAYS]
    best = max(labels, key=lambda label: float(so_far(results, label).mean()))
    return lead(results, ours, best)


FIGURE_4 = Artefact(
    "ogasched",
    "figure-4",
    "learning rates (± of the difference to FAIRNESS)",
    _rates_experiments,
    _rates_numbers,
    [
        Panel("initial learning rate", "η₀, decay 0.9999", "accumulated reward", "bars"),
        Panel("decay", "decay, η₀ = 25", "accumulated reward", "bars"),
    ],
    [
        Claim(
            "decay 0.9999 over 1.0001, %",
            "better",
            _slower_than_faster,
            Above(0),
            "the two differ by a fifth of the step or less over the first 1000 slots",
        ),
        Claim(
            "best decay in [0.995, 0.9999] over the best outside, %",
            "the best range",
            _inside,
            Above(0),
            "a decay only repairs an η₀ that is too large for the cluster at hand",
        ),
        Claim(
            "smallest average reward over all rates",
            "may be negative",
            _worst,
            Below(0),
            "decisions stay feasible whatever the step, and our devices' overheads do not "
            "outweigh gains",
        ),
        Claim(
            "a step without tuning over the best rate tried, %",
            "not compared",
            lambda found: {
                "ogasched-reserve over exact projection": _over_tuned(found[RATES], EXACT, RESERVE),
                "ogasched-react over one step": _over_tuned(found[RATES], ONE_STEP, OURS),
            },
            NotCompared(),
        ),
    ],
)


LARGE = "ogasched-large"


def _large_experiments(scale: Scale) -> Sequence[Experiment]:
    settings = {"job_types": 100, "servers": 1024, "beta": [0.01, 0.015], "contention": 5}
    return [
        study(
            "large",
            scale,
            slots=(20, 10_000),
            seeds=(2, 3),
            optimum_slots=(2, 5),
            settings=settings,
            more=CONTENDERS,
        )
    ]


def _large_numbers(found: Found) -> pl.DataFrame:
    results = found[LARGE]
    T = recorded(results, OURS)[-1]
    slots = [at for at in recorded(results, OURS) if at >= T / 100]
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for at in slots:
        fair = so_far(results, FAIR, at)
        for who in (*PLAYED, GREEDY):
            earned = so_far(results, who, at)
            rows.append(("average", who, at, from_optimum(earned / at, fair / at)))
            rows.append(("accumulated", who, at, from_optimum(earned, fair)))
    level = from_optimum(optimum(results) / T, so_far(results, FAIR) / T)
    rows += [("average", OPTIMUM, at, level) for at in (slots[0], T)]
    return table(rows)


def _hours(results: Results, who: str) -> Estimate:
    times = results.per_seed("us_per_slot").filter(pl.col("policy") == who)["value"]
    return mean_and_interval(times.to_numpy() * 10_000 / 3.6e9)


def _smallest(results: Results, who: str) -> Estimate:
    return least(lead(results, who, base) for base in BASELINES.values())


FIGURE_5 = Artefact(
    "ogasched",
    "figure-5",
    "100 job types, 1024 servers (± of the difference to FAIRNESS)",
    _large_experiments,
    _large_numbers,
    [
        Panel("average", "slot", "average reward until slot"),
        Panel("accumulated", "slot", "accumulated reward"),
    ],
    [
        Claim(
            "smallest lead of OGASched over any baseline, %",
            "superiority is preserved",
            lambda found: per_version(found[LARGE], _smallest),
            Above(0),
            READING,
        ),
        Claim(
            "OGASched over the marginal-reward greedy, %",
            "not compared",
            lambda found: per_version(found[LARGE], lambda r, who: lead(r, who, GREEDY)),
            NotCompared(),
            "a greedy that knows the rewards and remembers nothing",
        ),
        Claim(
            "OGASched's share of the per-slot optimum, %",
            "not compared",
            lambda found: per_version(
                found[LARGE], lambda r, who: mean_and_interval(100 * so_far(r, who) / optimum(r))
            ),
            NotCompared(),
            DEVICES,
        ),
        Claim(
            "hours for 10,000 slots",
            "15 hours",
            lambda found: per_version(found[LARGE], _hours),
            NotCompared(),
            "on one core here, on 48 there",
            timed=True,
        ),
    ],
)


UTILITIES, AUTHORS = (f"ogasched-{name}" for name in ("utilities", "authors"))


def _utilities(scale: Scale) -> Sequence[Experiment]:
    grid = {"utility": ["linear", "poly", "log", "reciprocal", "mixed"]}
    return [
        study("utilities", scale, grid=grid),
        study("authors", scale, grid=grid, scenario="ogasched-authors-v2"),
    ]


def _places(found: Found) -> list[tuple[str, Results]]:
    """Where utilities are varied; on rows of the traces, the authors' ranges are not."""
    places = (("", UTILITIES), (", authors' ranges", AUTHORS))
    return [(where, found[name]) for where, name in places if name in found]


def _differences(over: Sequence[str], utilities: Sequence[str] = ()) -> Any:
    """Smallest difference of rewards per slot: rewards of baselines may be negative."""

    def ours(found: Found) -> dict[str, Estimate]:
        answers: dict[str, Estimate] = {}
        for where, results in _places(found):
            slots = float(results.runs[0]["slots"])

            def measure(results: Results, who: str, slots: float = slots) -> Estimate:
                return least(
                    mean_and_interval(
                        (so_far(results, who, utility=u) - so_far(results, base, utility=u)) / slots
                    )
                    for u in utilities or values(results, "utility")
                    for base in over
                )

            answers |= {v + where: e for v, e in per_version(results, measure).items()}
        return answers

    return ours


def _less_than_linear(found: Found) -> dict[str, Estimate]:
    def measure(results: Results, who: str) -> Estimate:
        linear = so_far(results, who, utility="linear")
        others = (so_far(results, who, utility=u) for u in ("poly", "log", "reciprocal"))
        return max(
            (mean_and_interval(100 * other / linear) for other in others),
            key=lambda estimate: estimate.mean,
        )

    return {
        version + where: estimate
        for where, results in _places(found)
        for version, estimate in per_version(results, measure).items()
    }


FIGURE_7 = Artefact(
    "ogasched",
    "figure-7",
    "accumulated reward and utilities (± of the difference to FAIRNESS)",
    _utilities,
    lambda found: table(
        [
            row
            for where, results in _places(found)
            for row in against_setting(
                "authors' ranges" if where else "our ranges", results, "utility"
            )
        ]
    ),
    [
        Panel(name, "utility", "accumulated reward", "bars")
        for name in ("our ranges", "authors' ranges")
    ],
    [
        Claim(
            "largest reward with poly, log or reciprocal, % of that with linear",
            "significantly less",
            _less_than_linear,
            Below(50),
        ),
        Claim(
            "smallest difference of OGASched and a baseline per slot, any utility",
            "superiority does not change",
            _differences(EVERY),
            Above(0),
            "with linear utilities every baseline is within a per cent of the optimum; " + READING,
        ),
        Claim(
            "smallest difference of OGASched and a baseline per slot, utilities not linear",
            "superiority does not change",
            _differences(EVERY, ["poly", "log", "reciprocal", "mixed"]),
            Above(0),
            READING,
        ),
        Claim(
            "difference of OGASched and FAIRNESS per slot, all reciprocal",
            "has its advantages",
            _differences([BASELINES["FAIRNESS"]], ["reciprocal"]),
            Above(0),
        ),
    ],
)
