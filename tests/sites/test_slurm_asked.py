"""What jobs ask Slurm for, from sacct's print to nodes, against what a real Slurm 22.05 did.

``slurm_asked/placed.txt`` is sacct's print of jobs of all kinds that a real Slurm ran one at a time
on four nodes of 8 cores and two of 16 with two GPUs each; ``CORES`` is how many cores of each
node each was given, by ``scontrol show job -d``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.registry import create
from gangwise.jobs.books import Books
from gangwise.jobs.model import terms_of
from gangwise.jobs.simulation import simulate_jobs
from gangwise.notation import expand_nodes
from gangwise.study.replay_scenario import ReplayScenario
from tests.reference.slurm_passes import Consecutive

HERE = Path(__file__).with_name("slurm_asked")
NODES = "a1", "a2", "a3", "a4", "b1", "b2"
CONF = """
NodeName=a[1-4] CPUs=8 RealMemory=16000
NodeName=b[1-2] CPUs=16 RealMemory=32000 Gres=gpu:v100:2
PartitionName=p Nodes=ALL Default=YES MaxTime=600
PartitionName=x Nodes=a[1-2] OverSubscribe=EXCLUSIVE MaxTime=600
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
"""
CORES = {
    "1": (0, 0, 0, 0, 10, 0),
    "2": (8, 8, 4, 0, 0, 0),
    "3": (8, 8, 8, 0, 0, 0),
    "4": (3, 1, 0, 0, 0, 0),
    "5": (2, 1, 0, 0, 0, 0),
    "6": (8, 4, 0, 0, 0, 0),
    "7": (4, 0, 0, 0, 0, 0),
    "8": (0, 0, 0, 0, 4, 0),
    "9": (0, 0, 0, 0, 16, 4),
    "10": (0, 0, 0, 0, 4, 0),
    "11": (4, 0, 0, 0, 0, 0),
    "12": (8, 8, 4, 0, 0, 0),
    "13": (4, 4, 4, 0, 0, 0),
    "14": (6, 6, 6, 6, 6, 0),
    "15": (0, 0, 0, 0, 2, 2),
    "16": (0, 0, 0, 0, 4, 0),
    "17": (0, 0, 0, 0, 16, 4),
    "18": (8, 8, 0, 0, 0, 0),
    "19": (0, 0, 0, 0, 16, 0),
    "20": (8, 0, 0, 0, 0, 0),
    "21": (8, 8, 0, 0, 0, 0),
    "22": (4, 2, 1, 1, 1, 1),
    "23": (2, 1, 1, 0, 0, 0),
    "24": (3, 1, 1, 1, 0, 0),
    "25": (1, 1, 1, 1, 1, 1),
    "26": (4, 0, 0, 0, 0, 0),
    "27": (1, 1, 1, 1, 0, 0),
    "28": (8, 8, 8, 8, 16, 8),
    "29": (5, 5, 5, 0, 0, 0),
    "30": (6, 6, 6, 3, 0, 0),
    "31": (8, 4, 0, 0, 0, 0),
    "32": (3, 0, 0, 0, 0, 0),
    "33": (2, 0, 0, 0, 0, 0),
    "34": (5, 1, 1, 1, 1, 0),
    "35": (0, 0, 0, 0, 9, 0),
    "36": (8, 8, 8, 8, 16, 0),
    "37": (8, 8, 8, 4, 1, 1),
    "38": (8, 8, 8, 6, 0, 0),
}
UNLIKE = {
    "9": "-w b1 of a job on two nodes: b1 need not be among them",
    "12": "memory of a node: in equal parts of a task, here 600 MiB",
    "17": "GPUs of a node, and tasks anywhere: equal parts on both nodes",
    "22": "--spread-job: on the same nodes, with other numbers of tasks",
    "31": "memory of a node and of tasks on two: equal parts on both",
}
"""Jobs that are played otherwise, as the notes of the log say."""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "slurm.conf").write_text(CONF)
    lines = (HERE / "placed.txt").read_text().splitlines()
    rows = [line.split("^") for line in lines[1:]]
    for i, row in enumerate(rows):  # an hour apart: each finds all nodes free
        row[7:11] = [f"2026-01-0{1 + i // 24}T{i % 24:02}:{m:02}:00" for m in (0, 0, 0, 1)]
    log = folder.with_name("jobs.txt")
    log.write_text("\n".join([lines[0], *("^".join(row) for row in rows)]) + "\n")
    scenario = ReplayScenario(source=str(log), site=f"slurm:{folder}")
    jobs, nodes, conditions = scenario.draw(0)
    scheduler = create("scheduler", scenario.site.scheduler)
    schedule = simulate_jobs(jobs, nodes, scheduler, conditions, scenario.options)
    return scenario, jobs, nodes, schedule


def test_every_job_is_on_the_nodes_and_cores_that_slurm_gave_it(played):
    scenario, jobs, nodes, schedule = played
    assert scenario.log.played.played == scenario.log.played.read == len(CORES)
    cpu, alone = nodes.devices.index("cpu"), nodes.devices.index("node")
    wrong = {}
    for j, name in enumerate(jobs.id):
        shape = jobs.shapes_on(nodes.devices)[jobs.shape[j]]
        cores = dict.fromkeys(NODES, 0)
        for n, tasks in schedule.placed(j):
            whole = shape.demand[alone] == nodes.capacity[n, alone]
            taken = nodes.capacity[n, cpu] if whole else tasks * shape.demand[cpu]
            cores[nodes.names[n]] += int(taken) // 1000
        if tuple(cores.values()) != CORES[str(name)]:
            wrong[str(name)] = tuple(cores.values())
    assert {name: cores for name, cores in wrong.items() if name not in UNLIKE} == {}
    assert np.isfinite(schedule.start).all()
    notes = "\n".join(scenario.log.played.notes)
    assert "1 jobs ask for --nodelist of fewer nodes" in notes
    assert [terms_of(text)["pools"] for text in jobs.terms if "pools" in text] == ["p|x"]


LEAVES = """
SwitchName=sA Nodes=n[01-04]
SwitchName=sB Nodes=n[05-07]
SwitchName=sC Nodes=n[08-12]
SwitchName=sD Nodes=n[13-14]
SwitchName=m1 Switches=sA,sB
SwitchName=m2 Switches=sC,sD
SwitchName=top Switches=m[1-2]
"""
OTHER_CORES = {"a40", "b39", "b45"}
"""Jobs that find cores taken which the model has on other nodes of a job of 2 to 4 nodes."""


@pytest.mark.parametrize(("play", "weight"), [("a", 1), ("b", 5)])
def test_jobs_are_on_the_leaf_switches_that_slurm_took(play, weight, tmp_path):
    """83 jobs that a real Slurm 22.05 started one after another, without and with weights.

    ``switched.txt`` has when each started and ended, in the order of all that happened.
    """
    site = tmp_path / "site"
    site.mkdir()
    (site / "topology.conf").write_text(LEAVES)
    (site / "config.txt").write_text(
        "Configuration data as of 2026-11-28T02:47:00\nSLURM_VERSION           = 22.05.8\n"
    )
    (site / "slurm.conf").write_text(
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nTopologyPlugin=topology/tree\n"
        f"NodeName=n[01-07,13-14] CPUs=4\nNodeName=n[08-12] CPUs=4 Weight={weight}\n"
        "PartitionName=p Nodes=ALL Default=YES MaxTime=600\n"
    )
    text = "JobID^Partition^State^Submit^Start^End^Timelimit^ReqTRES^AllocTRES^NNodes^NodeList"
    lines, taken = [text + "^SubmitLine"], {}
    for row in (HERE / "switched.txt").read_text().splitlines()[1:]:
        name, started, ended, *rest = row.split("^")
        begun, over = (
            f"2026-01-01T{int(t) // 60:02}:{int(t) % 60:02}:00" for t in (started, ended)
        )
        if name[0] == play:
            times = f"{begun}^{begun}^{over}"
            lines.append(f"{name[1:]}^p^COMPLETED^{times}^01:40:00^{'^'.join(rest)}")
            taken[name] = expand_nodes(rest[3])
    log = tmp_path / "jobs.txt"
    log.write_text("\n".join(lines) + "\n")
    scenario = ReplayScenario(source=str(log), site=f"slurm:{site}")
    jobs, nodes, conditions = scenario.draw(0)
    assert scenario.site.scheduler == "slurm:leaf_cores=False"
    scheduler = create("scheduler", scenario.site.scheduler)
    schedule = simulate_jobs(jobs, nodes, scheduler, conditions, scenario.options)
    assert np.array_equal(schedule.start, jobs.submit)
    found = {
        f"{play}{name}": sorted(nodes.names[n] for n, _ in schedule.placed(j))
        for j, name in enumerate(jobs.id)
    }
    assert found.keys() == taken.keys()
    wrong = {name for name, on in found.items() if on != sorted(taken[name])}
    assert wrong <= OTHER_CORES


UNLIKE_NODES = """
NodeName=c[1-4] CPUs=4 CoresPerSocket=4 RealMemory=8000
NodeName=f1 CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:t4:2
NodeName=t[1-2] CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000
PartitionName=p Nodes=c[1-4],f1 Default=YES MaxTime=600
PartitionName=x Nodes=c[1-2],f1 OverSubscribe=EXCLUSIVE MaxTime=600
PartitionName=t Nodes=t[1-2] MaxTime=600
SelectType=select/cons_tres
"""


@pytest.mark.parametrize(
    ("select", "partition", "asked", "given", "line", "cores"),
    [
        (
            "CR_Socket",
            "p",
            "cpu=10,node=1",
            "cpu=28,node=4",
            "-n 10 --ntasks-per-node=3",
            "4 4 4 4",
        ),
        ("CR_Socket", "p", "cpu=2,node=2", "cpu=12,node=2", "-N 2", "4 4"),
        ("CR_Core", "x", "cpu=8,node=1", "cpu=20,gres/gpu=2,node=2", "-n 8 -N 2", "4 4"),
        ("CR_Core", "x", "cpu=8,node=1", "cpu=8,node=2", "-n 8", "4 4"),
        ("CR_Core_Memory", "x", "cpu=1,mem=900M,node=1", "cpu=16,mem=14.0G,node=1", "-n 1", "4"),
        (
            "CR_CPU",
            "t",
            "cpu=14,node=1",
            "cpu=14,node=2",
            "-n 7 -c 2 --hint=nomultithread",
            "16 12",
        ),
        ("CR_CPU", "t", "cpu=14,node=1", "cpu=14,node=1", "-n 7 -c 2", "14"),
        ("CR_Core,CR_ONE_TASK_PER_CORE", "t", "cpu=6,node=1", "", "-n 6", "12"),
        ("CR_Core,CR_ONE_TASK_PER_CORE", "t", "cpu=12,node=1", "", "-n 3 -c 4", "12"),
        ("CR_Core", "t", "cpu=6,node=1", "", "-n 6", "6"),
        ("CR_Core_Memory", "p", "cpu=1,mem=62.5G,node=1", "cpu=1,mem=8000M,node=1", "-N 1", "4"),
        ("CR_Core", "p", "cpu=1,mem=62.5G,node=1", "cpu=1,node=1", "-N 1", "1"),
        ("CR_Core", "p", "cpu=6,mem=62.5G,node=1", "cpu=6,node=1", "-n 6", "6"),
    ],
)
def test_what_a_job_holds_of_unlike_nodes_is_what_slurm_gave_it(
    select, partition, asked, given, line, cores, tmp_path
):
    """As drawn sites 41, 49 and 17 show; of larger nodes in the log the job was given more."""
    (tmp_path / "site").mkdir()
    conf = f"{UNLIKE_NODES}SelectTypeParameters={select}\n"
    (tmp_path / "site/slurm.conf").write_text(conf)
    heading, row, *_ = (HERE / "placed.txt").read_text().splitlines()
    fields = dict(zip(heading.split("^"), row.split("^")))
    fields |= {"Partition": partition, "ReqTRES": asked, "AllocTRES": given}
    fields |= {"SubmitLine": f"sbatch {line} x.sh", "NNodes": (given or asked)[-1]}
    fields |= {"NodeList": "f1"} if given else {"NodeList": "None assigned", "State": "CANCELLED"}
    gpu = dict(fields, JobID="7", JobIDRaw="7", ReqTRES="cpu=1,gres/gpu=1,node=1")
    (tmp_path / "log.txt").write_text(
        "\n".join("^".join(each) for each in (fields, fields.values(), gpu.values()))
    )
    scenario = ReplayScenario(source=str(tmp_path / "log.txt"), site=f"slurm:{tmp_path}/site")
    jobs, nodes, _ = scenario.draw(0)
    shape, cpu = jobs.shapes_on(nodes.devices)[jobs.shape[0]], nodes.devices.index("cpu")
    job = replace(jobs.job(0), shape=shape)
    chosen = Consecutive().place(job, Books.opened(nodes), 0.0)
    assert chosen is not None
    whole = [d for d, kind in zip(shape.demand, nodes.devices) if kind == "node"] == [10**6]
    held = [nodes.capacity[n, cpu] if whole else tasks * shape.demand[cpu] for n, tasks in chosen]
    assert " ".join(f"{amount // 1000}" for amount in held) == cores
