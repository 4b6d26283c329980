"""The two newest traces of Alibaba, by rows of their descriptions."""

from __future__ import annotations

import pytest

from gangwise import TraceError
from gangwise.logs import reader_of
from gangwise.logs.formats.tabular import reader
from gangwise.logs.jobs import open_jobs

INSTANCES = """\
instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,\
memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,\
scheduled_time,deletion_time
instance_7185,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,,,
instance_13574,CN,app_130,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,1435629.0,1435640.0,1435760.0
instance_1,CN,app_130,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,1435700.0,,
instance_2,CN,app_130,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,1435700.0,1435600.0,1435760.0
"""
JOBS = """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
239255,13,A10,20,1,1,0,2764799,HP
437261,57,A100-SXM4-80GB,15,1,94,9589663,71718,Spot
5,57,A10,15,1,0,9589663,71718,Spot
"""
NODES = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,2\nA100-SXM4-80GB,8,128,3\n"


def test_instances_there_before_hold_devices_from_the_start(tmp_path):
    file = tmp_path / "disaggregated_DLRM_trace.csv"
    file.write_text(INSTANCES)
    assert reader_of(tmp_path) is reader("alibaba-gpu-v2025")
    tables = reader("alibaba-gpu-v2025")(file).scan()
    times = tables.jobs.select("name", "created", "started", "deleted", "unfinished").rows()
    assert times == [
        ("instance_7185", 0, 0, 1435760, True),
        ("instance_13574", 1435629, 1435640, 1435760, False),
        ("instance_1", 1435700, None, 1435760, True),
    ]
    assert dict(tables.stages[0].dropped) == {"scheduled_time is before creation_time": (1, 5)}
    dropped = reader("alibaba-gpu-v2025")(file, present="drop").scan()
    assert dropped.jobs["name"].to_list() == ["instance_13574", "instance_1"]
    with pytest.raises(TraceError, match="start, drop"):
        reader("alibaba-gpu-v2025")(file, present="keep")
    log = open_jobs(file)
    assert log.jobs.types == ("app_0", "app_130")
    assert log.played.lost["without a start"].jobs == 1


def test_workers_are_tasks_and_waits_are_not_known(tmp_path):
    (tmp_path / "job_info_df.csv").write_text(JOBS)
    (tmp_path / "node_info_df.csv").write_text(NODES)
    assert reader_of(tmp_path) is reader("alibaba-spot-2026")
    log = open_jobs(tmp_path)
    assert log.rows.select("name", "tasks", "gpu", "run").rows() == [("239255", 1, 1, 2764799)]
    assert log.played.lost["larger than the cluster"].jobs == 1  # 94 workers, on these two nodes
    assert log.played.lost["because the job has no worker"].jobs == 1
    assert "waits are not known" in log.played.line
    assert log.played.hours == pytest.approx((2764799 + 94 * 71718) / 3600)
    alone = reader("alibaba-spot-2026")(tmp_path / "job_info_df.csv").scan()
    assert len(alone.servers) == 2  # beside it
    (tmp_path / "node_info_df.csv").unlink()
    assert "node_info_df.csv is not here" in "\n".join(
        reader("alibaba-spot-2026")(tmp_path).scan().notes
    )
