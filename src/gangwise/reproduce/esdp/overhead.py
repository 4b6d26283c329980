"""§4.1: computation time against the size of the graph, Fig. 5.

Times are not results to find again, and are left out of what is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.fluctuating_speeds.esdp import ESDPAsPrinted
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below
from gangwise.reproduce.esdp.study import OURS, PRINTED
from gangwise.reproduce.measures import table, values

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

PROGRAMME = "esdp-by-programme"
NAMES = {
    OURS: "esdp",
    PRINTED: "as printed, branch and bound",
    PROGRAMME: "as printed, dynamic programme",
}


@dataclass
class ESDPByProgramme(ESDPAsPrinted):
    """The printed algorithm with the paper's own dynamic programme, to see how long it takes."""

    def _choose(
        self, v: Floats, s: Floats, available: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        return self._solver.solve(v, s, available=available, method="dp").x


def _experiments(scale: Scale) -> Sequence[Experiment]:
    seeds, full = scale.first_seeds(2, 5), not scale.quick
    name = "esdp-overhead"
    return [
        Experiment(
            name=f"{name}-{study}",
            scenario="esdp-default-v1",
            slots=scale.pick(slots // 5, slots),
            settings={"fraction": 0.25, "devices": devices},
            grid={"servers": servers},
            policies=policies,
            seeds=seeds,
        )
        for study, devices, slots, servers, policies in (
            ("one", 1, 1000, [20, 40, 80, 160] if full else [20, 40], [OURS, PRINTED]),
            ("one-programme", 1, 300, [20, 40, 60, 80] if full else [20, 40], [PROGRAMME]),
            ("three", 3, 1000, [20, 40, 80, 160] if full else [20, 40], [OURS, PRINTED]),
            ("three-programme", 3, 50, [10, 20, 40] if full else [10, 20], [PROGRAMME]),
        )
    ]


def microseconds(results: Results, policy: str, servers: int) -> Floats:
    """Time of a slot, by seed."""
    import polars as pl

    rows = results.per_seed("us_per_slot").filter(
        (pl.col("policy") == policy) & (pl.col("servers") == servers)
    )
    return rows.sort("seed")["value"].to_numpy()


def _panels(found: Found) -> list[tuple[str, Results, str]]:
    return [
        (panel, found[f"esdp-overhead-{study}{more}"], policy)
        for panel, study in (("one device type", "one"), ("three device types", "three"))
        for policy, more in ((OURS, ""), (PRINTED, ""), (PROGRAMME, "-programme"))
    ]


def _numbers(found: Found) -> pl.DataFrame:
    return table(
        [
            (
                panel,
                NAMES[policy],
                float(servers),
                mean_and_interval(microseconds(results, policy, servers)),
            )
            for panel, results, policy in _panels(found)
            for servers in values(results, "servers")
        ]
    )


def _exponent(results: Results, policy: str) -> Estimate:
    servers = values(results, "servers")
    times = np.array([microseconds(results, policy, r) for r in servers])
    return mean_and_interval(np.polyfit(np.log(servers), np.log(times), 1)[0])


def _exponents(found: Found) -> dict[str, Estimate]:
    return {
        f"{NAMES[policy]}, {panel}": _exponent(results, policy)
        for panel, results, policy in _panels(found)
    }


def _programme_over_ours(found: Found) -> dict[str, Estimate]:
    ours = {}
    for panel, study in (("one device type", "one"), ("three device types", "three")):
        programme, fast = (found[f"esdp-overhead-{study}{m}"] for m in ("-programme", ""))
        servers = max(set(values(programme, "servers")) & set(values(fast, "servers")))
        ratio = microseconds(programme, PROGRAMME, servers) / microseconds(fast, OURS, servers)
        ours[f"{panel}, {servers} servers"] = mean_and_interval(ratio)
    return ours


FIGURE_5 = Artefact(
    "esdp",
    "figure-5",
    "computation time of a slot",
    _experiments,
    _numbers,
    [
        Panel(name, "servers |R|", "µs per slot", "points", log_x=True, log_y=True)
        for name in ("one device type", "three device types")
    ],
    [
        Claim(
            "exponent of the time of a slot in |R|",
            "polynomial: |E| |S| Π c, that is 3 + K",
            _exponents,
            below(6.0),
            "with |S| and c in proportion to |E|, or |E|² for |S|, the printed complexity is of "
            "degree 3 + K",
            timed=True,
        ),
        Claim(
            "time of the dynamic programme over that of the exact ESDP",
            "no other solver",
            _programme_over_ours,
            above(1.0),
            "branch and bound answers the same",
            timed=True,
        ),
    ],
)
