"""What gangwise itself registers: names, one line each, and nothing imported until it is used."""

from __future__ import annotations

from typing import Any

from gangwise.core.registry import register

GAIN = "gain_overhead"

register(
    "family",
    GAIN,
    "gangwise.gain_overhead.environment:GainOverheadFamily",
    "OGASched: parallel gain minus dominant communication overhead",
)

for name, target, summary, preset in (
    (
        "ogasched-react",
        "ogasched:OGASchedReact",
        "gradient ascent on the job types that arrived, then play",
        {},
    ),
    (
        "ogasched-reserve",
        "ogasched:OGASchedReserve",
        "Algorithm 1 with the exact projection: decide, then see the arrivals",
        {},
    ),
    (
        "ogasched-reserve-leftover",
        "ogasched:OGASchedReserve",
        "the same reservations, leftovers handed to the jobs that came",
        {"leftover": True},
    ),
    (
        "ogasched-as-printed",
        "ogasched:OGASchedAsPrinted",
        "Algorithm 1 with the projection as printed, eta 25, decay 0.9999",
        {"revision": 2},
    ),
    (
        "drf",
        "baselines:DRF",
        "dominant-resource fairness by progressive filling, server by server",
        {"revision": 2},
    ),
    (
        "drf-as-printed",
        "baselines:DRFAsPrinted",
        "list scheduling by ascending dominant share, as OGASched §4 has it",
        {},
    ),
    ("fairness", "baselines:Fairness", "shares proportional to requests", {}),
    ("binpacking", "baselines:BinPacking", "most used server first", {}),
    ("spreading", "baselines:Spreading", "least used server first", {}),
    ("random", "baselines:RandomOrder", "random serving order", {}),
    ("greedy", "baselines:Greedy", "largest marginal reward first", {"revision": 2}),
):
    register("policy", name, f"gangwise.gain_overhead.{target}", summary, GAIN, **preset)

register(
    "scenario",
    "ogasched-default-v1",
    "gangwise.scenarios.ogasched:OGASchedScenario",
    "Table 1 of OGASched; device ranges are our choice",
    GAIN,
)
register(
    "scenario",
    "ogasched-authors-v2",
    "gangwise.scenarios.ogasched:authors_scenario",
    "the same with the device ranges of the authors' early code",
    GAIN,
)
register(
    "scenario",
    "ogasched-alibaba-v1",
    "gangwise.scenarios.alibaba:OGASchedRowsScenario",
    "Table 1 of OGASched on rows of v2018 and gpu-v2020; with folder= the real ones",
    GAIN,
)
register(
    "scenario",
    "ogasched-authors-v1",
    "gangwise.scenarios.ogasched:guessed_scenario",
    "ranges once mistaken for those of the authors' code; kept for earlier results",
    GAIN,
)

register(
    "trace",
    "alibaba-gpu-v2020",
    "gangwise.traces.formats.alibaba_gpu_v2020:AlibabaGpuV2020",
    "jobs and tasks of two months on machines with GPUs of five kinds",
)
register(
    "trace",
    "alibaba-gpu-v2023",
    "gangwise.traces.formats.alibaba_gpu_v2023:AlibabaGpuV2023",
    "nodes with GPUs of several models, pods that share them",
)
register(
    "trace",
    "alibaba-v2018",
    "gangwise.traces.formats.alibaba_v2018:AlibabaV2018",
    "batch jobs whose tasks form graphs, beside containers",
)
register(
    "trace",
    "alibaba-v2017",
    "gangwise.traces.formats.alibaba_v2017:AlibabaV2017",
    "the smaller trace before it, without graphs",
)
register(
    "trace",
    "google-2011",
    "gangwise.traces.formats.google_2011:Google2011",
    "events of the tasks, jobs and machines of a cell",
)
register(
    "trace",
    "google-2019",
    "gangwise.traces.formats.google_2019:Google2019",
    "the same of 2019, as lines of JSON",
)
register(
    "trace",
    "acme",
    "gangwise.traces.formats.helios_acme:Acme",
    "Shanghai AI Lab: jobs of two clusters for large language models",
)
register(
    "trace",
    "alibaba-gpu-v2025",
    "gangwise.traces.formats.alibaba_gpu_v2025:AlibabaGpuV2025",
    "instances of recommendation services, on nodes with GPUs and without",
)
register(
    "trace",
    "alibaba-spot-2026",
    "gangwise.traces.formats.alibaba_spot_2026:AlibabaSpot2026",
    "training jobs of high priority and on spot GPUs",
)
register(
    "trace",
    "helios",
    "gangwise.traces.formats.helios_acme:Helios",
    "SenseTime: jobs of GPU clusters",
)
register(
    "trace",
    "kubernetes",
    "gangwise.traces.formats.kubernetes:Kubernetes",
    "pods and nodes as kubectl prints them, gangs by group or owner",
)
register(
    "trace",
    "philly",
    "gangwise.traces.formats.philly:Philly",
    "Microsoft Philly: deep learning jobs, servers with 2 and 8 GPUs",
)
register(
    "trace",
    "slurm-sacct",
    "gangwise.traces.formats.slurm:SlurmSacct",
    "what sacct prints, as text or JSON, with the nodes of scontrol",
)
register(
    "trace",
    "swf",
    "gangwise.traces.formats.swf:StandardWorkload",
    "Standard Workload Format: the logs of the Parallel Workloads Archive",
)
register(
    "trace",
    "csv",
    "gangwise.traces.formats.own_csv:OwnCsv",
    "your own files, CSV or JSON, with a mapping in TOML",
)

GANG = "gain_overhead_gang"

register(
    "family",
    GANG,
    "gangwise.gangs.environment:GangFamily",
    "OGASched §3.5: tasks that start together or not at all",
)

for name, target, summary in (
    (
        "gang-ogasched",
        "policies:GangOGASched",
        "fractional ascent as the plan, rounded to whole gangs and improved",
    ),
    ("gang-greedy", "policies:GangGreedy", "the gang with the largest reward first"),
    ("gang-drf", "policies:GangDRF", "jobs by ascending dominant share, largest server first"),
    ("gang-fairness", "policies:GangFairness", "jobs place tasks in turns, largest server first"),
    ("gang-binpacking", "policies:GangBinPacking", "job by job, most used server first"),
    ("gang-spreading", "policies:GangSpreading", "job by job, least used server first"),
    ("gang-random", "policies:GangRandom", "jobs and servers in random order"),
):
    register("policy", name, f"gangwise.gangs.{target}", summary, GANG)

register(
    "scenario",
    "ogasched-gang-v1",
    "gangwise.scenarios.ogasched:GangScenario",
    "gangs of 2 to 6 tasks on the servers of ogasched-default-v1",
    GANG,
)
register(
    "scenario",
    "ogasched-gang-small-v1",
    "gangwise.scenarios.ogasched:small_scenario",
    "the same with 5 job types, 12 servers and 3 device types, for exact answers",
    GANG,
)

SPEEDS = "fluctuating_speeds"

register(
    "family",
    SPEEDS,
    "gangwise.fluctuating_speeds.environment:FluctuatingSpeedsFamily",
    "ESDP: channels whose utilities are learned while they are used",
)

for name, target, summary, settings in (
    ("esdp", "esdp:ESDP", "Algorithm 1 over the job types that arrived, exact, g = ln(t + 1)", {}),
    (
        "esdp-as-printed",
        "esdp:ESDPAsPrinted",
        "rounded, solved for all job types and switched off afterwards; repaired until it runs",
        {},
    ),
    ("esdp-discounted", "esdp:ESDP", "esdp whose statistics fade", {"memory": "discounted"}),
    ("esdp-window", "esdp:ESDP", "esdp over a sliding window", {"memory": "window"}),
    ("escb", "esdp:ESDP", "esdp with the g of the theorem", {"g": "default"}),
    ("hauf", "baselines:HAUF", "job types by highest estimated utility", {}),
    ("hswf", "baselines:HAUF", "the preprint's name of hauf", {}),
    ("hauf-channel", "baselines:HAUFChannel", "channels by highest estimated utility", {}),
    ("lcf", "baselines:LCF", "job types by lowest supply cost", {}),
    ("lwtf", "baselines:LWTF", "job types by longest time since they were served", {}),
    ("random-channels", "baselines:RandomChannels", "channels in random order", {}),
    ("cucb", "learners:CUCB", "upper confidence bound of each channel, best choice for them", {}),
    ("thompson-beta", "learners:ThompsonBeta", "Thompson sampling, nothing to tune", {}),
    ("thompson-gaussian", "learners:ThompsonGaussian", "Thompson sampling, normal beliefs", {}),
    ("epsilon-greedy", "learners:EpsilonGreedy", "best so far, 5 % at random", {}),
    (
        "epsilon-greedy-decaying",
        "learners:EpsilonGreedy",
        "best so far, at random with probability |E| / t",
        {"epsilon": 1.0, "decay": True},
    ),
):
    register("policy", name, f"gangwise.fluctuating_speeds.{target}", summary, SPEEDS, **settings)

register(
    "scenario",
    "esdp-default-v1",
    "gangwise.scenarios.esdp:ESDPScenario",
    "Table 3 of ESDP; capacities are half of all requests",
    SPEEDS,
)
register(
    "scenario",
    "esdp-alibaba-v1",
    "gangwise.scenarios.alibaba:ESDPRowsScenario",
    "Table 3 of ESDP on rows of v2018 and gpu-v2020; with folder= the real ones",
    SPEEDS,
)
register(
    "scenario",
    "esdp-gavel-v1",
    "gangwise.scenarios.esdp:GavelScenario",
    "measured throughputs on three GPU models; needs folder=",
    SPEEDS,
)
register(
    "scenario",
    "esdp-mini-batch-v1",
    "gangwise.scenarios.esdp:MiniBatchScenario",
    "recorded iteration times of real workers; needs folder=",
    SPEEDS,
    revision=2,
)

SPEEDS_GANG = "fluctuating_speeds_gang"

register(
    "family",
    SPEEDS_GANG,
    "gangwise.gangs.environment:GangSpeedsFamily",
    "ESDP §3.4: all-or-nothing jobs on channels that are learned",
)

for name, target, summary in (
    ("gang-esdp", "learners:GangESDP", "optimistic sum over whole gangs, one root over it all"),
    ("gang-cucb", "learners:GangCUCB", "upper confidence bound of each channel, whole gangs"),
    ("gang-means", "learners:GangMeans", "the means so far, no exploration on purpose"),
    ("gang-first-fit", "learners:GangFirstFit", "job by job, first server with room"),
    ("gang-best-fit", "learners:GangBestFit", "job by job, the server that a task fills most"),
    ("gang-volcano", "learners:GangVolcano", "Volcano's allocate: gang, priority, drf, binpack"),
):
    register("policy", name, f"gangwise.gangs.{target}", summary, SPEEDS_GANG)

register(
    "scenario",
    "esdp-gang-v1",
    "gangwise.scenarios.esdp:ESDPGangScenario",
    "gangs of 2 to 6 tasks; utilities as in ESDP §4",
    SPEEDS_GANG,
)
register(
    "scenario",
    "esdp-gang-small-v1",
    "gangwise.scenarios.esdp:small_scenario",
    "the same with 5 job types and 8 servers, for exact answers",
    SPEEDS_GANG,
)

APPROXIMATION = "approximation_jobs"

register(
    "family",
    APPROXIMATION,
    "gangwise.approximation_jobs.environment:ApproximationFamily",
    "OPS and OPM: approximation jobs on machines of unknown rates",
)

AS_PRINTED: dict[str, Any] = {
    "estimator": "ucb",
    "objective": "average",
    "pacing": "even",
    "rounding": "fresh",
    "unit": "utility",
    "alpha": 0.1,
}

jobs_policies: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("ops", "ops:OPS", "Algorithm 1 with the constants of Theorem 2; serves one job at a time", {}),
    (
        "opm",
        "opm:OPM",
        "primal-dual shares: forgetting estimates, projected totals, re-paced budgets, coupled "
        "draws",
        {},
    ),
    (
        "opm-as-printed",
        "opm:OPM",
        "cumulative UCB, objective (9), fresh draws, constants of the experiments",
        AS_PRINTED,
    ),
    (
        "opm-without-estimation",
        "opm:OPM",
        "as printed, but every machine has the same rate",
        {**AS_PRINTED, "estimator": "constant"},
    ),
    (
        "plan",
        "plan:Plan",
        "receding-horizon water-filling: whole lifetimes planned anew in every slot",
        {},
    ),
    ("fair", "baselines:Fair", "the same share of the machines for every job", {}),
    ("deadline-aware", "baselines:DeadlineAware", "earliest deadline first", {}),
    (
        "utility-per-price",
        "baselines:UtilityPerPrice",
        "steepest job first on the best machine per price, budgets paced",
        {},
    ),
)
for name, target, summary, options in jobs_policies:
    register(
        "policy", name, f"gangwise.approximation_jobs.{target}", summary, APPROXIMATION, **options
    )

register(
    "scenario",
    "opm-default-v1",
    "gangwise.scenarios.opm:OPMScenario",
    "§VI of the OPM paper on synthetic jobs, heavily loaded",
    APPROXIMATION,
)

register(
    "scenario",
    "opm-theorem-v1",
    "gangwise.scenarios.opm:OPMTheoremScenario",
    "the setting of Theorem 2, Theorem 3 and Corollary 1; budgets are not enforced",
    APPROXIMATION,
)

# Of no family by name, since all other policies of it need machines that hold one task.
register(
    "policy",
    "opm-general",
    "gangwise.approximation_jobs.general:OPMGeneral",
    "OPM for machines that hold several tasks, OPS and OPM §V-C",
)
register(
    "scenario",
    "opm-google-v1",
    "gangwise.traces.slots.approximation_jobs:GoogleScenario",
    "jobs of Google ClusterData 2011 on 1000 machines; needs folder=",
    "approximation_jobs",
)

# Of no family by name either: it answers as esdp-as-printed does, at the cost that Fig. 5 shows.
register(
    "policy",
    "esdp-by-programme",
    "gangwise.reproduce.esdp:ESDPByProgramme",
    "esdp-as-printed solved by the paper's dynamic programme",
)

register(
    "scheduler",
    "gavel",
    "gangwise.jobs.gavel:Gavel",
    "heterogeneity-aware shares by a linear programme, in rounds (Gavel, OSDI 2020)",
    revision=2,
)
register(
    "scheduler",
    "las",
    "gangwise.jobs.las:LeastAttained",
    "two-dimensional least attained service, preemptive (Tiresias, NSDI 2019)",
)
register(
    "scheduler",
    "*",
    "gangwise.jobs.scheduler:composed",
    "any queue+backfilling+choice, such as fcfs+easy+best-fit or sjf+conservative+learned",
    revision=5,
)
register(
    "scenario",
    "replay",
    "gangwise.experiments.replay_scenario:ReplayScenario",
    "the jobs of a log, a twin or a drawn world, under schedulers; source=",
    "jobs",
)

comparators: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    (
        "best_fixed",
        GAIN,
        "gain_overhead.offline:best_fixed_in_run",
        "the best decision that never changes, all arrivals known",
        {},
    ),
    (
        "per_slot_optimum",
        GAIN,
        "gain_overhead.offline:per_slot_optimum_in_run",
        "the best feasible decision of every single slot",
        {},
    ),
    (
        "best_fixed",
        GANG,
        "gangs.offline:best_fixed_in_run",
        "the best placement that never changes, room held for all job types",
        {},
    ),
    (
        "per_slot_optimum",
        GANG,
        "gangs.offline:per_slot_optimum_in_run",
        "the best placement of every single slot",
        {},
    ),
    *(
        (name, family, "fluctuating_speeds.offline:omniscient_in_run", summary, options)
        for family in (SPEEDS, SPEEDS_GANG)
        for name, summary, options in (
            ("omniscient", "who knows the means of what policies have to learn", {}),
            (
                "omniscient_realised",
                "the same decisions, credited with what they brought",
                {"realised": True},
            ),
        )
    ),
    (
        "clairvoyant",
        SPEEDS,
        "fluctuating_speeds.offline:clairvoyant",
        "who knows every slot's utilities: an upper bound, in any world",
        {},
    ),
    *(
        (
            f"known_{known}",
            APPROXIMATION,
            "approximation_jobs.offline:offline_comparator",
            f"who knows all jobs and the {what}: an upper bound on its utility",
            {"known": known},
        )
        for known, what in (("means", "mean rate of each machine"), ("rates", "rates of all slots"))
    ),
)
for name, family, target, summary, options in comparators:
    register("comparator", name, f"gangwise.{target}", summary, family, **options)

register(
    "engine",
    "local",
    "gangwise.engines.local:LocalEngine",
    "processes of this machine as ranks on pretended nodes; folder=",
)
register(
    "engine",
    "slurm",
    "gangwise.engines.slurm:SlurmEngine",
    "a partition whose jobs are held until they are placed; partition=, reports=",
)
register(
    "engine",
    "kubernetes",
    "gangwise.engines.kubernetes:Kubernetes",
    "pods that name gangwise as their scheduler, bound whole; kubeconfig=, reports=",
)
