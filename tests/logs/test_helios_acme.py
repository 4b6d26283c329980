"""Logs of GPU datacenters, by rows of their descriptions."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import TraceError
from gangwise.logs import reader_of
from gangwise.logs.formats.tabular import reader
from gangwise.logs.jobs import open_jobs

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)
# The published example, a job of 16 GPUs that waited an hour, one of 9 GPUs on two nodes, one that
# was cancelled while it waited, and one that runs.
ROWS = [
    "1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,"
    "2020-06-10 04:55:09,36848,0",
    "2,uA,vcA,16,64,2,COMPLETED,2020-06-09 18:41:01,2020-06-09 19:41:01,2020-06-09 20:41:01,"
    "3600,3600",
    "3,uA,vcA,9,18,2,FAILED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:51:01,600,0",
    "4,uB,vcA,8,8,1,CANCELLED,2020-06-09 18:41:01,None,2020-06-09 18:51:01,0,600",
    "5,uB,vcA,8,8,1,RUNNING,2020-06-09 18:41:01,2020-06-09 18:41:01,,0,0",
    "6,uB,vcA,8,8,0,FAILED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:51:01,0,0",
]
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,"
    "start_time,end_time,fail_time,stop_time,duration,queue,gpu_time"
)
SEREN = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
    "queue,gpu_time"
)


def test_totals_over_nodes_become_tasks(tmp_path):
    (tmp_path / "cluster_log.csv").write_text("\n".join([HELIOS, *ROWS]) + "\n")
    (tmp_path / "cluster_gpu_number.csv").write_text(
        "date,vcJkd,vcA,total\n2020-06-09,8,12,20\n2020-06-10,8,9,17\n"
    )
    assert reader_of(tmp_path) is reader("helios")
    tables = reader("helios")(tmp_path, cores=48).scan()
    assert tables.jobs.select("name", "gpu", "cpu", "tasks", "started", "deleted").rows() == [
        ("1425511", 1, 1, 1, 0, 36848),
        ("2", 8, 32, 2, 3600, 7200),
        ("3", 1, 2, 9, 0, 600),
        ("4", 8, 8, 1, None, 600),
        ("5", 8, 8, 1, 0, 36848),
    ]
    assert tables.servers.select("model", "cpu", "gpu").rows() == [("gpu", 48, 8)] * 3
    stage = next(s for s in tables.stages if s.name == "cluster_log.csv")
    assert dict(stage.dropped) == {"the job is on no node": (1, 7)}
    said = "\n".join(tables.notes)
    assert "3 nodes of 8 GPUs" in said
    assert "1 jobs have GPUs that do not divide" in said
    log = open_jobs(tmp_path, cores=48)
    assert log.played.hours == pytest.approx((36848 + 16 * 3600 + 9 * 600 + 8 * 36848) / 3600)
    cancelled = log.jobs.id.tolist().index("4")
    assert log.jobs.withdrawn[cancelled] == 600  # in line until then
    assert np.isnan(log.jobs.recorded_start[cancelled])
    without = reader("helios")(tmp_path).scan()
    assert without.jobs["cpu"].sum() == without.servers["cpu"].sum() == 0
    assert "cores are not counted" in "\n".join(without.notes)


def test_acme_has_zones_and_its_duration_is_not_believed(tmp_path):
    """The published example of Kalos: ran for 8 s, queued 10 s, and 'duration' is 18."""
    kalos = tmp_path / "trace_kalos.csv"
    kalos.write_text(
        f"{KALOS}\ndlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,"
        "2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,"
        "2023-05-17 11:01:16+00:00,,18,10.0,1152.0\n"
    )
    assert reader_of(kalos) is reader("acme")
    [row] = (
        reader("acme")(kalos, cores=128)
        .scan()
        .jobs.select("gpu", "cpu", "mem", "tasks", "started", "deleted")
        .rows()
    )
    assert row == (8, 120, 1000, 8, 10, 18)
    assert open_jobs(kalos).jobs.run.tolist() == [8]
    seren = tmp_path / "trace_seren.csv"
    first = "2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00"
    later = "2023-02-28 16:18:23+00:00,2023-02-28 16:18:54+00:00,2023-02-28 16:20:51+00:00"
    seren.write_text(
        f"{SEREN}\n1,u1,1,8,128,Other,FAILED,{first},117,32,936.0\n"
        f"2,u1,1,8,128,Other,FAILED,{later},117,31,936.0\n"
    )
    assert reader("acme")(seren).scan().jobs["created"].to_list() == [0, 1]


def test_rows_that_cannot_be_right(tmp_path):
    file = tmp_path / "cluster_log.csv"
    bad = "7,u,v,1,1,1,FAILED,2020-06-09 18:41:01,2020-06-09 18:40:01,2020-06-09 18:41:01,1,1"
    file.write_text(f"{HELIOS}\n{bad}\n")
    with pytest.raises(TraceError, match="submit_time"):
        reader("helios")(file).scan()
    file.write_text(f"{HELIOS}\n{bad.replace('18:40:01', 'noon')}\n")
    with pytest.raises(TraceError, match="start_time"):
        reader("helios")(file).scan()
