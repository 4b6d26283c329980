"""Tiny traces written by hand."""

from __future__ import annotations

from pathlib import Path

NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)
# Cores, GiB, GPUs: big 32/64/8 A; small 8/16/2 B; plain 16/32/none.
NODES = ["big,32000,65536,8,A", "small,8000,16384,2,B", "plain,16000,32768,0,"]


def pod(name="p", cpu=4000, mem=8192, gpus=0, milli=0, spec="", created=0, deleted=9999) -> str:
    return f"{name},{cpu},{mem},{gpus},{milli},{spec},LS,Running,{created},{deleted},{created}"


def write(folder: Path, pods: list[str], nodes: list[str] = NODES) -> Path:
    (folder / "nodes.csv").write_text("\n".join([NODE_HEADER, *nodes]) + "\n")
    (folder / "pods.csv").write_text("\n".join([POD_HEADER, *pods]) + "\n")
    return folder
