"""Files of one's own, by a mapping."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gangwise import TraceError
from gangwise.cli import app
from gangwise.logs.formats.own_csv import OwnCsv
from gangwise.papers.scenarios.opening import open_trace
from gangwise.study.replay_scenario import ReplayScenario

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
            r"jobs.columns.cpus: there is no entry named 'cpus'; did you mean .*cpu",
        ),
        ("[servers]", "[server]", r"server: there is no entry named 'server'; did you mean"),
        ('file = "data/jobs.csv"', "", r"jobs.file: is missing"),
        ("duration", "deleted = 5\nwait = 1\nduration", "jobs.columns: give two of deleted, dur"),
        ('duration = "run_s"', "", "jobs.columns: give deleted or duration"),
        ("gpu = 0", 'gpu = { column = "x", value = 1 }', r"jobs.columns.gpu: give a column"),
        ("scale = ", "scales = ", r"jobs.columns.mem.scales: there is no entry named 'scales'"),
        ("scale = 0.0009765625", 'time = "%H", scale = 2.0', "has no scale"),
        ('separator = ";"', 'separator = ";;"', "jobs.separator: a separator is one character"),
        ('separator = ";"', "", r"which jobs.csv does not have.*Add separator = .*It has id;cores"),
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


def mapped(folder, mapping, text, name="jobs.csv"):
    (folder / name).write_text(text)
    file = folder / "mapping.toml"
    file.write_text(f'trace = "csv"\n[jobs]\nfile = "{name}"\n{mapping}')
    return OwnCsv(file)


SHORT = ["name", "cpu", "mem", "gpu", "created", "deleted"]


def test_whitespace_comments_no_header_and_empty_cells(tmp_path):
    reader = mapped(
        tmp_path,
        'separator = "whitespace"\ncomment = "#"\nheader = ["id", "cores", "t", "run", "what"]\n'
        '[jobs.columns]\nname = "id"\ncpu = "cores"\ncreated = "t"\nduration = "run"\n',
        "# made by hand\n  a  4   0  60 x\n\n#b 1 1 1 x\nc\t2 10 30   y\nd 2 10\n",
    )
    tables = reader.scan()
    assert tables.jobs.select("row", *SHORT).rows() == [
        (2, "a", 4, 0, 0, 0, 60),
        (5, "c", 2, 0, 0, 10, 40),
    ]
    assert dict(tables.stages[0].dropped) == {
        "the number of fields is not that of the columns": (1, 6)
    }
    reader = mapped(
        tmp_path,
        '[jobs.columns]\nname = "id"\ngpu = { column = "gpus", empty = 0 }\ncpu = "cores"\n'
        'user = { column = "who", empty = "nobody" }\ncreated = "t"\nduration = "run"\n',
        "id,gpus,cores,who,t,run\na,,1,,0,5\nb,2,1,ann,0,5\n",
    )
    assert reader.scan().jobs.select("gpu", "user").rows() == [(0, "nobody"), (2, "ann")]


def test_totals_of_a_job_units_and_clocks(tmp_path):
    reader = mapped(
        tmp_path,
        'per = "job"\n[jobs.columns]\nname = "id"\ntasks = "nodes"\n'
        'cpu = { column = "cpu", unit = "quantity" }\n'
        'mem = { column = "mem", unit = "quantity", per = "task" }\n'
        'gpu = "gpus"\ncreated = { column = "t", unit = "hours" }\n'
        'duration = { column = "run", unit = "clock" }\n',
        "id,nodes,cpu,mem,gpus,t,run\na,2,3000m,16Gi,8,1,1-00:00:00\nb,1,4,1G,0,2,01:30\n"
        "c,1,lots,1G,0,2,01:30\nd,1,1,1G,0,2,soon\n",
    )
    tables = reader.scan()
    assert tables.jobs.select("tasks", *SHORT).rows() == [
        (2, "a", 1.5, 16, 4, 0, 86400),
        (1, "b", 4, 1e9 / 2**30, 0, 3600, 3690),
    ]
    assert list(tables.stages[0].dropped) == [
        "column cpu does not look like one",
        "column run does not look like one",
    ]


def test_what_has_not_ended_lasts_until_the_last_time(tmp_path):
    columns = (
        '[jobs.columns]\nname = "id"\ncpu = "cpu"\ncreated = "t"\ndeleted = "end"\nstarted = "s"\n'
    )
    text = "id,cpu,t,s,end\na,1,0,5,10\nb,1,3,4,\nc,1,40,,\n"
    jobs = mapped(tmp_path, f'open_end = "last"\n{columns}', text).scan().jobs
    assert jobs.select("name", "started", "deleted", "unfinished").rows() == [
        ("a", 5, 10, False),
        ("b", 4, 40, True),
        ("c", None, 40, True),
    ]
    left = mapped(tmp_path, columns, text).scan()
    assert left.jobs["name"].to_list() == ["a"]
    assert list(left.stages[0].dropped) == ["column end is empty"]


def test_time_zones(tmp_path):
    """Between 2 and 3 o'clock on 31 March 2024 there is no time in Berlin."""
    columns = (
        '[jobs.columns]\nname = "id"\ncpu = "cpu"\nduration = "run"\n'
        'created = { column = "t", time = "%Y-%m-%d %H:%M", zone = "Europe/Berlin" }\n'
    )
    text = (
        "id,cpu,t,run\na,1,2024-03-31 01:30,60\nb,1,2024-03-31 03:30,60\nc,1,2024-03-31 02:30,60\n"
    )
    tables = mapped(tmp_path, columns, text).scan()
    assert tables.jobs.select("name", "created").rows() == [("a", 0), ("b", 3600)]
    assert tables.stages[1].dropped == {"created is not a time as in '%Y-%m-%d %H:%M'": (1, 4)}
    assert "times are of Europe/Berlin" in "\n".join(tables.notes)
    written = columns.replace(', zone = "Europe/Berlin"', "").replace("%H:%M", "%H:%M%z")
    text = "id,cpu,t,run\na,1,2024-03-31 01:30+0100,60\nb,1,2024-03-31 01:30+0000,60\n"
    assert mapped(tmp_path, written, text).scan().jobs["created"].to_list() == [0, 3600]


@pytest.mark.parametrize("form", ["json-lines", "json"])
def test_json(tmp_path, form):
    rows = [
        '{"id": "a", "req": {"cpu": 2, "mem": "1Gi"}, "t": 0, "run": 5}',
        '{"id": "b", "req": {"cpu": null, "mem": "1Gi"}, "t": 1, "run": 5}',
        '{"id": "c", "req": {"cpu": 1, "mem": "2Gi"}, "t": 1, "run": 5}',
    ]
    text = "\n".join(rows) if form == "json-lines" else f'{{"jobs": [{",".join(rows)}]}}'
    extra = "" if form == "json-lines" else 'records = "jobs"\n'
    reader = mapped(
        tmp_path,
        f'format = "{form}"\n{extra}[jobs.columns]\nname = "id"\ncpu = "req.cpu"\n'
        'mem = { column = "req.mem", unit = "quantity" }\ncreated = "t"\nduration = "run"\n',
        text + "\n",
        "jobs.json",
    )
    tables = reader.scan()
    assert tables.jobs.select("row", *SHORT).rows() == [
        (1, "a", 2, 1, 0, 0, 5),
        (3, "c", 1, 2, 0, 1, 6),
    ]
    assert dict(tables.stages[0].dropped) == {"column req.cpu is empty": (1, 2)}
    assert len(tables.digests["jobs.json"]) == 64


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ('cpu = { column = "c", unit = "furlongs" }', "unit is 'furlongs'; there are bytes"),
        ('cpu = { column = "c", unit = "clock", time = "%Y" }', "none for a time"),
        ('cpu = { column = "c", zone = "Europe/Berlin" }', "a zone is of a time"),
        ('created = { column = "c", time = "%Y", zone = "Mars" }', "'Mars' is no time zone"),
        ("cpu = { value = 3, empty = 0 }", "empty is for the cells of a column"),
        ('cpu = { column = "c", empty = "none" }', "cpu is a number"),
        ('user = { column = "c", per = "job" }', "user is no device"),
    ],
)
def test_entries_that_cannot_be(tmp_path, entry, why):
    key = entry.split(" ")[0]
    others = {"name": "id", "cpu": "cpu", "created": "t", "duration": "run"}
    lines = "".join(f'{name} = "{column}"\n' for name, column in others.items() if name != key)
    with pytest.raises(TraceError, match=why):
        mapped(tmp_path, f"[jobs.columns]\n{lines}{entry}\n", "id,cpu,t,run\na,1,0,5\n")


def test_entries_of_the_file_that_cannot_be(tmp_path):
    columns = '[jobs.columns]\nname = "id"\ncpu = "cpu"\ncreated = "t"\nduration = "run"\n'
    for entry, why in (
        ('format = "json"\nheader = ["id"]', "header lists the columns of a CSV file"),
        ('header = ["id", "id"]', "names a column twice"),
        ('records = "jobs"', "the key of the list"),
        ('separator = "ab"', "one character, or whitespace"),
    ):
        with pytest.raises(TraceError, match=why):
            mapped(tmp_path, f"{entry}\n{columns}", "id,cpu,t,run\na,1,0,5\n")


@pytest.mark.parametrize("form", ["csv", "quoted", "whitespace", "json-lines"])
@pytest.mark.parametrize("spoilt", [False, True])
def test_cells_that_say_that_they_are_empty(tmp_path, form, spoilt):
    """As the same file with empty cells; also where lines are taken apart one by one."""
    names = ["id", "cores", "submit", "end", "owner"]
    rows = [
        ["a", "2", "0", "90", "NA"],
        ["b", "NA", "10", "70", "NATO"],
        ["c", "4", "20", "-", "ann"],
        ["d", "many" if spoilt else "8", "30", "40", "bob"],
    ]

    def text(marked):
        cells = [[x if marked or x not in ("NA", "-") else "" for x in row] for row in rows]
        if form == "json-lines":
            return "".join(json.dumps(dict(zip(names, row))) + "\n" for row in cells)
        each = [[f'"{x}"' for x in row] for row in cells] if form == "quoted" else cells
        between = "  " if form == "whitespace" and marked else ","
        return "".join(between.join(row) + "\n" for row in [names, *each])

    mapping = (
        'trace = "csv"\n[jobs]\nfile = "data/jobs.csv"\nopen_end = "last"\nEXTRA\n[jobs.columns]\n'
        'name = "id"\ncreated = "submit"\ndeleted = "end"\nuser = "owner"\n'
        'cpu = { column = "cores", empty = 1 }\n'
    )
    kind = 'format = "json-lines"' if form == "json-lines" else ""
    plain = OwnCsv(write(tmp_path, mapping.replace("EXTRA", kind), text(marked=False))).scan()
    more = 'separator = "whitespace"' if form == "whitespace" else kind
    marks = f'missing = ["NA", "-"]\n{more}'
    marked = OwnCsv(write(tmp_path, mapping.replace("EXTRA", marks), text(marked=True))).scan()
    assert marked.jobs.rows() == plain.jobs.rows()
    assert marked.jobs["name"].to_list() == (["a", "b", "c"] if spoilt else ["a", "b", "c", "d"])
    assert marked.jobs["cpu"].to_list()[:3] == [2, 1, 4]
    assert marked.jobs["user"].to_list()[:3] == ["", "NATO", "ann"]
    assert marked.stages[0].dropped == plain.stages[0].dropped


def test_rows_of_one_gang_are_groups_of_one_job(tmp_path):
    """A head and its workers; rows without a gang stay jobs of their own."""
    (tmp_path / "m.toml").write_text(
        'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\nname = "id"\ncpu = "cores"\n'
        'gpu = "gpus"\ntasks = "n"\ncreated = "submit"\nstarted = "start"\nduration = "run"\n'
        'limit = "limit"\ngang = "gang"\n'
    )
    (tmp_path / "jobs.csv").write_text(
        "id,gang,n,cores,gpus,submit,start,run,limit\n"
        "head,ray,1,4,0,0,10,100,200\n"
        "work,ray,4,8,2,0,12,90,300\n"
        "solo,,2,1,0,5,6,50,60\n"
        "twin,,2,1,0,5,6,50,60\n"
    )
    jobs = ReplayScenario(source=str(tmp_path / "m.toml")).jobs
    assert jobs.id.tolist() == ["ray", "solo", "twin"]
    assert jobs.sizes.tolist() == [5, 2, 2]
    (shape,) = [s for s in jobs.shapes if s.groups]
    cpu, gpu = (jobs.devices.index(k) for k in ("cpu", "gpu"))
    asked = {(n, s.demand[cpu], s.demand[gpu]) for n, s in shape.groups}
    assert asked == {(1, 4000, 0), (4, 8000, 2000)}
    # It starts when the last group has, ends with the last, and has the longest limit.
    assert (jobs.recorded_start[0], jobs.recorded_end[0], jobs.limit[0]) == (12, 110, 300)


def test_jobs_start_at_the_end_less_the_duration(tmp_path):
    """Seconds may be rounded: a start a little before submission is one at it."""
    (tmp_path / "jobs.csv").write_text(
        "id,cpu,t,end,run\na,1,0,100,40\nb,1,10,50,41\nc,1,9,99,999\n"
    )
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(
        'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\n'
        'name = "id"\ncpu = "cpu"\ncreated = "t"\ndeleted = "end"\nduration = "run"\n'
    )
    tables = OwnCsv(mapping).scan()
    assert tables.jobs.select("name", "created", "started", "deleted").rows() == [
        ("a", 0, 60, 100),
        ("b", 10, 10, 50),
    ]
    assert "duration is longer than from created to deleted" in tables.stages[-1].dropped
