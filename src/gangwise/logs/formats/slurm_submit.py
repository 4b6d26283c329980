"""What a job asked Slurm for, and was given: from its submit line and its trackable resources.

ReqTRES counts nodes as the least that a job asked for: of ``sbatch -n 12`` one, also where it was
given two. So tasks, cores of a task and nodes are those of the submit line where it says them, else
what ReqTRES and AllocTRES say together. A job holds what it was given where that is more: whole
nodes, or both threads of a core.

Beyond devices, jobs wait for other jobs, licences, their array, features of nodes. ``SubmitLine``
of sacct is the line that was typed (21.08 and later): options in a script, after ``#SBATCH``, are
not in it. ``Eligible`` is when a job might have started, as far as dependencies, begin times, holds
and ``%N`` of arrays go. https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

import polars as pl

from gangwise import notation

OPTIONS = notation.WORDS["options"]
"""What options of sbatch mean, as ``notation/slurm.toml`` says."""

ALONE = re.compile(
    "-[hHkOsQvVWIuXZEl]|--(hold|no-|parsable|requeue|exclusive|overcommit|oversubscribe|quiet|wait$"
    "|verbose|contiguous|spread-job|reboot|nice|propagate|x11|get-user-env|immediate|pty|label"
    "|use-min-nodes|test-only|ignore-pbs|share$|multi-prog|unbuffered|exact$|disable-status)"
)
"""Options without a value, or with one only behind =."""
SEEN = 2.0
"""Seconds within which Slurm looks at a job that came: no sooner is it eligible."""


# ------------------------------------------------------------------------------- the line typed


def submitted(line: str, component: int = 0) -> dict[str, str]:
    """Options on a line of sbatch, srun or salloc, by their long names, up to the script.

    Of a heterogeneous job, whose components a colon parts, those of one.

    >>> submitted("sbatch -N 2 --array=1-9%3 -d afterok:7 --hold run.sh -a 5")
    {'nodes': '2', 'array': '1-9%3', 'dependency': 'afterok:7', 'hold': ''}
    >>> submitted("sbatch -n1 : -n 4 run.sh", 1)
    {'ntasks': '4'}
    """
    options: dict[str, str] = {}
    words = iter(line.split()[1:])
    for word in words:
        # A colon parts the components of a heterogeneous job.
        if word == ":":
            component -= 1
            if component < 0:
                break
            options = {}
            continue
        # What follows the script's name are its own arguments.
        if not re.match("--?[a-zA-Z]", word) or word.startswith("--wrap"):
            break
        long = word.startswith("--")
        name, equals, value = word[2:].partition("=") if long else (word[1], "", word[2:])
        # The value is the next word, unless the option takes none.
        if not (equals or value or ALONE.match(word)):
            value = next(words, "")
        # Of an option given twice the last counts, as in sbatch.
        options[name if long else OPTIONS["short"].get(name, name)] = value
    return options


SIZES: tuple[str, ...] = ("nodes", "ntasks", "cpus-per-task", "ntasks-per-node", "exclusive")
SIZES += ("mem", "gpus", "gpus-per-node", "gpus-per-task", "gres", "spread-job")
"""Options that say how many tasks a job has, and how many of them a node takes."""


def sizes_of(asked: Mapping[str, str]) -> str:
    """Those of :data:`SIZES` among the options, as one text.

    >>> sizes_of({"ntasks": "12", "time": "10", "exclusive": ""})
    'ntasks=12;exclusive='
    """
    return ";".join(f"{name}={asked[name]}" for name in SIZES if name in asked)


def _whole_number(text: str) -> int:
    """A count such as ``12`` or ``2k``; 0 where it is none."""
    # Anything else (a variable of the shell) is no number here.
    return int(notation.read_count(text)) if re.fullmatch(r"\d+[kKmM]?", text) else 0


def _node_range(text: str) -> tuple[int, int]:
    """Fewest and most nodes of ``-N``; 0 for no bound.

    >>> _node_range("4"), _node_range("2-4"), _node_range("2-"), _node_range("")
    ((4, 4), (2, 4), (2, 0), (0, 0))
    """
    low, dash, high = text.partition("-")
    # One number is both bounds; an open end is no bound.
    return _whole_number(low), _whole_number(high if dash else low)


# ------------------------------------------------------------------------------ what a task asks


class TaskRequest(NamedTuple):
    """Request of a job: tasks alike, each with so many cores, GiB and GPUs of these models.

    ``per_node`` tasks are at most on one node, 0 for as many as fit; ``terms`` as
    :class:`gangwise.jobs.model.Job` has them.
    """

    cpu: float
    mem: float
    gpu: float
    models: str
    tasks: int
    per_node: int = 1
    terms: str = ""


class _Totals(NamedTuple):
    """A TRES list: cores, GiB, GPUs, those of each model, and nodes."""

    cpu: float
    mem: float
    gpu: float
    models: tuple[str, ...]
    nodes: int


def _totals(text: str, nodes: int | None, memory: str) -> _Totals:
    tres = notation.read_tres(text)
    if "cpu" not in tres:
        raise ValueError("the TRES list names no cpu")
    cpu = notation.read_count(tres["cpu"])
    several = int(notation.read_count(tres["node"])) if "node" in tres else nodes
    if not several:
        raise ValueError("the number of nodes is not known")
    if "mem" in tres:
        mem = notation.gib(tres["mem"])
    else:
        # Old versions give memory per node (n) or per core (c).
        per = several if memory.endswith("n") else cpu if memory.endswith("c") else 1
        # A flag bit in the number says that it is of each core.
        amount = notation.gib(memory.rstrip("nc")) if memory else 0.0
        if amount >= notation.PER_CORE:
            per, amount = cpu, amount - notation.PER_CORE
        mem = per * amount
    typed = (name for name in tres if name.startswith("gres/gpu:"))
    # The total where it is listed, for the types may be a part of it.
    kinds = {name[9:]: notation.read_count(tres[name]) for name in typed}
    gpu = notation.read_count(tres["gres/gpu"]) if "gres/gpu" in tres else sum(kinds.values())
    models = tuple(sorted(name for name, n in kinds.items() if n)) if gpu else ()
    return _Totals(cpu, mem, gpu, models, several)


def _models(options: Mapping[str, str]) -> tuple[str, ...]:
    """Models of GPUs that options name; a TRES list has them only where the site counts them.

    >>> _models({"gres": "gpu:t4:2"}), _models({"gpus-per-node": "a100:4"}), _models({"gpus": "2"})
    (('t4',), ('a100',), ())
    """
    words = [options.get("gres", "")]
    words += [
        f"gpu:{options[name]}" for name in SIZES if name.startswith("gpus") and name in options
    ]
    return tuple(sorted({*notation.gpus(",".join(words))} - {""}))


def request(
    asked: str, given: str = "", nodes: int | None = None, memory: str = "", sizes: str = ""
) -> TaskRequest:
    """The request of a job: as many tasks as it has, or one a node with an equal part of the total.

    ``asked`` and ``given`` are ReqTRES and AllocTRES, totals over the nodes; either may be empty.
    ``nodes`` stand in for ``node=``, and ``memory``, ReqMem with ``n`` (per node) or ``c`` (per
    core) at its end, for ``mem=``. ``sizes`` is from :func:`sizes_of`.

    ValueError: When there are no cores, no nodes, or an amount is none.

    >>> request("billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2")
    TaskRequest(cpu=4.0, mem=32.0, gpu=2.0, models='a100', tasks=2, per_node=1, terms='mem=64')
    >>> request("cpu=8,node=2", memory="4000Mc").mem
    15.625
    >>> request("cpu=12,node=1", "cpu=12,node=2")[4:]  # sbatch -n 12, on two nodes of 8 cores
    (12, 0, 'given=2,size=12x1')
    >>> request("cpu=1,mem=1G,node=1", "cpu=8,mem=1G,node=1").cpu  # a whole node
    8.0
    """
    # The submit line names sizes as text, so that many jobs share one parse.
    options = dict(part.split("=", 1) for part in sizes.split(";") if part)
    wanted = _totals(asked or given, nodes, memory)
    second = _totals(given or asked, nodes, memory)
    holds = _Totals(
        max(wanted.cpu, second.cpu),
        max(wanted.mem, second.mem),
        max(wanted.gpu, second.gpu),
        # AllocTRES names what was given; versions that name GPUs in ReqTRES name there what was
        # asked for. Of several models that were given none was.
        wanted.models or _models(options)
        if asked and wanted.gpu
        else second.models[: len(second.models) == 1],
        second.nodes,
    )
    # Without --mem, and without a default of the site, a job has all memory of its nodes: more
    # than was asked for, of each node and of each core.
    # So it was where it was given less than ReqTRES says: that is the memory of a larger node.
    sizes_of_both = (wanted.nodes, second.nodes), (wanted.cpu, second.cpu)
    shares = [second.mem * a - wanted.mem * b for a, b in sizes_of_both]
    # Differences must exceed a thousandth, for Slurm rounds memory to MiB.
    slack = [0.001 * wanted.mem * b for _, b in sizes_of_both]
    memory_too = all(share > least for share, least in zip(shares, slack))
    memory_too |= second.mem > 0 and all(share < -least for share, least in zip(shares, slack))
    # How many tasks, and how they may stand on nodes.
    tasks, per_node, bounds = _tasks(wanted, second, bool(given), options)
    # Nothing can be beside it, so it takes whole nodes.
    if memory_too and per_node != 1:
        tasks, per_node, bounds = second.nodes, 1, (0, 0)
    alone = options.get("exclusive") == ""
    if asked and not wanted.gpu and (alone or holds.gpu % tasks):
        holds = holds._replace(gpu=0.0, models=())  # those of whole nodes, that it did not ask for
    terms = []
    if alone:
        terms.append("whole=1")
    elif options.get("exclusive") == "user":
        terms.append("whole=user")
    elif memory_too:
        terms.append("whole=memory")
    # Memory that it was given with the node is not what it needs.
    if terms:  # nobody is beside it, whatever else it is given
        holds = holds._replace(mem=min(wanted.mem, second.mem or wanted.mem))
    if bounds != (0, 0):
        terms.append(f"nodes={bounds[0]}-{bounds[1]}")
    elif given and per_node != 1 and second.nodes > 1:
        terms.append(f"given={second.nodes}")  # as many as it needed of those that were free
    # Priority by size counts what was asked for, not what was given.
    if asked and (per_node != 1 or holds.cpu > wanted.cpu or tasks != wanted.nodes):
        terms.append(f"size={wanted.cpu:g}x{wanted.nodes}")  # what multifactor priority counts
    if given and second.cpu not in (0, wanted.cpu):
        terms.append(f"held={second.cpu:g}")
    if wanted.mem and (not given or not second.mem or second.mem > wanted.mem):
        terms.append(f"mem={wanted.mem:g}")  # what counts, whether it is given out or not
    memory_per_cpu = second.mem / second.cpu if given and not memory_too else 0.0
    if (least := _free_beside(options, memory_per_cpu)) and not alone:
        terms.append(f"free={least}")
    if not given and (cores := _whole_number(options.get("cpus-per-task", ""))) > 1:
        terms.append(f"task={cores}")
    several = (holds.cpu / tasks, holds.mem / tasks, holds.gpu / tasks)
    return TaskRequest(*several, "|".join(holds.models), tasks, per_node, ",".join(terms))


def _free_beside(options: Mapping[str, str], memory_per_cpu: float) -> str:
    """What must be free on the node of a job of one task, of which a node may have several.

    A job of several tasks is given as many processors on each node as ``--ntasks-per-node`` says.
    One of a single task is not, but no node that could not give them takes it. Memory of a
    processor counts where memory is given out by them.
    """
    tasks_per_node = _whole_number(options.get("ntasks-per-node", ""))
    if _whole_number(options.get("ntasks", "")) != 1 or tasks_per_node < 2:
        return ""
    memory = (
        f"|mem:{tasks_per_node * memory_per_cpu:g}"
        if memory_per_cpu and "mem" not in options
        else ""
    )
    return f"cpu:{tasks_per_node}{memory}"


def _tasks(
    first: _Totals, second: _Totals, started: bool, options: Mapping[str, str]
) -> tuple[int, int, tuple[int, int]]:
    """Into how many tasks a job is parted, how many a node takes, and its fewest and most nodes.

    ``first`` is what it asked for, ``second`` what it was given.
    """
    low, high = _node_range(options.get("nodes", ""))
    ntasks = _whole_number(options.get("ntasks", ""))
    a_node = _whole_number(options.get("ntasks-per-node", ""))
    cores = _whole_number(options.get("cpus-per-task", "")) or 1
    anywhere = (ntasks > 0 and not low) or (started and second.nodes > first.nodes)
    if a_node and ntasks and not low:  # as many on each node, however few were asked for
        # Rounded up: the last node may have fewer.
        return (second.nodes if started else max(first.nodes, -(-ntasks // a_node))), 1, (0, 0)
    # GPUs of the job (--gpus) stand on nodes as they are free: a request of each node would have
    # grown with the nodes that were given. A job that was given one node had room on it.
    of_job = "gpus" in options or (started and second.nodes > first.nodes)
    of_job &= second.nodes > 1 or not started
    of_job &= ntasks != 1 and first.gpu == second.gpu > 1
    of_job &= not {"gres", "gpus-per-node", "gpus-per-task"} & {*options}
    shared = first.gpu > 0 and not of_job and "gpus-per-task" not in options
    # More than a core a node that was not asked for: whole nodes, not both threads of a core. Twice
    # as much as was asked for, without more memory, are both threads of a core for each processor.
    twice = second.cpu == 2 * first.cpu and second.mem <= first.mem
    more = second.cpu > first.cpu + second.nodes and not twice
    whole_nodes = more or options.get("exclusive") == ""
    anywhere |= of_job or ntasks > low > 0
    if (whole_nodes and started) or shared or a_node or not anywhere:
        return second.nodes, 1, (0, 0)
    cpu = max(first.cpu, second.cpu)
    # Cores that do not divide among tasks are taken one by one.
    tasks = int(first.gpu if of_job else cpu // (1 if cpu % cores else cores))
    if tasks <= max(low, 1):
        return second.nodes, 1, (0, 0)
    if "mem" in options and low == high > 0:  # memory of a node: in equal parts
        return second.nodes, 1, (0, 0)
    low = low or (first.nodes if first.nodes > 1 else 0)
    high = high or tasks * ("spread-job" in options) or ntasks * (of_job and ntasks < tasks)
    if low < 2 and not high:
        return tasks, 0, (0, 0)
    # At least `low` nodes: none may take so many that fewer nodes would do.
    return tasks, tasks - low + 1 if low > 1 else 0, (low, high)


# ----------------------------------------------------------------------- what else must hold


def awaited(asked: str, name: str, tasks: dict[str, list[str]]) -> list[str] | None:
    """Jobs that must have ended before, of a dependency; None where that is not all it says.

    ``tasks`` are the jobs of each number. Whether a job must have succeeded is not asked: who ran
    after it shows that it had.

    >>> awaited("afterok:7,afterany:8_2", "9", {"7": ["7_1", "7_2"], "8_2": ["8_2"]})
    ['7_1', '7_2', '8_2']
    >>> awaited("afterok:7?afterany:8", "9", {}) is awaited("after:7+10", "9", {}) is None
    True
    """
    earlier: list[str] = []
    for part in asked.split(","):
        kind, *jobs = part.split(":")
        for job in jobs:
            # aftercorr: the task of the other array with the same number.
            at = f"{job}_{name.partition('_')[2]}" if kind == "aftercorr" else job
            if at not in tasks:  # the log does not say when it ended
                return None
            earlier += tasks[at]
        # `after` counts from a start, and `?` means any of them: neither is an end of all.
        if "?" in part or not re.fullmatch("after(ok|any|notok|corr)|singleton", kind):
            return None
    return earlier


@cache
def _nodes_named(text: str) -> str:
    """Names in a node list with bars between them; empty where it is none."""
    try:
        return "|".join(notation.expand_nodes(text))
    except ValueError:
        return ""


def terms(asked: dict[str, str], name: str, features: str, request: str, nodes: int | None) -> str:
    """Terms of a job, as :class:`gangwise.jobs.model.Job` has them."""
    parts = dict(re.findall(r"(license/[^=,]+)=(\d+)", request))
    # A licence may have a number behind a colon or an equals sign.
    for licence, number in re.findall(r"([^,;|:=]+)(?:[:=](\d+))?", asked.get("licenses", "")):
        parts.setdefault(f"license/{licence}", number or "1")
    if most := re.search(r"%(\d+)$", asked.get("array", "")):
        parts["array"] = f"{name.partition('_')[0]}%{most[1]}"
    if wanted := features or asked.get("constraint", ""):
        # Slurm writes `a,b` for both features.
        parts["features"] = wanted.strip("()").replace(",", "&")
    if on := _nodes_named(asked.get("nodelist", "")):
        # A list of fewer nodes than the job has is a wish for some of them only.
        parts |= {"on": on} if (nodes or 1) <= on.count("|") + 1 else {}
    if elsewhere := _nodes_named(asked.get("exclude", "")):
        parts["not"] = elsewhere
    for option, term in (("contiguous", "contiguous"), ("spread-job", "spread")):
        parts |= {term: "yes"} if option in asked else {}
    if asked.get("hint", "") == "nomultithread":
        parts["cores"] = "whole"
    if reservation := asked.get("reservation", ""):
        parts["reservation"] = reservation.replace(",", "|")
    return ",".join(map("=".join, parts.items()))


@lru_cache(maxsize=1 << 14)
def _terms_of_request(features: str, request: str) -> str:
    """Terms of a job whose line of submission is not known, which many share."""
    return terms({}, "", features, request, None)


def _not_played(asked: dict[str, str], nodes: int | None) -> list[str]:
    """Options of a job that are not played, each with what is done instead."""
    not_played = OPTIONS["not_played"]
    options = [f"--{name} ({not_played[name]})" for name in asked if name in not_played]
    # --hint alone, or nomultithread, is played.
    if asked.get("hint", "nomultithread") != "nomultithread":
        options.append("--hint (which cores of a node is not played)")
    if asked.get("exclusive", "user") not in ("", "user"):
        options.append(f"--exclusive={asked['exclusive']} (nodes are shared with anybody)")
    if "reservation" in asked:
        options.append("--reservation (it is played where the site's reservations are)")
    named = _nodes_named(asked.get("nodelist", ""))
    if named and (nodes or 1) > named.count("|") + 1:
        options.append("--nodelist of fewer nodes than the job has (it may have others alone)")
    return options


MOST_TASKS = 1 << 16
"""Tasks of an array in one record that are told apart."""


def _array_tasks(name: str) -> list[str]:
    """The tasks of a record of those that have not started; none where that does not tell them.

    >>> _array_tasks("7_[1,3-7:2%2]")
    ['7_1', '7_3', '7_5', '7_7']
    """
    job, _, inside = name.partition("_[")
    numbers: list[int] = []
    for part in inside.rstrip("]").partition("%")[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        # The bound is of memory: a record may claim any range.
        if match is None or len(numbers) > MOST_TASKS:
            return []
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
    return [f"{job}_{task}" for task in numbers] if len(numbers) <= MOST_TASKS else []


def with_array_tasks(raw: pl.DataFrame) -> pl.DataFrame:
    """Jobs with a row for each task of an array that has not started: sacct prints one for all."""
    together = raw["name"].str.contains("_[", literal=True)
    if not together.any():
        return raw
    rows = raw.filter(together)
    names = pl.Series([_array_tasks(name) or [name] for name in rows["name"]])
    most = pl.col("name").str.extract(r"(%\d+)\]$")
    # Without its line the bound of the array stands in the record alone.
    unsaid = (pl.col("line").fill_null("") == "") & most.is_not_null()
    line = pl.when(unsaid).then(pl.format("sbatch --array=0{}", most)).otherwise("line")
    rows = rows.with_columns(line=line).with_columns(name=names).explode("name")
    return pl.concat([raw.filter(~together), rows]).sort("row", maintain_order=True)


AGAIN = 600.0
"""Seconds after the end of a run within which a record of the same number is the job's next run."""


def runs_in_turn(raw: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """Jobs whose names differ: a second record of job 7 is 7#2.

    Gives the run before each that was requeued as well. Jobs with several runs have the name of
    the first in a column ``again``, absent where there are none. Numbers come round again, at
    ``MaxJobId``: such a record is another job.
    """
    if not raw["name"].is_duplicated().any():
        return raw, {}
    columns = raw.select("name", "user", "submit", "end").rows()
    names, records_of = raw["name"].to_list(), defaultdict[str, list[int]](list)
    preceding: dict[str, str] = {}
    first_run = [""] * len(names)
    # In the order of submission, as runs follow each other.
    for i in raw["submit"].arg_sort().to_list():
        name, user, submit, _ = columns[i]
        if earlier := records_of[name]:
            names[i] = f"{name}#{len(earlier) + 1}"
            latest = earlier[-1]
            # The same user, soon after the end: the job was requeued; else the number came round
            # again.
            _, user_before, _, ended = columns[latest]
            if user_before == user and ended is not None and -SEEN <= submit - ended <= AGAIN:
                preceding[names[i]] = names[latest]
                first_run[i] = first_run[latest] = first_run[latest] or names[latest]
        records_of[name].append(i)
    named = raw.with_columns(name=pl.Series(names))
    return (named.with_columns(again=pl.Series(first_run)) if preceding else named), preceding


def with_terms(raw: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Jobs with ``preceding``, those that each waits for, ``terms`` and ``sizes``; and notes.

    Where what a job waited for is not played, it is submitted when it became eligible: ``late``.
    """
    raw, earlier = runs_in_turn(raw)
    names = ("name", "line", "features", "req", "alloc", "partition")
    columns = [pl.col(name).fill_null("") for name in names]
    columns.append(pl.concat_str("user", pl.lit("/"), "application", ignore_nulls=True))
    rows = raw.select(*columns, "nodes", "submit").rows()
    preceding, on_hold = [""] * len(raw), [False] * len(raw)
    tasks, alike = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name, *_ in rows:
        number = name.partition("#")[0]
        for key in dict.fromkeys((number, number.partition("_")[0])):
            tasks[key].append(name)
    # Needed only where numbers came round again.
    came_at = {row[0]: row[-1] for row in rows} if any("#" in row[0] for row in rows) else {}
    own, played, sizes = [""] * len(raw), [False] * len(raw), [""] * len(raw)
    nice, named = [0.0] * len(raw), Counter[str]()
    for i in raw["submit"].arg_sort().to_list():
        name, line, features, req, alloc, partitions, title, nodes, submit = rows[i]
        offset = name.partition("#")[0].partition("+")[2]
        options = submitted(line, int(offset or 0)) if line else {}
        if not options:
            own[i] = _terms_of_request(features, req or alloc)
        else:
            own[i] = terms(options, name, features, req or alloc, nodes)
            sizes[i] = sizes_of(options)
            named.update(_not_played(options, nodes))
            if "nice" in options:  # 100 where no number is given
                lower = options["nice"] or "100"
                nice[i] = -float(lower) if re.fullmatch(r"-?\d+", lower) else 0.0
        # A job that has not started has all its partitions in that column; then, where it ran.
        partitions = options.get("partition", "") if "," not in partitions else partitions
        if "," in partitions:
            own[i] += "," * bool(own[i]) + "pools=" + partitions.replace(",", "|")
        # Who waits for its array or for jobs is played as such, and not moved.
        on_hold[i], played[i] = "hold" in options, "array=" in own[i]
        # Dependencies are played where the log has the jobs that they name.
        if dependency := options.get("dependency", ""):
            prior = awaited(dependency, name, tasks)
            if prior is not None and "singleton" in dependency:
                prior += alike.pop(title, [])  # later ones come after this one
            played[i] |= prior is not None and not {"begin", "hold"} & {*options}
            # Of a number that came round again, the job that was there by then.
            present = (n for n in prior or () if n != name and came_at.get(n, submit) <= submit)
            preceding[i] = "|".join(present)
        if name in earlier:
            preceding[i] += "|" * bool(preceding[i]) + earlier[name]
        alike[title].append(name)
    # Eligible later than it came, for a reason that is not played: it is submitted then.
    later = (pl.col("eligible") > pl.col("submit") + SEEN) & ~pl.Series(played, dtype=pl.Boolean)
    # Without a start there is nothing to compare; beyond the start the record is wrong.
    later &= (pl.col("eligible") <= pl.col("start")) | pl.col("start").is_null()
    submitted_at, late = raw["submit"], raw.select(late=later.fill_null(False))["late"]
    came_in = pl.when(late).then("eligible").otherwise("submit")
    raw = raw.with_columns(submit=came_in, preceding=pl.Series(preceding), sizes=pl.Series(sizes))
    begin: float = raw["submit"].min()  # type: ignore[assignment]  # a number: rows have times
    # The time of submission still counts for its place in line.
    for i in late.arg_true().to_list():
        if not on_hold[i]:  # one that was held goes to the end of the line
            own[i] += "," * bool(own[i]) + f"queued={submitted_at[i] - begin:g}"
    # Who never was eligible was never in line: held, or after a job that failed.
    out = raw["start"].is_null() & raw["eligible"].is_null() & raw["eligible"].is_not_null().any()
    raw = raw.with_columns(late=late, terms=pl.Series(own), out_of_line=out)
    raw = raw.drop("eligible", "line", "features")
    raw = raw.with_columns(priority=pl.Series(nice)) if any(nice) else raw
    # Columns without content are dropped, as the tables have them only where they say something.
    blank = [] if (raw["preceding"] != "").any() else ["preceding"]
    notes = [f"{n} jobs ask for {option}" for option, n in named.items() if n]
    return raw.drop(*blank, *["late"] * (not late.any())), notes
