"""Files of one's own, by a mapping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gangwise import TraceError
from gangwise.cli import app
from gangwise.traces.formats.own_csv import OwnCsv
from gangwise.traces.slots.opening import open_trace

MAPPING = """
trace = "csv"
[jobs]
file = "data/jobs.csv"
separator = ";"
[jobs.columns]
name = "id"
cpu = "cores"
mem = { column = "ram_mb", scale = 0.0009765625 }
gpu = 0
created = { column = "submit", time = "%Y-%m-%d %H:%M:%S" }
duration = "run_s"
tasks = "nodes"
status = "state"
[servers]
file = "servers.csv"
[servers.columns]
name = "host"
cpu = "cores"
mem = { value = 64 }
"""
JOBS = """id;cores;ram_mb;submit;run_s;nodes;state;comment
a;4;2048;2024-01-01 00:01:00;60;1;ok;"semi;colon"
b;8.5;1024;2024-01-01 00:00:00;7200;2;;
c;1;512;2024-01-02 00:00:00;0;1;bad;
"""
TABLE = [
    (2, "a", 4, 2, 0, "", 60, 120, 1, "ok"),
    (3, "b", 8.5, 1, 0, "", 0, 7200, 2, ""),
    (4, "c", 1, 0.5, 0, "", 86400, 86400, 1, "bad"),
]


def write(folder, mapping=MAPPING, jobs=JOBS, servers="host,cores\nx,16\ny,32\n"):
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "jobs.csv").write_text(jobs)
    (folder / "servers.csv").write_text(servers)
    (folder / "mapping.toml").write_text(mapping)
    return folder / "mapping.toml"


def test_tables_by_hand(tmp_path):
    path = write(tmp_path)
    assert OwnCsv.recognise(path)
    assert not OwnCsv.recognise(tmp_path)
    tables = OwnCsv(path).scan()
    assert tables.jobs.columns == [
        "row",
        "name",
        "cpu",
        "mem",
        "gpu",
        "models",
        "created",
        "deleted",
        "tasks",
        "status",
    ]
    assert tables.jobs.rows() == TABLE
    assert tables.servers.rows() == [(2, "x", "", 16, 64, 0), (3, "y", "", 32, 64, 0)]
    assert tables.notes == ("servers have no gpu in the mapping; it is 0",)
    assert set(tables.digests) == {"jobs.csv", "servers.csv"}


def test_every_kind_of_column(tmp_path):
    mapping = """
    trace = "csv"
    [jobs]
    file = "jobs.csv"
    [jobs.columns]
    name = "id"
    gpu = { column = "milli", scale = 0.001 }
    created = { column = "ms", scale = 0.001 }
    deleted = { column = "done", scale = 0.001 }
    started = { column = "begun", scale = 0.001 }
    models = "kinds"
    job = "of"
    user = { value = "me" }
    [servers]
    file = "servers.csv"
    [servers.columns]
    name = "host"
    gpu = "gpus"
    model = "kind"
    """
    path = write(tmp_path, mapping, servers="host,gpus,kind\nx,4,T4\ny,0,\n")
    (tmp_path / "jobs.csv").write_text(
        "id,milli,ms,done,begun,kinds,of\n"
        "a,1500,5000,9000,,V100| T4|T4,j1\n"
        "b,500,7000,8000,7500,,j1\n"
    )
    tables = OwnCsv(path).scan()
    names = ["name", "cpu", "gpu", "models", "created", "deleted", "job", "started", "user"]
    assert tables.jobs.select(names).rows() == [
        ("a", 0, 1.5, "T4|V100", 0, 4, "j1", None, "me"),
        ("b", 0, 0.5, "", 2, 3, "j1", 2.5, "me"),
    ]
    assert tables.servers.rows() == [(2, "x", "T4", 0, 0, 4), (3, "y", "", 0, 0, 0)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"cores"\nmem',
            '"core"\nmem',
            r"jobs.columns.cpu is the column 'core', which jobs.csv "
            r"does not have; did you mean 'cores'\? It has id, cores, ram_mb",
        ),
        (
            'cpu = "cores"\nmem',
            'cpus = "cores"\nmem',
            r"jobs.columns.cpus: there is no such entry; did you mean cpu\? There are name, "
            r"created",
        ),
        ("[servers]", "[server]", r"server: there is no such entry; did you mean servers\?"),
        ('file = "data/jobs.csv"', "", r"jobs.file: Field required"),
        ("duration", "deleted = 5\nduration", r"jobs.columns: give deleted or duration, one of"),
        ('duration = "run_s"', "", r"jobs.columns: give deleted or duration, one of the two"),
        ("gpu = 0", 'gpu = { column = "x", value = 1 }', r"jobs.columns.gpu: give a column"),
        ("scale = ", "scales = ", r"jobs.columns.mem.scales: there is no such entry; did you mean"),
        ("scale = 0.0009765625", 'time = "%H", scale = 2.0', "has no scale"),
        ('separator = ";"', 'separator = ";;"', "jobs.separator: a separator is one character"),
        ('separator = ";"', "", r"which jobs.csv does not have\. It has id;cores"),
        ('trace = "csv"', 'trace = "tsv"', "a mapping has trace = \"csv\", not 'tsv'"),
        ("[jobs]", "[jobs", "the mapping cannot be read"),
        ("data/jobs.csv", "data/nobody.csv", "jobs.file is 'data/nobody.csv': there is no such"),
        ('tasks = "nodes"', 'tasks = "id"', "the column 'id' is text in one place"),
        ("gpu = 0", "gpu = -1", r"jobs.columns: gpu is -1.0; it must be a number, zero or larger"),
        ("gpu = 0", "gpu = nan", r"jobs.columns: gpu is nan; it must be a number"),
        ("gpu = 0", "gpu = { value = 'two' }", r"jobs.columns: gpu is 'two'; it must be a number"),
        ("gpu = 0", "gpu = true", "jobs.columns.gpu: give a column, a number or a table, not"),
        ("scale = 0.0009765625", "scale = -1", r"mem: scale is -1.0; it must be a positive number"),
        ('"run_s"', '{ column = "run_s", time = "%H" }', "duration is no point in time"),
        ('duration = "run_s"', 'deleted = "run_s"', r"created is written out .* and deleted is a"),
        ("%Y-%m-%d %H:%M:%S", "%S", r"jobs.columns.created: '%S' is no way to write a time"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_named(tmp_path, old, new, message):
    assert old in MAPPING
    with pytest.raises(TraceError, match=message):
        OwnCsv(write(tmp_path, MAPPING.replace(old, new, 1))).scan()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("d;four;1;2024-01-01 00:00:00;1;1;;", "cores is not a number"),
        ("d;4;1;2024-01-01T00:00:00;1;1;;", "created is not a time as in '%Y-%m-%d %H:%M:%S'"),
        ("d;4;1;2024-02-30 00:00:00;1;1;;", "created is not a time as in '%Y-%m-%d %H:%M:%S'"),
        ("d;4;1;2024-01-01 00:00:00;-1;1;;", "run_s is negative"),
        ("d;4;1;2024-01-01 00:00:00;1;0;;", "tasks is not a whole number of at least 1"),
        ("d;4;1;2024-01-01 00:00:00;1;1.5;;", "tasks is not a whole number of at least 1"),
        ("d;4;1;2024-01-01 00:00:00;1;1", "the number of fields"),
        (";4;1;2024-01-01 00:00:00;1;1;;", "id is empty"),
    ],
)
def test_bad_rows_are_counted_and_named(tmp_path, row, reason):
    path = write(tmp_path, jobs=f"{JOBS}{row}\n")
    tables = OwnCsv(path).scan()
    assert tables.jobs.rows() == TABLE
    hits = [item for stage in tables.stages for item in stage.dropped.items() if reason in item[0]]
    assert [tuple(found) for _, found in hits] == [(1, 5)]
    with pytest.raises(TraceError, match="row 5: ") as error:
        OwnCsv(path, strict=True).scan()
    assert reason in str(error.value)


@pytest.mark.parametrize("name", ["row", "reason", "broken", "fault", "part", "name", "cpu"])
@pytest.mark.parametrize("bad", ["", "bad;4;1;2024-01-01 00:00:00;many;1;;\n"])
def test_columns_may_be_called_as_the_reader_calls_its_own(tmp_path, name, bad):
    mapping = MAPPING.replace('cpu = "cores"\nmem = {', f'cpu = "{name}"\nmem = {{')
    jobs, servers = (JOBS + bad).replace("cores", name), f"host,{name}\nx,16\ny,32\n"
    tables = OwnCsv(write(tmp_path, mapping, jobs, servers)).scan()
    assert tables.jobs.rows() == TABLE
    assert sum(len(stage.dropped) for stage in tables.stages) == bool(bad)


def test_without_servers_there_are_none(tmp_path):
    report = OwnCsv(write(tmp_path, MAPPING[: MAPPING.index("[servers]")])).fidelity()
    assert (report.servers, report.jobs) == (0, 3)


def test_it_plays_from_python_and_the_command_line(tmp_path):
    path = write(tmp_path)
    assert open_trace(path, slot="10m").instance(seed=0).problem.cluster.devices == ("cpu", "mem")
    out = CliRunner().invoke(
        app,
        [
            "compare",
            str(path),
            "--policies",
            "drf",
            "--seeds",
            "1",
            "--slots",
            "20",
            "--comparators",
            "none",
            "--set",
            "slot=1h",
            "--out",
            str(tmp_path / "out"),
        ],
    )
    assert out.exit_code == 0, out.output
    assert (tmp_path / "out").is_dir()


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**6)),
        min_size=1,
        max_size=12,
    )
)
def test_numbers_read_back(tmp_path_factory, rows):
    lines = [f"j{i},{milli / 1000:.3f},{at},{length}" for i, (milli, at, length) in enumerate(rows)]
    folder = tmp_path_factory.mktemp("own")
    (folder / "jobs.csv").write_text("\n".join(["id,cores,at,length", *lines]) + "\n")
    (folder / "m.toml").write_text(
        'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\nname = "id"\n'
        'cpu = { column = "cores", scale = 1000 }\ncreated = "at"\nduration = "length"\n'
    )
    jobs = OwnCsv(folder / "m.toml").scan().jobs
    first = min(at for _, at, _ in rows)
    assert jobs["cpu"].to_list() == pytest.approx([milli for milli, _, _ in rows])
    assert jobs["created"].to_list() == [at - first for _, at, _ in rows]
    assert jobs["deleted"].to_list() == [at + length - first for _, at, length in rows]
