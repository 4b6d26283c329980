"""The verdict of a replay in one sentence, and the four numbers that decide it."""

from __future__ import annotations

import math

from gangwise.notation.units import roughly
from gangwise.report.page import Tile, in_words, sentence_case, short_name
from gangwise.study.answer import CONFIGURED, SMALL, Compared, kills_more
from gangwise.study.changes import changes_of
from gangwise.study.statistics import Estimate, number

WHOLE = 0.995  # a share from here on is printed as 100 %


def shown_name(n: Compared, name: str) -> str:
    """A scheduler, or a change of a what-if, as a sentence has it."""
    if name == CONFIGURED:
        return "the rules as configured"
    if n.base == CONFIGURED:
        return " and ".join(change.words for change in changes_of(name))
    return short_name(name)


def headline(n: Compared) -> str:
    """The verdict: which scheduler finishes jobs sooner, and whether the model may be trusted."""
    return sentence_case(f"{_who_is_better(n)}{_how_far_to_trust(n)}.")


def _who_is_better(n: Compared) -> str:
    base = shown_name(n, n.base)
    if not n.others:
        return f"under {base}, jobs wait {roughly(n.of(n.base, 'waiting.mean').mean)} on average"
    verdicts = {name: n.verdict(name) for name in n.others}
    better = [name for name in n.others if verdicts[name] == "better"]
    if better:
        sooner = number(-n.change(better[0]).mean, int(n.change(better[0]).mean > -10))
        return f"{shown_name(n, better[0])} would finish jobs {sooner} % sooner than {base}"
    able = _without_victims(n)
    change = n.change(able[0]).mean if able else math.nan
    if able and verdicts[able[0]] == "no interval" and change < -SMALL:
        sooner = number(-change, int(change > -10))
        return (
            f"{shown_name(n, able[0])} finishes these jobs {sooner} % sooner than {base}, which "
            "may be chance"
        )
    costly = [name for name in n.others if verdicts[name] in ("kills more", "refuses")]
    if costly:
        price = "kills more jobs" if verdicts[costly[0]] == "kills more" else "never starts some"
        return f"{shown_name(n, costly[0])} finishes jobs sooner than {base}, but {price}"
    if all(verdict == "worse" for verdict in verdicts.values()):
        return f"no scheduler finishes these jobs sooner than {base}"
    return f"no scheduler is clearly better than {base}"


def _without_victims(n: Compared) -> list[str]:
    """The others under which no more is killed than under the base, and every job starts."""
    base = n.outcomes[n.base]
    return [
        name
        for name in n.others
        if not n.refused(name)[0] and not kills_more(n.outcomes[name], base)
    ]


def _how_far_to_trust(n: Compared) -> str:
    retold = n.retold
    if retold is None:
        logged = n.as_logged and not n.drawn
        return "; how much of the log's own waiting the model explains is not known" * logged
    explained = f"{number(100 * retold.explained)} % of this log's waiting"
    if retold.doubtful:
        judged, share = retold.weakest
        if judged != "mean wait":
            explained += f", and {number(100 * max(share, 0.0))} % of its {WEAKEST[judged]}"
        return (
            f"; but the model explains {explained}, so compare schedulers with one another, not "
            "with the past"
        )
    clear = [name for name in n.others if n.verdict(name) == "better"]
    if clear and not n.beyond(clear[0]):
        off = number(abs(n.error().mean), 1)
        return f"; the model itself is off by {off} %, perhaps more than that"
    return f"; the model explains {explained}"


WEAKEST = {
    "job by job": "single waits",
    "order of starts": "order of starts",
    "busy devices while jobs wait": "use while jobs wait",
}
"""What a model must explain, see :data:`~gangwise.sites.retelling.JUDGED`, in a sentence."""


def tiles(n: Compared) -> list[Tile]:
    """Recorded and model wait, explained share, best change, and what is left by the bound."""
    row, retold = [], n.retold
    base = shown_name(n, n.base)
    if retold is not None:
        wait = f"{roughly(retold.recorded)} → {roughly(retold.simulated)}"
        row.append(Tile("Mean wait, recorded → model", wait, f"model: {base}"))
        part, share = retold.weakest
        weakest = f"least: {part}, {number(100 * share)} %" * (share < WHOLE)
        shown = f"{number(100 * retold.explained)} %"
        tone = "bad" if retold.doubtful else "good"
        row.append(Tile("Mean wait explained by the model", shown, weakest, tone))
    else:
        wait = roughly(n.of(n.base, "waiting.mean").mean)
        row.append(Tile("Mean wait in the model", wait, base))
        used = 100 * n.of(n.base, f"utilisation.{n.device}").mean
        row.append(Tile(f"{in_words(n.device)} in use", f"{number(used)} %", "of what there is"))
    if able := _without_victims(n):
        best = able[0]
        change = n.change(best)
        tone = "good" if n.verdict(best) == "better" else ""
        name = sentence_case(shown_name(n, best))
        row.append(Tile("Best change of completion", _percent(change), _ends(change, name), tone))
    if (saving := n.possible_saving) is not None:
        saved = f"at most {number(saving, int(saving < 10))} %"
        proved = "certified: no schedule without preemption finishes sooner"
        row.append(Tile("Left to gain", saved, proved))
    return row


def _percent(change: Estimate) -> str:
    if not math.isfinite(change.mean):
        return "not known"
    return f"{number(change.mean, int(abs(change.mean) < 10), sign=True)} %"


def _ends(change: Estimate, name: str) -> str:
    if change.low is None or change.high is None:
        return f"{name}; no interval"
    low, high = (number(end, 1, sign=True) for end in (change.low, change.high))
    return f"{name}; 95 %: {low} to {high}"
