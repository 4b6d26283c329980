"""Finding the files of a trace and telling its format."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from gangwise import ScenarioError, TraceError, UnknownName
from gangwise.logs import open_tables
from gangwise.logs.format import TraceFiles
from gangwise.logs.formats.google import Google2011
from gangwise.logs.formats.tabular import reader
from gangwise.logs.tables import save_tables
from gangwise.papers.scenarios.opening import open_trace

from .csvs import POD_HEADER, pod, write

AlibabaGpuV2020, AlibabaGpuV2023 = reader("alibaba-gpu-v2020"), reader("alibaba-gpu-v2023")
UNTIMED = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1000,1024,0,0\n"


def test_a_directory_or_either_file_will_do(tmp_path):
    write(tmp_path, [pod("a")])
    for path in (tmp_path, tmp_path / "nodes.csv", tmp_path / "pods.csv", str(tmp_path)):
        assert AlibabaGpuV2023.recognise(path)
        files = AlibabaGpuV2023(path).source.files
        assert [f.name for f in (*files("nodes"), *files("pods"))] == ["nodes.csv", "pods.csv"]
        assert open_trace(path).name == "trace-alibaba-gpu-v2023-v2"


def test_a_mapping_has_no_twin_to_complete_it(tmp_path):
    (tmp_path / "jobs.csv").write_text("id,cores,submit,run_s\na,4,100,60\n")
    (tmp_path / "mapping.toml").write_text(
        'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\n'
        'name = "id"\ncpu = "cores"\ncreated = "submit"\nduration = "run_s"\n'
    )
    with pytest.raises(UnknownName, match="'csv'"):
        open_trace(tmp_path / "mapping.toml", complete="servers")


def test_no_table_of_that_name(tmp_path):
    write(tmp_path, [pod("a")])
    with pytest.raises(UnknownName, match="'node'"):
        AlibabaGpuV2023(tmp_path).source.read("node")


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gain_overhead", {"alpha": (1, float("inf"))}),
        ("gain_overhead", {"scale": float("inf")}),
        ("fluctuating_speeds", {"contention": float("inf")}),
        ("approximation_jobs", {"hours": float("inf")}),
        ("approximation_jobs", {"value": (1, float("nan"))}),
    ],
)
def test_settings_are_finite(tmp_path, family, settings):
    write(tmp_path, [pod("a")])
    with pytest.raises(ScenarioError, match=rf"{next(iter(settings))}.*finite number"):
        open_trace(tmp_path, family=family, **settings)


def test_a_gzipped_file_is_found(tmp_path):
    write(tmp_path, [pod("a")])
    plain = tmp_path / "pods.csv"
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert open_trace(tmp_path).counts.sum() == 1


def test_of_several_pod_lists_the_default_one_else_the_one_with_times(tmp_path):
    write(tmp_path, [pod("a")])
    (tmp_path / "openb_pod_list_multigpu50.csv").write_text(UNTIMED)
    assert AlibabaGpuV2023(tmp_path).source.files("pods")[0].name == "pods.csv"
    (tmp_path / "more.csv").write_text(POD_HEADER + "\n" + pod("a") + "\n")
    with pytest.raises(TraceError, match="pods="):
        open_trace(tmp_path)
    assert open_trace(tmp_path, pods=tmp_path / "more.csv").counts.sum() == 1
    (tmp_path / "openb_pod_list_default.csv").write_text(POD_HEADER + "\n" + pod("a") + "\n")
    assert AlibabaGpuV2023(tmp_path).source.files("pods")[0].name == "openb_pod_list_default.csv"


def test_a_pod_list_without_times_is_refused_with_the_reason(tmp_path):
    write(tmp_path, [pod("a")])
    (tmp_path / "pods.csv").write_text(UNTIMED)
    with pytest.raises(TraceError, match="creation_time"):
        open_trace(tmp_path)


def test_a_misspelt_column_is_named_even_in_a_directory(tmp_path):
    file = write(tmp_path, [pod("a")]) / "pods.csv"
    file.write_text(file.read_text().replace("creation_time", "created_time"))
    with pytest.raises(TraceError, match="'creation_time'"):
        open_trace(tmp_path)


def test_missing_companions_are_named(tmp_path):
    write(tmp_path, [pod("a")])
    (tmp_path / "nodes.csv").unlink()
    with pytest.raises(TraceError, match="alibaba-gpu-v2023"):
        open_trace(tmp_path)
    with pytest.raises(TraceError, match="directory"):
        AlibabaGpuV2023()


def test_what_is_not_recognised_is_shown(tmp_path):
    with pytest.raises(TraceError, match="directory"):
        open_trace(tmp_path / "absent")
    with pytest.raises(TraceError, match="folder is empty"):
        open_trace(tmp_path)
    damaged = bytearray(gzip.compress(b"job,start,end\n" * 50))
    damaged[15] ^= 255
    (tmp_path / "damaged.csv.gz").write_bytes(damaged)
    with pytest.raises(TraceError, match="gzip file is damaged"):
        open_trace(tmp_path / "damaged.csv.gz")
    (tmp_path / "other.csv").write_text("job,start,end\n1,2,3\n")
    with pytest.raises(TraceError, match="gpu ="):
        open_trace(tmp_path / "other.csv")
    with pytest.raises(UnknownName, match="alibaba-gpu-v2023"):
        open_trace(tmp_path, trace="alibaba-gpu-2023")


def test_strict_reaches_the_reader(tmp_path):
    write(tmp_path, [pod("a"), pod("b", cpu="x")])
    assert open_trace(tmp_path).fidelity().stages[1].kept == 1
    with pytest.raises(TraceError, match="cpu_milli"):
        open_trace(tmp_path, strict=True)


def test_saved_tables_are_opened_as_the_published_files(tmp_path):
    source, saved = tmp_path / "published", tmp_path / "published" / "saved"
    source.mkdir()
    write(source, [pod("a"), pod("b", created=60), pod("c", cpu="x")])
    save_tables(open_tables(source), saved)
    assert open_trace(saved).fidelity().to_dict() == open_trace(source).fidelity().to_dict()
    with pytest.raises(UnknownName, match="'pods'"):
        open_tables(saved, pods="more.csv")
    log = tmp_path / "log.swf"
    log.write_text("; UnixStartTime: 9\n; TimeZone: 60\n" + " ".join(["1"] * 18) + "\n")
    save_tables(open_tables(log), saved)
    once, again = open_tables(log), open_tables(saved)
    assert again.jobs.equals(once.jobs)
    assert replace(again, jobs=once.jobs, servers=once.servers) == once
    assert again.clock.tz.utcoffset(None).seconds == 60


def test_pod_lists_with_and_without_times_are_told_apart(tmp_path):
    write(tmp_path, [pod("a")])
    for gpus in (20, 50):
        (tmp_path / f"openb_pod_list_multigpu{gpus}.csv").write_text(UNTIMED)
    source = TraceFiles(tmp_path, AlibabaGpuV2023.FORMAT)
    assert [f.name for f in source.files("pods")] == ["pods.csv"]
    found = [f.name for f in source.files("pods_without_times")]
    assert found == ["openb_pod_list_multigpu20.csv", "openb_pod_list_multigpu50.csv"]
    assert source.read("pods_without_times").frame["cpu_milli"].to_list() == [1000, 1000]
    assert open_trace(tmp_path).counts.sum() == 1


def test_of_several_formats_the_one_with_the_usual_name_or_the_header(tmp_path):
    """A list with a header is none of job events of google-2011, whose rows are as wide."""
    header = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user"
    rows = [header, "0,1,700000000,1,0,CPU,100,a", "0,1,700000060,1,0,CPU,100,a"]
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    assert AlibabaGpuV2020.recognise(tmp_path)
    assert not Google2011.recognise(tmp_path)
    (tmp_path / "pai_machine_spec.csv").write_text("a1,CPU,96,512,0\n")
    assert open_trace(tmp_path).name == "trace-alibaba-gpu-v2020-v2"
