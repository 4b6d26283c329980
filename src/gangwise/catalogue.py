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

register("trace", "alibaba-gpu-v2023", "gangwise.traces.alibaba_gpu_v2023:AlibabaGpuV2023",
         "nodes with GPUs of several models, pods that share them")  # fmt: skip

GANG = "gain_overhead_gang"

register("family", GANG, "gangwise.gain_overhead.gang.family:GangFamily",
         "OGASched §3.5: tasks that start together or not at all")  # fmt: skip

for name, target, summary in (
    ("gang-ogasched", "ogasched:GangOGASched",
     "fractional ascent as the plan, rounded to whole gangs and improved"),
    ("gang-greedy", "greedy:GangGreedy", "the gang with the largest reward first"),
    ("gang-drf", "baselines:GangDRF", "jobs by ascending dominant share, largest server first"),
    ("gang-fairness", "baselines:GangFairness", "jobs place tasks in turns, largest server first"),
    ("gang-binpacking", "baselines:GangBinPacking", "job by job, most used server first"),
    ("gang-spreading", "baselines:GangSpreading", "job by job, least used server first"),
    ("gang-random", "baselines:GangRandom", "jobs and servers in random order"),
):
    register("policy", name, f"gangwise.gain_overhead.gang.{target}", summary, GANG)

register("scenario", "ogasched-gang-v1", "gangwise.scenarios.ogasched_gang:GangScenario",
         "gangs of 2 to 6 tasks on the servers of ogasched-default-v1", GANG)  # fmt: skip
register("scenario", "ogasched-gang-small-v1", "gangwise.scenarios.ogasched_gang:small_scenario",
         "the same with 5 job types, 12 servers and 3 device types, for exact answers",
         GANG)  # fmt: skip
