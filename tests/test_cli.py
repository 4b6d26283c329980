"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import polars as pl
import pytest
from typer.testing import CliRunner

from gangwise.cli import app, main
from gangwise.study.runs import named_source

SMALL = "ogasched-default-v1:servers=16,job_types=4"


def gangwise(*arguments, code=0, **options):
    done = subprocess.run(
        [sys.executable, "-m", "gangwise", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def inside(*arguments):
    """As :func:`gangwise`, in this process."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done


def test_help_and_version():
    assert "compare" in gangwise("--help").stdout
    assert gangwise("--version").stdout.strip().count(".") == 2


def test_list():
    listed = json.loads(inside("list", "--json").stdout)
    assert "ogasched-react" in {row["name"] for row in listed["policies"]}
    assert "ogasched-authors-v1" in {row["name"] for row in listed["scenarios"]}
    assert "alibaba-gpu-v2023" in {row["name"] for row in listed["traces"]}
    assert "gavel" in {row["name"] for row in listed["schedulers"]}
    assert "drf" in inside("list").stdout


def test_compare_prints_one_json_object_and_nothing_else():
    done = gangwise(
        "compare",
        SMALL,
        "--policies",
        "ogasched-react:steps=2,fraction=0.2,drf",
        "--slots",
        20,
        "--seeds",
        "4,6",
        "--json",
    )
    printed = json.loads(done.stdout)
    names = [policy["name"] for policy in printed["policies"]]
    assert names == ["ogasched-react:steps=2,fraction=0.2", "drf"]
    assert printed["seeds"] == [4, 6]


@pytest.mark.full
def test_compare_writes_its_results(tmp_path):
    out = tmp_path / "results"
    done = inside(
        "compare", SMALL, "--policies", "drf,fairness", "--slots", 30, "--seeds", 2, "--out", out
    )
    assert "fairness" in done.stdout
    assert "report.html" in done.stderr
    assert (out / "report.html").stat().st_size > 10_000
    assert pl.read_parquet(out / "rewards.parquet").height == 2 * 2 * 30
    extended = inside(
        "compare",
        SMALL,
        "--policies",
        "drf,fairness,greedy",
        "--slots",
        30,
        "--seeds",
        3,
        "--out",
        out,
        "--resume",
        "--json",
    )
    assert json.loads(extended.stdout)["seeds"] == [0, 1, 2]
    assert len(list((out / "runs").iterdir())) == 3 * (3 + 2)
    again = ["compare", SMALL, "--slots", "31", "--out", str(out), "--resume"]
    refused = CliRunner().invoke(app, again).exception
    assert "slots was 30 and is now 31" in str(refused)


def test_run(tmp_path):
    out = tmp_path / "rows.csv"
    done = inside(
        "run",
        SMALL,
        "greedy",
        "--slots",
        12,
        "--seed",
        3,
        "--out",
        out,
        "--versus",
        "best_fixed",
        "--json",
    )
    summary = json.loads(done.stdout)
    assert summary["slots"] == 12
    frame = pl.read_csv(out)
    assert frame["reward"].mean() == pytest.approx(summary["mean_reward"])
    assert "best_fixed" in summary["regret"]
    before = out.stat().st_ino, out.read_bytes()
    again = ["run", SMALL, "greedy", "--slots", "9", "--out", str(out), "--resume"]
    assert "is finished" in str(CliRunner().invoke(app, again).exception)
    assert (out.stat().st_ino, out.read_bytes()) == before


@pytest.mark.full
def test_a_run_into_a_folder_is_a_folder_of_results(tmp_path):
    done = gangwise("run", SMALL, "drf", "--slots", 12, "--out", tmp_path / "out", "--json")
    gangwise("report", tmp_path / "out")
    alone = gangwise("run", SMALL, "drf", "--slots", 12, "--json")
    told, plain = (json.loads(each.stdout) for each in (done, alone))
    assert told.pop("us_per_slot") > 0
    assert told == {key: value for key, value in plain.items() if key != "us_per_slot"}


def test_a_log_gets_lines_of_progress(tmp_path, monkeypatch):
    monkeypatch.setattr("gangwise.cli.options.MINUTE", 0.0)
    file = tmp_path / "small.toml"
    file.write_text(
        f'name = "small"\nscenario = "{SMALL}"\nslots = 5\nseeds = 3\npolicies = ["drf"]\n'
    )
    done = CliRunner().invoke(app, ["sweep", str(file), "--out", str(tmp_path), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stderr.splitlines() if line.startswith("small: ")]
    assert lines[:2] == ["small: 0 of 3", "small: 1 of 3"]
    assert re.fullmatch(r"small: 2 of 3, 0:\d\d:\d\d left", lines[2])
    assert lines[3] == "small: 3 of 3"


def test_labels_are_no_markup(tmp_path):
    file = tmp_path / "labels.toml"
    file.write_text(
        f'name = "labels"\nscenario = "{SMALL}"\nslots = 5\nseeds = 2\npolicies = ['
        '{ name = "drf", label = "[/foo]" }, { name = "fairness", label = "[bold]x" }]\n'
    )
    for over in ("[/foo]", "[bold]x"):
        arguments = ["sweep", str(file), "--out", str(tmp_path / "o"), "--jobs", "1"]
        done = CliRunner().invoke(app, [*arguments, "--over", over])
        assert done.exit_code == 0, done.output
        assert f"The lead over {over} is paired by seed" in " ".join(done.stdout.split())
        assert done.stdout.count("[/foo]") >= 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "ogasched-defalt-v1"], "did you mean ogasched-default-v1"),
        (["compare", SMALL, "--policies", "dfr"], "did you mean drf"),
        (["compare", SMALL, "--policies", "drf:x=1"], "argument of policy 'drf'"),
        (["compare", SMALL, "--seeds", "few"], "--seeds"),
        (["compare", SMALL, "--slots", "0"], "nothing to run"),
        (["compare", SMALL + ",contention=-1"], "contention"),
        (["compare", SMALL, "--set", "rho=2"], "rho"),
        (["compare", "no/such/folder"], "no/such/folder"),
        (["compare", "none.toml"], "none.toml"),
        (["compare", SMALL, "--set", "rho"], "--set rho: write KEY=VALUE"),
        (["compare", SMALL, "--optimum-slots", "0"], "at least one slot"),
        (["compare", SMALL, "--policies", "gang-drf,drf"], "gain_overhead_gang"),
        (["compare", SMALL, "--policies", "drf", "--out", "/proc/none"], "cannot lock /proc/none"),
        (["compare", SMALL, "--jobs", "0"], "--jobs is how many workers"),
        (["compare", SMALL, "--policies", "drf", "--resume"], "give --out too"),
        (["run", SMALL, "gang-drf"], "gain_overhead_gang"),
        (["run", SMALL, "drf", "--out", "rows.xls"], ".parquet or .csv"),
        (["run", SMALL, "drf", "--slots", "5", "--versus", "best"], "comparator"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gangwise", *arguments])
    monkeypatch.setattr("gangwise.cli.stop_at_once", lambda: None)  # signals are those of pytest
    with pytest.raises(SystemExit, match="2"):
        main()
    out, errors = capsys.readouterr()
    assert message in errors
    assert "Traceback" not in errors
    assert out == ""


@pytest.fixture
def log(tmp_path):
    """An SWF log of three jobs on four processors."""
    rows = [[i + 1, 60 * i, -1, 30, 2, -1, -1, 2, 60, -1, 1, 1, 1, *[-1] * 5] for i in range(3)]
    (tmp_path / "log.swf").write_text(
        "; MaxProcs: 4\n" + "".join(" ".join(map(str, row)) + "\n" for row in rows)
    )
    (tmp_path / "empty.swf").touch()
    (tmp_path / "nothing").mkdir()
    (tmp_path / "data.csv").write_text("id,submit\n1,0\n")
    (tmp_path / "stub.swf.gz").write_bytes(b"\x1f\x8b\x08\x08\xc6")
    for folder, name in (("replayed", "replay"), ("compared", "comparison")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.plan.json").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("command", "values"),
    [
        ("what-if log.swf --change nodes.all=+8", ["nodes.all+=8", "nodes.all=8"]),
        ("replay log.swf --load 80", ["80", "0.8"]),
        ("replay log.swf --load 0", ["load=0"]),
        ("replay log.swf --load nan", ["load: must be", "not nan"]),
        ("replay log.swf --set nodes=-4", ["nodes: must be", "not -4"]),
        ("replay log.swf --policies ,", ["','", "fcfs+easy"]),
        ("replay log.swf --as slurm:nodir", ["nodir is not a folder"]),
        ("replay log.swf --set nodes=4 --set nodes=5", ["--set nodes", "twice"]),
        ("replay log.swf --site data.csv", ["data.csv", "no TOML file"]),
        ("replay log.swf --policies rule.py", ["rule.py:MyRule"]),
        ("check rule.py", ["rule.py:MyRule"]),
        ("what-if log.swf --change load*=0", ["load*=0", "no job would come"]),
        ("audit log.swf --queues data.csv", ["data.csv", "kubectl get queues"]),
        ("trace convert log.swf log.swf", ["log.swf is the trace itself"]),
        ("trace convert log.swf log.xls", ["log.xls", "folder"]),
        ("new scheduler class", ["'class'", "LongestWait"]),
        ("explain nothing --job 7", ["nothing", "--out"]),
        ("serve --state empty.swf", ["empty.swf is no folder"]),
        ("serve --state new --act --shadow", ["--act", "--shadow"]),
        ("serve --state new --scheduler fcsf", ["fcsf", "fcfs"]),
        ("serve --state new --http 99999", ["99999", "65535"]),
        ("replay log.swf --out empty.swf/x", ["empty.swf is no folder"]),
        ("replay log.swf --as slurm:", ["slurm:", "after the colon"]),
        ("replay log.swf --site slurm:", ["slurm:", "after the colon"]),
        ("replay https://a.example/x.swf", ["download"]),
        ("report nothing --format docx", ["--format': 'docx' is not one of"]),
        ("what-if log.swf --change nodes.all+=1 --price cpu=-2", ["cpu=-2", "from 0 on"]),
        ("audit log.swf --price cpu=nan", ["cpu=nan", "from 0 on"]),
        ("jobs nothing", ["nothing: the folder is empty"]),
        ("jobs stub.swf.gz", ["gzip", "cut short"]),
        ("replay log.swf --set nodes=0", ["nodes=0"]),
        ("replay log.swf --as sjf+", ["sjf+", "missing"]),
        ("replay log.swf --policies EASY", ["EASY", "easy"]),
        ("replay log.swf --load 80%", ["--load", "number"]),
        ("replay log.sfw", ["log.sfw", "log.swf"]),
        ("replay ogasched-react", ["gangwise compare"]),
        ("replay fcfs+easy", ["--policies"]),
        ("replay log.swf --out compared", ["compared", "comparison", "--out"]),
        ("what-if log.swf --change nodes.all+=1 --out compared", ["compared", "--out"]),
        (f"compare {SMALL} --out replayed", ["replayed", "replay", "--out"]),
        (f"run {SMALL} greedy --out replayed", ["replayed", "replay", "--out"]),
        ("serve --state compared", ["compared", "--state"]),
        ("replay log.swf --policies ogasched", ["ogasched", "gangwise compare"]),
        (f"compare {SMALL} --policies fcfs+easy", ["fcfs+easy", "gangwise replay"]),
        ("replay empty.swf", ["empty.swf", "empty"]),
        ("replay log.swf --out empty.swf", ["empty.swf", "no folder"]),
        ("forecast log.swf --at 2026-01-31", ["2026-01-31", "12d6h30m"]),
        ("forecast log.swf --at yesterday", ["yesterday", "2026-01-31"]),
        ("serve --engine slurm --state new", ["scontrol"]),
    ],
)
def test_slips_are_refused_with_what_was_meant(command, values, log, monkeypatch, capsys):
    monkeypatch.chdir(log)
    monkeypatch.setenv("SLURM_CONF", str(log / "none.conf"))
    monkeypatch.setattr(sys, "argv", ["gangwise", *command.split()])
    monkeypatch.setattr("gangwise.cli.stop_at_once", lambda: None)  # signals are those of pytest
    before = sorted(log.rglob("*"))
    with pytest.raises(SystemExit, match="2"):
        main()
    out, errors = capsys.readouterr()
    assert not [value for value in values if value not in errors], errors
    assert errors.count("\n") == 1
    assert out == ""
    assert sorted(log.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    [
        "replay no.swf",
        "replay log.swf --policies easyy",
        "replay log.swf --policies no.py:Rule",
        "replay log.swf --as fcfs+easyy",
        "forecast log.swf --scheduler easyy",
    ],
)
def test_a_name_that_is_not_there_is_refused_before_the_compiler_is_loaded(command, log):
    program = (
        f"import sys; sys.argv[1:] = {command.split()}\n"
        "from gangwise.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=log, capture_output=True)
    assert done.stdout.strip() == b"2 False", done.stderr


def test_the_first_line_answers_what_was_asked(log, monkeypatch):
    monkeypatch.chdir(log)
    asked = ["what-if", "log.swf", "--kinds", "all", "--target"]
    done = inside(*asked, "waiting.mean < 1s")
    assert done.stdout.startswith("2 nodes reach waiting.mean < 1s; now there are 4")


def test_a_folder_does_not_hide_the_scenario_of_its_name(log, monkeypatch):
    monkeypatch.chdir(log)
    (log / "ogasched-default-v1").mkdir()
    assert not named_source("ogasched-default-v1", {}).trace
    assert named_source("./ogasched-default-v1", {}).trace


def test_policies_of_an_unset_variable_are_refused(log, monkeypatch):
    monkeypatch.chdir(log)
    done = CliRunner().invoke(app, ["replay", "log.swf", "--policies", ""])
    assert "--policies is empty" in str(done.exception)


def test_a_refused_table_is_named_once(log, monkeypatch):
    monkeypatch.chdir(log)
    (log / "header.csv").write_text("id,submit,start,end,gpus\n")
    done = CliRunner().invoke(app, ["jobs", "header.csv"])
    assert str(done.exception).count("header.csv: ") == 1


def test_parts_of_a_scheduler_may_stand_apart(log, monkeypatch):
    monkeypatch.chdir(log)
    done = json.loads(
        inside("replay", "log.swf", "--policies", "fcfs + easy, sjf", "--json").stdout
    )
    assert {row["name"] for row in done["schedulers"]} == {"fcfs+easy", "sjf"}


def test_a_stopped_replay_without_a_folder_does_not_promise_to_go_on(log, monkeypatch):
    def stopped(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.chdir(log)
    monkeypatch.setattr("gangwise.study.replay.replay", stopped)
    done = CliRunner().invoke(app, ["replay", "log.swf"])
    assert done.exit_code == 130
    assert "nothing was saved; with --out a run can be continued" in done.stderr


@pytest.mark.full
def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "results"
    arguments = [
        "compare",
        SMALL,
        "--policies",
        "drf,greedy",
        "--slots",
        "4000",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--comparators",
        "none",
        "--out",
        str(out),
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "gangwise", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)  # drf is finished, greedy is under way
    time.sleep(1.0)  # its kernels are loaded, on a busy machine too
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "to go on: gangwise compare" in errors
    assert list((out / ".gangwise" / "checkpoints").iterdir())
    inside(*arguments)
    whole = pl.read_parquet(out / "rewards.parquet")
    inside(*arguments[:-1], tmp_path / "again")
    assert whole.equals(pl.read_parquet(tmp_path / "again" / "rewards.parquet"))
    assert not list((out / ".gangwise" / "checkpoints").iterdir())


def test_a_sweep_of_replays_names_the_unit_of_its_times(log, monkeypatch):
    monkeypatch.chdir(log)
    (log / "rules.toml").write_text(
        'name = "rules"\nscenario = "replay"\nseeds = 1\npolicies = ["fcfs", "sjf"]\n'
        '[settings]\nsource = "log.swf"\n[grid]\nload = [0.5, 0.9]\n'
    )
    done = inside("sweep", "rules.toml", "--out", "rules", "--jobs", "1")
    assert "completion," in done.stdout
