"""What a comparison says, in sentences: the summary, the captions, the comparators."""

from __future__ import annotations

from gangwise.experiments.compare import Comparison, Row
from gangwise.report.numbers import decimals_for, estimate_text, number, small_share

_PLAIN = {
    "best_fixed": "best fixed decision",
    "per_slot_optimum": "per-slot optimum",
    "omniscient": "omniscient choice",
}
_MEANING = {
    "best_fixed": "the best decision that never changes, chosen with all arrivals known beforehand",
    "per_slot_optimum": "the best feasible decision of every single slot, with its arrivals known",
    "omniscient": "the best decision of every slot for one who knows what policies have to learn",
}
_TITLES = {
    "average-reward": "Average reward per slot so far",
    "cumulative-reward": "Cumulative reward",
    "ratio": "Cumulative reward of {best} over that of each other policy",
    "regret": "Cumulative regret against {versus}",
}


def plain(comparator: str) -> str:
    """A comparator's name as it reads in a sentence."""
    return _PLAIN.get(comparator, comparator)


def has_share(comparison: Comparison, comparator: str) -> bool:
    """Whether a share of the comparator's reward says something: it earned in every seed."""
    return all(comparison.comparators[comparator, s].rewards.sum() > 0 for s in comparison.seeds)


def seeds_text(comparison: Comparison) -> str:
    """How many seeds, in words that a table's caption can use."""
    n = len(comparison.seeds)
    return "1 seed" if n == 1 else f"{n} seeds"


def about_interval(comparison: Comparison) -> str:
    """What the ± is."""
    if len(comparison.seeds) == 1:
        return "one seed: no confidence interval"
    return f"± is half the 95 % confidence interval over {seeds_text(comparison)}"


def summary(comparison: Comparison) -> str:
    """Who earned most, how near the optimum that is, and how far ahead of the others.

    >>> import gangwise
    >>> small = "ogasched-default-v1:servers=16,job_types=4"
    >>> summary(gangwise.compare(small, ["drf"], slots=5, seeds=[0]))
    'drf earned ... per slot, ... % of the per-slot optimum (1 seed).'
    """
    rows = comparison.table()
    best, others = rows[0], rows[1:]
    earned = "earned most:" if others else "earned"
    text = f"{best.policy} {earned} {estimate_text(best.reward, decimals_for([best.reward]))}"
    text += " per slot"
    names = comparison.comparator_names
    if names and has_share(comparison, names[-1]):
        share = number(100 * best.share_of[names[-1]].mean, 1)
        text += f", {share} % of the {plain(names[-1])}"
    ahead = [_ahead(best, other.policy) for other in others[:1] if other.policy in best.over]
    if len(others) > 1 and others[-1].policy in best.over:
        last = _ahead(best, others[-1].policy)
        ahead.append(f"{last}, the last of {len(rows)}")
    if ahead:
        paired = ", paired" if len(comparison.seeds) > 1 else ""
        text += f"; that is {' and '.join(ahead)} ({seeds_text(comparison)}{paired})."
    else:
        text += f" ({seeds_text(comparison)})."
    lead = best.over.get(others[0].policy) if others else None
    if lead is not None and lead.low is not None and lead.low <= 0:
        text += (
            f" Over these seeds the lead of {best.policy} over {others[0].policy} is within "
            "the confidence interval: it may be chance."
        )
    return text


def _ahead(best: Row, other: str) -> str:
    over = best.over[other]
    decimals = 1 if over.half is None else max(1, decimals_for([over]))
    half = "" if over.half is None else f" ± {number(over.half, decimals)}"
    return f"{number(over.mean, decimals)} %{half} more than {other}"


def about_comparator(comparison: Comparison, name: str) -> str:
    """What a comparator is, what it earns, how well that is proved, and its regret bounds."""
    reward = comparison.comparator_reward(name)
    n = max(comparison.comparators[name, s].slots.size for s in comparison.seeds)
    where = f"all {n:,} slots" if n >= comparison.slots else f"{n:,} of {comparison.slots:,} slots"
    meaning = f"{_MEANING[name]}; " if name in _MEANING else ""
    gap = comparison.gap(name)
    proof = "exact" if gap == 0 else f"proved to within {small_share(gap)}"
    text = (
        f"{name}: {meaning}{estimate_text(reward, decimals_for([reward]))} per slot on {where}, "
        f"{proof}."
    )
    measured = [(row.regret[name].mean, row.policy) for row in comparison.table()]
    for bound, value in comparison.bounds(name).items():
        text += (
            f" Theoretical bound on the regret against it ({bound}): {number(value.mean)}; "
            f"measured: from {number(min(measured)[0])} ({min(measured)[1]}) "
            f"to {number(max(measured)[0])} ({max(measured)[1]})."
        )
    return text


def figure_title(comparison: Comparison, stem: str) -> str:
    """What a figure shows."""
    names = comparison.comparator_names
    return _TITLES.get(stem, stem).format(
        best=comparison.table()[0].policy, versus=names[0] if names else ""
    )


def figure_caption(comparison: Comparison, stem: str) -> str:
    """How to read a figure."""
    many = len(comparison.seeds) > 1
    mean = (
        f"Mean over {seeds_text(comparison)}; bands are 95 % confidence intervals."
        if many
        else "One seed: no confidence interval."
    )
    if stem == "average-reward":
        partial = [
            name
            for name in comparison.comparator_names
            if comparison.comparators[name, comparison.seeds[0]].slots.size < comparison.slots
        ]
        text = f"All rewards up to a slot, divided by the slots so far. {mean}"
        if comparison.comparator_names:
            text += " Grey dashed lines are comparators"
            if partial:
                text += f"; {' and '.join(partial)}: the mean over a sample of the slots"
            text += "."
        return text
    if stem == "ratio":
        paired = "Paired: both policies met the same arrivals and noise. " if many else ""
        return f"Above 1, {comparison.table()[0].policy} has earned more so far. {paired}{mean}"
    if stem == "regret":
        name = comparison.comparator_names[0]
        text = f"Reward of the {plain(name)} so far minus the policy's; below 0 is better. {mean}"
        for bound, value in comparison.bounds(name).items():
            text += (
                f" The theoretical bound ({bound}) at slot {comparison.slots:,} is "
                f"{number(value.mean)}, outside the axes."
            )
        return text
    return mean
