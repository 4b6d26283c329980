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

register("trace", "alibaba-gpu-v2020", "gangwise.traces.alibaba_gpu_v2020:AlibabaGpuV2020",
         "jobs and tasks of two months on machines with GPUs of five kinds")  # fmt: skip
register("trace", "alibaba-gpu-v2023", "gangwise.traces.alibaba_gpu_v2023:AlibabaGpuV2023",
         "nodes with GPUs of several models, pods that share them")  # fmt: skip
register("trace", "alibaba-v2018", "gangwise.traces.alibaba_v2018:AlibabaV2018",
         "batch jobs whose tasks form graphs, beside containers")  # fmt: skip
register("trace", "alibaba-v2017", "gangwise.traces.alibaba_v2017:AlibabaV2017",
         "the smaller trace before it, without graphs")  # fmt: skip
register("trace", "google-2011", "gangwise.traces.google_2011:Google2011",
         "events of the tasks, jobs and machines of a cell")  # fmt: skip
register("trace", "google-2019", "gangwise.traces.google_2019:Google2019",
         "the same of 2019, as lines of JSON")  # fmt: skip
register("trace", "philly", "gangwise.traces.philly:Philly",
         "Microsoft Philly: deep learning jobs, servers with 2 and 8 GPUs")  # fmt: skip
register("trace", "slurm-sacct", "gangwise.traces.slurm:SlurmSacct",
         "what sacct prints, as text or JSON, with the nodes of scontrol")  # fmt: skip
register("trace", "csv", "gangwise.traces.own_csv:OwnCsv",
         "your own CSV files, with a mapping in TOML")  # fmt: skip

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

SPEEDS = "fluctuating_speeds"

register("family", SPEEDS, "gangwise.fluctuating_speeds.family:FluctuatingSpeedsFamily",
         "ESDP: channels whose utilities are learned while they are used")  # fmt: skip

for name, target, summary, settings in (
    ("esdp", "esdp:ESDP", "Algorithm 1 over the job types that arrived, exact, g = ln(t + 1)", {}),
    ("esdp-as-printed", "esdp:ESDPAsPrinted",
     "rounded, solved for all job types and switched off afterwards; repaired until it runs", {}),
    ("esdp-discounted", "esdp:ESDP", "esdp whose statistics fade", {"memory": "discounted"}),
    ("esdp-window", "esdp:ESDP", "esdp over a sliding window", {"memory": "window"}),
    ("escb", "esdp:ESDP", "esdp with the g of the theorem", {"g": "default"}),
    ("hauf", "hauf:HAUF", "job types by highest estimated utility", {}),
    ("hswf", "hauf:HAUF", "the preprint's name of hauf", {}),
    ("hauf-channel", "hauf:HAUFChannel", "channels by highest estimated utility", {}),
    ("lcf", "lcf:LCF", "job types by lowest supply cost", {}),
    ("lwtf", "lwtf:LWTF", "job types by longest time since they were served", {}),
    ("random-channels", "random_channels:RandomChannels", "channels in random order", {}),
    ("cucb", "cucb:CUCB", "upper confidence bound of each channel, best choice for them", {}),
    ("thompson-beta", "thompson:ThompsonBeta", "Thompson sampling, nothing to tune", {}),
    ("thompson-gaussian", "thompson:ThompsonGaussian", "Thompson sampling, normal beliefs", {}),
    ("epsilon-greedy", "epsilon_greedy:EpsilonGreedy", "best so far, 5 % at random", {}),
    ("epsilon-greedy-decaying", "epsilon_greedy:EpsilonGreedy",
     "best so far, at random with probability |E| / t", {"epsilon": 1.0, "decay": True}),
):  # fmt: skip
    register("policy", name, f"gangwise.fluctuating_speeds.{target}", summary, SPEEDS, **settings)

register("scenario", "esdp-default-v1", "gangwise.scenarios.esdp:ESDPScenario",
         "Table 3 of ESDP; capacities are half of all requests", SPEEDS)  # fmt: skip
register("scenario", "esdp-gavel-v1", "gangwise.scenarios.esdp_traces:GavelScenario",
         "measured throughputs on three GPU models; needs folder=", SPEEDS)  # fmt: skip
register("scenario", "esdp-mini-batch-v1", "gangwise.scenarios.esdp_traces:MiniBatchScenario",
         "recorded iteration times of real workers; needs folder=", SPEEDS)  # fmt: skip

SPEEDS_GANG = "fluctuating_speeds_gang"

register("family", SPEEDS_GANG, "gangwise.fluctuating_speeds.gang.family:GangSpeedsFamily",
         "ESDP §3.4: all-or-nothing jobs on channels that are learned")  # fmt: skip

for name, target, summary in (
    ("gang-esdp", "learners:GangESDP", "optimistic sum over whole gangs, one root over it all"),
    ("gang-cucb", "learners:GangCUCB", "upper confidence bound of each channel, whole gangs"),
    ("gang-means", "learners:GangMeans", "the means so far, no exploration on purpose"),
    ("gang-first-fit", "baselines:GangFirstFit", "job by job, first server with room"),
    ("gang-best-fit", "baselines:GangBestFit", "job by job, the server that a task fills most"),
    ("gang-volcano", "baselines:GangVolcano", "Volcano's allocate: gang, priority, drf, binpack"),
):
    register("policy", name, f"gangwise.fluctuating_speeds.gang.{target}", summary, SPEEDS_GANG)

register("scenario", "esdp-gang-v1", "gangwise.scenarios.esdp_gang:ESDPGangScenario",
         "gangs of 2 to 6 tasks; utilities as in ESDP §4", SPEEDS_GANG)  # fmt: skip
register("scenario", "esdp-gang-small-v1", "gangwise.scenarios.esdp_gang:small_scenario",
         "the same with 5 job types and 8 servers, for exact answers", SPEEDS_GANG)  # fmt: skip

APPROXIMATION = "approximation_jobs"

register("family", APPROXIMATION, "gangwise.approximation_jobs.family:ApproximationFamily",
         "OPS and OPM: approximation jobs on machines of unknown rates")  # fmt: skip

AS_PRINTED: dict[str, object] = {
    "estimator": "ucb", "objective": "average", "pacing": "even", "rounding": "fresh",
    "unit": "utility", "alpha": 0.1,
}  # fmt: skip

jobs_policies: tuple[tuple[str, str, str, dict[str, object]], ...] = (
    ("ops", "ops:OPS", "Algorithm 1 with the constants of Theorem 2; serves one job at a time", {}),
    ("opm", "opm:OPM",
     "primal-dual shares: forgetting estimates, projected totals, re-paced budgets, coupled draws",
     {}),
    ("opm-as-printed", "opm:OPM",
     "cumulative UCB, objective (9), fresh draws, constants of the experiments", AS_PRINTED),
    ("opm-without-estimation", "opm:OPM",
     "as printed, but every machine has the same rate", {**AS_PRINTED, "estimator": "constant"}),
    ("fair", "fair:Fair", "the same share of the machines for every job", {}),
    ("deadline-aware", "deadline_aware:DeadlineAware", "earliest deadline first", {}),
    ("utility-per-price", "utility_per_price:UtilityPerPrice",
     "steepest job first on the best machine per price, budgets paced", {}),
)  # fmt: skip
for name, target, summary, options in jobs_policies:
    register("policy", name, f"gangwise.approximation_jobs.{target}", summary, APPROXIMATION,
             **options)  # fmt: skip

register("scenario", "opm-default-v1", "gangwise.scenarios.opm:OPMScenario",
         "§VI of the OPM paper on synthetic jobs, heavily loaded", APPROXIMATION)  # fmt: skip

register("scenario", "opm-theorem-v1", "gangwise.scenarios.opm_theorem:OPMTheoremScenario",
         "the setting of Theorem 2, Theorem 3 and Corollary 1; budgets are not enforced",
         APPROXIMATION)  # fmt: skip

# Of no family by name, since all other policies of it need machines that hold one task.
register("policy", "opm-general", "gangwise.approximation_jobs.general:OPMGeneral",
         "OPM for machines that hold several tasks, OPS and OPM §V-C")  # fmt: skip
register("scenario", "opm-google-v1", "gangwise.scenarios.opm_google:GoogleScenario",
         "jobs of Google ClusterData 2011 on 1000 machines; needs folder=",
         "approximation_jobs")  # fmt: skip

# Of no family by name either: it answers as esdp-as-printed does, at the cost that Fig. 5 shows.
register("policy", "esdp-by-programme", "gangwise.reproduce.esdp.overhead:ESDPByProgramme",
         "esdp-as-printed solved by the paper's dynamic programme")  # fmt: skip
