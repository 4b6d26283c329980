import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from gangwise.papers.fluctuating_speeds.policies import LCF
from gangwise.report.experiments import terminal_sheets
from gangwise.report.page import html
from gangwise.report.pages import comparison_page
from gangwise.report.tables import Cell, Sheet, rich_tables
from gangwise.study.compare import Comparison, compare
from tests.report.made import made


def sheets(comparison: Comparison) -> list[Sheet]:
    return terminal_sheets(comparison.results)


def printed(comparison: Comparison, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(rich_tables(sheets(comparison)))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_columns_that_do_not_fit_go_on_below_under_the_same_names(width: int) -> None:
    name, wide = "fcfs+conservative+best-fit:depth=100", "+5,076.3 (+2,539.4 to +11,516.0)"
    headings = tuple(f"change {i}" for i in range(12))
    sheet = Sheet("Wide", headings, ((name, tuple(Cell(f"{wide}{i}") for i in range(12))),))
    out = io.StringIO()
    Console(file=out, width=width).print(rich_tables([sheet]))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert all(f"{wide}{i}" in out.getvalue() for i in range(12))
    assert all(heading in out.getvalue() for heading in headings)
    blocks = [line for line in lines if line.startswith("─")]
    assert sum(line.startswith("fcfs+") for line in lines) == len(blocks) > 1


TWO = {"a": [[10.0, 14.0], [13.0, 15.0]], "b": [[8.0, 12.0], [10.0, 10.0]]}
OPTIMUM = {
    "best_fixed": ([0, 1], [[9.0, 13.0], [11.0, 12.0]]),
    "per_slot_optimum": ([1], [[16.0], [16.0]]),
}


def test_cells_by_hand() -> None:
    results, improvement = sheets(made(TWO, OPTIMUM, bounds={"theorem-1": 1234.0}))
    t = 12.706204736174694  # Student's t for two seeds
    policy, cells = results.rows[0]
    assert policy == "a"
    assert [cell.text for cell in cells] == [
        f"13 ± {t * 1:.0f}",  # means 12 and 14
        f"90.6 ± {t * 3.125:.1f}",  # 14/16 and 15/16 on slot 1
        f"−3.5 ± {t * 1.5:.1f}",  # 22 − 24 and 23 − 28: mean −3.5
        f"3 ± {t * 1:.0f}",  # (16 − 14)·2 and (16 − 15)·2
        "12",
    ]
    assert cells[0].value == 13.0
    over_b = np.array([100 * (12 / 10 - 1), 100 * (14 / 10 - 1)])
    assert improvement.rows[0][1][1].value == pytest.approx(over_b.mean())
    assert improvement.rows[0][1][1].text == f"+{over_b.mean():.1f} ± {t * 10:.1f}"
    assert improvement.rows[0][1][0].text == ""
    assert any("theorem-1): 1,234" in caption for caption in results.captions)
    assert any("on 1 of 2 slots" in caption for caption in results.captions)


def test_cells_of_a_real_comparison(real: Comparison) -> None:
    results, improvement = sheets(real)
    for policy, cells in results.rows:
        runs = [real.runs[policy, s] for s in real.seeds]
        assert cells[0].value == pytest.approx(np.mean([run.rewards.mean() for run in runs]))
        optima = [real.comparators["per_slot_optimum", s] for s in real.seeds]
        assert all(optimum.slots.size == 10 for optimum in optima)
        share = np.mean([r.rewards[o.slots].sum() / o.rewards.sum() for r, o in zip(runs, optima)])
        assert cells[1].value == pytest.approx(100 * share)
    best, other = improvement.rows[0][0], improvement.rows[1][0]
    ratios = [
        real.runs[best, s].rewards.sum() / real.runs[other, s].rewards.sum() for s in real.seeds
    ]
    assert improvement.rows[0][1][1].value == pytest.approx(100 * (np.mean(ratios) - 1))


def test_a_percentage_of_nothing_is_a_dash() -> None:
    comparison = made({"a": [[1.0], [2.0]], "b": [[-1.0], [1.0]]}, {"best": ([0], [[0.0], [0.0]])})
    results, improvement = sheets(comparison)
    assert improvement.rows[0][1][1].text == "–"
    assert results.rows[0][1][1].text == "–"
    assert "not positive" in improvement.captions[0]


def test_one_seed_says_so() -> None:
    text = printed(made({"a": [[1.0, 2.0]], "b": [[1.0, 1.0]]}), 80)
    assert "One seed: no confidence interval" in text
    assert "±" not in text


def test_many_policies_are_compared_with_the_best_only() -> None:
    comparison = made({f"policy-{i}": [[1.0 + i], [2.0 + i]] for i in range(8)})
    improvement = sheets(comparison)[1]
    assert improvement.title.startswith("Improvement of policy-7")
    assert improvement.columns == ("improvement",)
    assert [policy for policy, _ in improvement.rows] == [f"policy-{i}" for i in range(6, -1, -1)]


@pytest.mark.full
def test_terminal_table_is_complete_at_usual_widths() -> None:
    names = [
        "ogasched-react",
        "ogasched-reserve",
        "ogasched-reserve-leftover",
        "greedy",
        "drf",
        "fairness",
        "binpacking",
        "spreading",
        "random",
        "ogasched-react:steps=3",
    ]
    rng = np.random.default_rng(0)
    for count in (5, 10):
        rewards = {
            name: rng.normal(2000 + 90 * i, 50, (3, 6)).tolist()
            for i, name in enumerate(names[:count])
        }
        every = list(range(6))
        optimum = {
            name: (every, rng.normal(4000, 50, (3, 6)).tolist())
            for name in ("best_fixed", "per_slot_optimum")
        }
        comparison = made(rewards, optimum)
        for width in (80, 100):
            text = printed(comparison, width)
            assert all(len(line) <= width for line in text.splitlines())
            assert "…" not in text
            for sheet in sheets(comparison):
                for _, cells in sheet.rows:
                    assert all(cell.text in text for cell in cells)


def test_brackets_in_names_are_no_markup() -> None:
    text = printed(made({"[red]a[/red]": [[1.0]], "[/]": [[0.5]]}), 80)
    assert "[red]a[/red]" in text
    assert "[/]" in text


def test_cells_of_a_page_can_be_sorted_by_their_full_numbers() -> None:
    comparison = made(TWO, OPTIMUM)
    page = html(comparison_page(comparison))
    assert 'data-value="13.0"' in page
    assert page.count('<button type="button">') == page.count('<th scope="col"')


@dataclass
class ThreeOfFour(LCF):
    """Counts four searches, of which the one of slot 2 proves nothing."""

    def start(self, problem: Any, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        self.programmes = self.proved = 0

    def decide(self, observation: Any) -> Any:
        self.programmes += 1
        self.proved += observation.slot != 2
        return super().decide(observation)


def test_the_share_of_choices_that_are_proved_is_told_of_who_counts_it() -> None:
    comparison = compare(
        "esdp-default-v1:servers=6", {"counts": ThreeOfFour(), "lcf": LCF()}, slots=4, seeds=[1, 2]
    )
    assert comparison.results.per_seed("proved").rows() == [
        ("counts", 1, 0.75),
        ("counts", 2, 0.75),
    ]
    captions = [caption for sheet in sheets(comparison) for caption in sheet.captions]
    assert "Searches that proved their choice best: counts 75 %." in captions
    assert all("proved their choice" not in c for s in sheets(made(TWO)) for c in s.captions)
