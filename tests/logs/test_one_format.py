"""Every table of every format is recognised as this format, and as no other."""

from __future__ import annotations

import json

import pytest

from gangwise.core.registry import entries
from gangwise.logs.format import recognise

from . import test_accounting as accounting
from . import test_alibaba_2025_2026 as newest
from . import test_alibaba_gpu_v2020 as v2020
from . import test_alibaba_v2018 as v2018
from . import test_forms as forms
from . import test_google_2011_tasks as g2011
from . import test_google_2019 as g2019
from . import test_helios_acme as helios
from . import test_kubernetes as kubernetes
from . import test_own_csv as own
from . import test_philly as philly
from . import test_slurm as slurm
from . import test_swf as swf
from .csvs import NODE_HEADER, NODES, POD_HEADER, pod

JOB_EVENTS = [
    "0,,1,0,u,3,n,l",
    "700000000,,2,0,u,1,n,l",
    "700000000,2,2,1,u,1,n,l",
    "760000000,,2,4,u,1,n,l",
]
MINI_BATCH = [",worker,gpu,time,batch_time_norm", "0,0,25,1,500", "1,1,25,1,1000"]
TABLES = {
    "alibaba-gpu-v2020": {**v2020.TABLES, "simulator": v2020.SIMULATOR, "mini-batch": MINI_BATCH},
    "alibaba-gpu-v2023": {"nodes": [NODE_HEADER, *NODES], "pods": [POD_HEADER, pod(), pod("q")]},
    "acme": {
        "kalos": [
            helios.KALOS,
            "dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,"
            "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18,10.0,1152.0",
        ]
    },
    **{name: {"jobs": text.splitlines()} for name, (_, text, _) in forms.SCHEMAS.items()},
    "opendc": {"jobs": forms.OPENDC},
    "alibaba-gpu-v2025": {"instances": newest.INSTANCES.strip().split("\n")},
    "alibaba-spot-2026": {
        "jobs": newest.JOBS.strip().split("\n"),
        "nodes": newest.NODES.strip().split("\n"),
    },
    "helios": {"jobs": [helios.HELIOS, *helios.ROWS]},
    "kubernetes": {
        "pods": json.dumps({"kind": "List", "items": kubernetes.PODS}, indent=4).split("\n"),
        "nodes": json.dumps({"kind": "List", "items": kubernetes.NODES}, indent=4).split("\n"),
    },
    "alibaba-v2017": {
        "batch_task": [
            "100,160,1,1,2,Terminated,1,0.01",
            "120,200,1,2,1,Failed,1,0.01",
            "130,,1,3,1,Waiting,1,0.01",
        ],
        "server_event": ["0,1,add,,64,0.69,0.9", "0,2,add,,64,0.69,0.9", "50,1,softerror,disk,,,"],
    },
    "alibaba-v2018": {
        "machine_meta": v2018.MACHINES.split(),
        "container_meta": v2018.CONTAINERS.split(),
        "batch_task": [v2018.task(), v2018.task("R2_1"), v2018.task("task_abc=", job="j_2")],
        "batch_instance": v2018.ROWS["batch_instance"].split(),
    },
    "google-2011": {
        "task_events": g2011.ROWS,
        "job_events": JOB_EVENTS,
        "machine_events": [g2011.machine(0, 5, 0), g2011.machine(50, 5, 1, "", "")],
    },
    "google-2019": {
        "collection_events": [json.dumps(row) for row in g2019.COLLECTIONS],
        "instance_events": [json.dumps(row) for row in g2019.INSTANCES],
        "machine_events": [json.dumps(g2019.machine(0, 5, 1, cpus=0.5, memory=0.25))],
    },
    "philly": {"job_log": json.dumps(philly.JOBS, indent=4).split("\n")},
    "slurm-sacct": {"sacct": [slurm.HEADER, *slurm.ROWS]},
    "swf": {"jobs": ["; MaxProcs: 64", *(swf.line(job, job) for job in range(1, 4))]},
    "csv": {"mapping": own.MAPPING.split("\n")},
    **{name: {"log": text.split("\n")} for name, text in accounting.LOGS.items()},
}
EVERY = [(name, table) for name, tables in TABLES.items() for table in tables]


def test_every_registered_format_is_here():
    own_names = {name for name, entry in entries("trace").items() if entry.summary != "plug-in"}
    assert own_names == set(TABLES)


@pytest.mark.parametrize(("name", "table"), EVERY)
def test_a_table_by_any_name_is_of_one_format(tmp_path, name, table):
    ending = (
        ".toml"
        if name == "csv"
        else ".json"
        if name in ("google-2019", "kubernetes", "philly", "htcondor", "flux", "oar", "batsim")
        else ".csv"
    )
    file = tmp_path / f"x{ending}"
    file.write_text("\n".join(TABLES[name][table]) + "\n")
    readers = {known: entry.load() for known, entry in entries("trace").items()}
    assert [known for known, reader in readers.items() if reader.recognise(file)] == [name]
    forms = [form for r in readers.values() if (form := getattr(r, "FORMAT", None))]
    found = {form.name for form, _ in recognise(file, forms)}
    assert found <= {name}
