"""Slurm's settings: what is called played is played, and the page of them is the code's."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.slurm_settings import ENTRIES, page

from gangwise.sites.site import Site
from gangwise.sites.slurm_files import settings

DOCS = Path(__file__).parents[2] / "docs"
BASE = {
    "config": "ClusterName=lab PriorityType=priority/multifactor "
    "AccountingStorageEnforce=limits PreemptType=preempt/qos PreemptMode=REQUEUE "
    "SelectType=select/cons_tres SelectTypeParameters=CR_Core_Memory Licenses=x:2 "
    "TopologyPlugin=topology/tree",
    "SchedulerParameters": "",
    "PriorityFlags": "",
    "SelectTypeParameters": "CR_Core_Memory",
    "node": "NodeName=n[1-2] CPUs=8 RealMemory=8192 Gres=gpu:a100:2 Features=a",
    "node2": "NodeName=m1 Sockets=2 CoresPerSocket=4 Features=b",
    "nodeset": "NodeSet=s Feature=a",
    "switch": "SwitchName=top Switches=s0,s1",
    "switch2": "SwitchName=s0 Nodes=n[1-2]",
    "switch22": "SwitchName=s1 Nodes=m1",
    "partition": "PartitionName=p Nodes=s,m1",
    "qos": "Name=normal Priority=1 MaxTRESPU=cpu=4",
    "assoc": "Cluster=lab Account=acc User= Partition= ParentName=root Share=1",
    "assoc2": "Cluster=lab Account=acc User=ann Partition= ParentName= Share=1",
    "reservation": "ReservationName=k StartTime=2026-01-01T00:00:00 EndTime=2026-01-02T00:00:00 "
    "Nodes=n1 Flags=MAINT",
    "event": "Cluster=lab NodeName=n1 TimeStart=2026-01-01T00:00:00 TimeEnd=2026-01-02T00:00:00",
}
"""A site of entries in which every setting may count."""
OTHER = {
    "config": "AccountingStorageEnforce=none FairShareDampeningFactor=3 Licenses=x:3 "
    "PreemptExemptTime=00:05:00 PreemptMode=CANCEL PreemptParameters=youngest_first "
    "PreemptType=preempt/none PriorityCalcPeriod=60 PriorityDecayHalfLife=1-0 "
    "PriorityFavorSmall=YES PriorityFlags=NO_FAIR_TREE PriorityMaxAge=1-0 "
    "PriorityType=priority/basic PriorityUsageResetPeriod=MONTHLY "
    "PriorityWeightAge=1 PriorityWeightFairShare=1 PriorityWeightJobSize=1 "
    "PriorityWeightPartition=1 PriorityWeightQOS=1 PriorityWeightTRES=cpu=1 "
    "SchedulerParameters=bf_interval=60 SchedulerType=sched/builtin SelectType=select/linear "
    "SelectTypeParameters=CR_Core TopologyPlugin=topology/none",
    "PriorityFlags": "ACCRUE_ALWAYS INCR_ONLY NO_FAIR_TREE MAX_TRES SMALL_RELATIVE_TO_TIME "
    "NO_NORMAL_ALL NO_NORMAL_PART NO_NORMAL_QOS NO_NORMAL_TRES",
    "SchedulerParameters": "bf_interval=61 bf_max_job_test=61 bf_max_job_assoc=61 "
    "bf_max_job_part=61 bf_max_job_start=61 bf_max_job_user=61 bf_max_job_user_part=61 "
    "bf_min_age_reserve=61 bf_min_prio_reserve=61 partition_job_depth=61 bf_one_resv_per_job "
    "sched_max_job_start=61 default_queue_depth=61 bf_resolution=61 bf_window=61 "
    "preempt_reorder_count=3 preempt_strict_order preempt_youngest_first",
    "node": "NodeName=n1 CPUs=7 CPUTot=6 CPUEfctv=5 CoreSpecCount=1 CPUSpecList=0-1 "
    "MemSpecLimit=1024 RealMemory=4096 Gres=gpu:a100:1 Weight=7 AvailableFeatures=z Features=z",
    "node2": "Boards=2 SocketsPerBoard=3 Sockets=3 CoresPerSocket=7 ThreadsPerCore=2",
    "nodeset": "NodeSet=t Feature=b Nodes=m1",
    "switch": "Switches=s0",
    "switch2": "SwitchName=z Nodes=n1",
    "partition": "PartitionName=q Nodes=m1 MaxTime=60 MaxNodes=1 MinNodes=2 PriorityTier=2 "
    "PriorityJobFactor=2 QoS=normal TRESBillingWeights=cpu=2 PreemptMode=OFF "
    "ExclusiveUser=YES LLN=YES",
    "qos": "Name=other Priority=2 GrpTRES=cpu=1 GrpJobs=1 MaxTRES=cpu=1 MaxTRESPU=cpu=1 "
    "MaxJobsPU=1 MaxTRESPA=cpu=1 MaxJobsPA=1 MaxWall=60 UsageFactor=2 Preempt=normal "
    "GrpJobsAccrue=1 MaxJobsAccruePU=1 MaxJobsAccruePA=1 "
    "GrpTRESMins=cpu=1 GrpTRESRunMins=cpu=1 GrpWall=60 MaxTRESMins=cpu=1 "
    "PreemptMode=cancel PreemptExemptTime=00:05:00 Flags=OverPartQOS",
    "assoc": "Account=other ParentName=acc GrpTRES=cpu=1 GrpJobs=1 MaxJobs=1 MaxTRES=cpu=1 Share=2 "
    "GrpJobsAccrue=1 MaxJobsAccrue=1 "
    "GrpTRESMins=cpu=1 GrpTRESRunMins=cpu=1 GrpWall=60 MaxTRESMins=cpu=1 MaxWall=60",
    "assoc2": "Cluster=far User=bob Partition=p",
    "reservation": "ReservationName=l StartTime=2025-01-01T00:00:00 EndTime=2026-01-03T00:00:00 "
    "Nodes=n2 Flags=WEEKLY",
    "event": "NodeName=n2 TimeStart=2025-01-01T00:00:00 TimeEnd=2026-01-03T00:00:00",
}
"""Of each setting that is played, another value."""
NEEDS = {
    ("qos", "Flags"): {
        "partition": {"QoS": "part"},
        "qos2": {"Name": "part", "MaxTRESPU": "cpu=2"},
    },
    ("assoc2", "Partition"): {"assoc": {"MaxJobs": "1"}},
    ("node2", "Boards"): {"node2": {"SocketsPerBoard": "2"}},
    ("nodeset", "Nodes"): {"partition": {"Nodes": "s"}},
}
"""What else must be set for a setting to count."""


def pairs(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split())


def told(folder: Path, changes: dict[str, dict[str, str]]) -> str:
    """What a site of the base, with changes, comes to."""
    folder.mkdir()
    entries = {kind: pairs(BASE.get(kind, "")) for kind in {**BASE, **changes}}
    for kind, given in changes.items():
        entries[kind] |= given
    for kind in ("SchedulerParameters", "PriorityFlags", "SelectTypeParameters"):
        words = [f"{n}={v}" if v else n for n, v in entries.pop(kind).items()]
        if kind in changes or kind not in entries["config"]:
            entries["config"] |= {kind: ",".join(words)} if words else {}
    lines, tables = [], dict[str, list[dict[str, str]]]()
    for kind, values in entries.items():
        bare = kind.rstrip("2")
        if bare in ("qos", "assoc", "event"):
            tables.setdefault(bare, []).append(values)
        elif bare == "reservation":
            line = " ".join(f"{n}={v}" for n, v in values.items())
            (folder / "res.txt").write_text(line + "\n")
        elif bare == "config":
            lines += [f"{n}={v}" for n, v in values.items()]
        else:
            lines.append(" ".join(f"{n}={v}" for n, v in values.items()))
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    for kind, rows in tables.items():
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = ["|".join(columns), *("|".join(row.get(n, "") for n in columns) for row in rows)]
        (folder / f"{kind}.txt").write_text("\n".join(text) + "\n")
    site = Site.read(f"slurm:{folder}")
    noted = [note for note in site.notes if "of reservation" in note]
    nodes = [(node.name, node.devices, node.labels) for node in site.nodes]
    return repr((site.document(whole=True), nodes, site.ignored, site.scheduler, noted))


def played() -> list[tuple[str, str, str]]:
    return [(kind, name, value) for kind, of in OTHER.items() for name, value in pairs(of).items()]


def test_every_setting_that_is_called_played_is_tried():
    tried = {(kind.rstrip("2"), name) for kind, name, _ in played()}
    called = {
        (kind, name)
        for kind, of in settings().items()
        for name in of["modelled"]
        if kind != "SelectTypeParameters"
    }
    assert called == tried


@pytest.mark.parametrize(("kind", "name", "value"), played())
def test_a_setting_that_is_called_played_changes_what_is_played(kind, name, value, tmp_path):
    more = {k: dict(v) for k, v in NEEDS.get((kind, name), {}).items()}
    before = told(tmp_path / "before", more)
    more[kind] = {**more.get(kind, {}), name: value}
    assert told(tmp_path / "after", more) != before


def test_the_page_of_settings_is_that_of_the_code():
    assert ENTRIES.keys() == settings().keys()
    written = (DOCS / "slurm_settings.md").read_text(encoding="utf-8")
    assert written == page(), "run python docs/slurm_settings.py"
    for kind, of in settings().items():
        names = [*of["modelled"], *of["irrelevant"], *of["not_modelled"], *of["alias"]]
        assert len(names) == len({name.lower() for name in names}), kind
