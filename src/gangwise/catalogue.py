"""What gangwise itself registers: names, one line each, and nothing imported until it is used."""

from __future__ import annotations

from gangwise.core.registry import register

__all__: list[str] = []

GAIN = "gain_overhead"

register("family", GAIN, "gangwise.gain_overhead.family:GainOverheadFamily",
         "OGASched: parallel gain minus dominant communication overhead")  # fmt: skip

for name, target, summary, preset in (
    ("ogasched-react", "ogasched:OGASchedReact",
     "gradient ascent on the job types that arrived, then play", {}),
    ("ogasched-reserve", "ogasched:OGASchedReserve",
     "Algorithm 1 with the exact projection: decide, then see the arrivals", {}),
    ("ogasched-reserve-leftover", "ogasched:OGASchedReserve",
     "the same reservations, leftovers handed to the jobs that came", {"leftover": True}),
    ("ogasched-as-printed", "ogasched:OGASchedAsPrinted",
     "Algorithm 1 with the projection as printed, eta 25, decay 0.9999", {}),
    ("drf", "drf:DRF", "ascending dominant resource share", {}),
    ("fairness", "fairness:Fairness", "shares proportional to requests", {}),
    ("binpacking", "packing:BinPacking", "most used server first", {}),
    ("spreading", "packing:Spreading", "least used server first", {}),
    ("random", "random_order:RandomOrder", "random serving order", {}),
    ("greedy", "greedy:Greedy", "largest marginal reward first", {}),
):  # fmt: skip
    register("policy", name, f"gangwise.gain_overhead.{target}", summary, GAIN, **preset)

register("scenario", "ogasched-default-v1", "gangwise.scenarios.ogasched:OGASchedScenario",
         "Table 1 of OGASched; device ranges are our choice", GAIN)  # fmt: skip
register("scenario", "ogasched-authors-v1", "gangwise.scenarios.ogasched:authors_scenario",
         "the same with the device ranges of the authors' code", GAIN)  # fmt: skip
