"""Equations of the papers: which symbol implements them, in which inner loop, and what tests it.

``gangwise show "OGASched (9)"`` prints an entry; the page *Equations* of the documentation lists
them all. A test keeps the table true: every symbol and kernel exists and says the label in its
docstring, and every test exists. Equations that only a proof needs are left out.

Papers are called OGASched (gain minus overhead), ESDP (fluctuating speeds), and OPS and OPM
(approximation jobs).
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any, NamedTuple

from gangwise.core.errors import UnknownName


class Equation(NamedTuple):
    """One entry.

    Attributes
    ----------
    label : str
        Paper and number, such as ``OGASched (9)``, ``ESDP §3.4`` or ``ESDP Algorithm 2``.
    name : str
        What it is called.
    symbol : str
        ``module:attribute`` below ``gangwise`` that implements it.
    kernel : str
        The inner loop that does the work, empty where the symbol does it itself.
    test : str
        File and function below ``tests``.
    """

    label: str
    name: str
    symbol: str
    kernel: str
    test: str


GAIN, SPEEDS, GANGS = "gain_overhead", "fluctuating_speeds", "gangs"
SOLVERS = f"{SPEEDS}.solvers"
JOBS, ESTIMATORS = "approximation_jobs", "estimators.estimators"

OGASCHED = (
    Equation(
        "OGASched (1)",
        "arrivals x(t)",
        "core.workload:BernoulliArrivals",
        "",
        "core/test_workload.py::test_frequencies",
    ),
    Equation(
        "OGASched (2)",
        "decision y(t)",
        f"{GAIN}.problem:GainOverheadProblem.shape",
        "",
        f"{GAIN}/test_reward.py::test_hand_case_of_two_servers_and_two_device_types",
    ),
    Equation(
        "OGASched (3)",
        "requests",
        f"{GAIN}.problem:GainOverheadProblem.upper",
        f"{GAIN}.kernels:evaluate",
        f"{GAIN}/test_reward.py::test_values_out_of_range_are_refused",
    ),
    Equation(
        "OGASched (4)",
        "capacities",
        f"{GAIN}.problem:GainOverheadProblem.upper",
        f"{GAIN}.kernels:evaluate",
        f"{GAIN}/test_reward.py::test_capacity_counts_reservations_of_absent_job_types_too",
    ),
    Equation(
        "OGASched (5)",
        "reward: gain minus overhead",
        f"{GAIN}.problem:GainOverheadProblem.reward",
        f"{GAIN}.kernels:evaluate",
        f"{GAIN}/test_reward.py::test_reward_and_gradient_agree_with_the_plain_twin",
    ),
    Equation(
        "OGASched (6)",
        "best fixed decision and regret",
        f"{GAIN}.offline:best_fixed",
        "",
        f"{GAIN}/test_offline.py::test_agrees_with_cvxpy_and_the_certificate_holds",
    ),
    Equation(
        "OGASched (7)",
        "separable gain",
        f"{GAIN}.problem:Utilities",
        f"{GAIN}.kernels:evaluate",
        f"{GAIN}/test_reward.py::test_utility_values",
    ),
    Equation(
        "OGASched (8)",
        "slope bound",
        f"{GAIN}.problem:Utilities.bound",
        "",
        f"{GAIN}/test_reward.py::test_utility_slopes_and_bounds",
    ),
    Equation(
        "OGASched (9)",
        "gradient",
        f"{GAIN}.ascent:Ascent.slope",
        f"{GAIN}.kernels:gradient",
        f"{GAIN}/test_reward.py::test_gradient_is_the_derivative_where_there_is_one",
    ),
    Equation(
        "OGASched (10)",
        "dominant device type k*",
        f"{GAIN}.ascent:Ascent.slope",
        f"{GAIN}.kernels:overhead_prices",
        f"{GAIN}/test_reward.py::test_softmax_prices_sum_to_a_mean_of_the_overhead_coefficients",
    ),
    Equation(
        "OGASched (11)",
        "projected step",
        f"{GAIN}.ascent:Ascent.climb",
        f"{GAIN}.kernels:ascend",
        f"{GAIN}/test_ogasched.py::test_reserve_steps_as_the_plain_twin_from_the_same_state",
    ),
    Equation(
        "OGASched (12)",
        "KKT conditions of the projection",
        f"{GAIN}.ascent:project",
        f"{GAIN}.kernels:threshold_by_fixing",
        f"{GAIN}/test_kernels.py::test_agrees_with_cvxpy_on_hundreds_of_cases",
    ),
    Equation(
        "OGASched (13)",
        "multiplier ρ as printed",
        f"{GAIN}.ascent:project_as_printed",
        f"{GAIN}.kernels:_project_block_as_printed",
        f"{GAIN}/test_kernels.py::test_the_printed_projection_errs_where_documented",
    ),
    Equation(
        "OGASched (14)",
        "regret bound",
        f"{GAIN}.offline:regret_bound",
        "",
        f"{GAIN}/test_ogasched.py::test_regret_of_reserve_is_below_its_guarantees_and_falls_per_slot",
    ),
    Equation(
        "OGASched (22)",
        "gradient bound",
        f"{GAIN}.ascent:gradient_bound",
        "",
        f"{GAIN}/test_ogasched.py::test_diameter_and_gradient_bound_hold",
    ),
    Equation(
        "OGASched (24)",
        "distance of two decisions",
        f"{GAIN}.ascent:diameter",
        "",
        f"{GAIN}/test_ogasched.py::test_diameter_and_gradient_bound_hold",
    ),
    Equation(
        "OGASched (25)",
        "diameter of the decisions",
        f"{GAIN}.ascent:diameter",
        "",
        f"{GAIN}/test_ogasched.py::test_diameter_and_gradient_bound_hold",
    ),
    Equation(
        "OGASched (26)",
        "step size of the theorem",
        f"{GAIN}.ascent:Theoretical",
        "",
        f"{GAIN}/test_ogasched.py::test_step_rules_by_hand",
    ),
    Equation(
        "OGASched (27)",
        "utilities",
        f"{GAIN}.problem:GainOverheadProblem.slope_terms",
        f"{GAIN}.kernels:curvature",
        f"{GAIN}/test_reward.py::test_utility_slopes_and_bounds",
    ),
    Equation(
        "OGASched Algorithm 1",
        "OGASched",
        f"{GAIN}.ogasched:OGASchedReserve",
        f"{GAIN}.kernels:project_as_printed",
        f"{GAIN}/test_ogasched.py::test_hand_ascent",
    ),
    Equation(
        "OGASched §3.4",
        "multiple arrivals",
        f"{GAIN}.environment:Ports",
        "",
        "scenarios/test_ogasched.py::test_multiple_arrivals_earn_what_section_3_4_says",
    ),
    Equation(
        "OGASched §3.5",
        "gangs with gain and overhead",
        f"{GANGS}.problem:GangProblem",
        "",
        f"{GANGS}/test_problem.py::test_reward_agrees_with_the_formula",
    ),
    Equation(
        "OGASched §4",
        "list scheduling baselines",
        f"{GAIN}.baselines:DRFAsPrinted",
        "",
        f"{GAIN}/test_baselines.py::test_agrees_with_the_plain_twin",
    ),
)

ESDP = (
    Equation(
        "ESDP (1)",
        "decision x(t)",
        f"{SPEEDS}.problem:FluctuatingSpeedsProblem.check",
        "",
        f"{SPEEDS}/test_problem.py::test_the_check_accepts_exactly_the_feasible_decisions",
    ),
    Equation(
        "ESDP (2)",
        "capacities of the cluster",
        f"{SPEEDS}.problem:FluctuatingSpeedsProblem.check",
        f"{SPEEDS}.kernels:list_schedule",
        f"{SPEEDS}/test_problem.py::test_the_check_accepts_exactly_the_feasible_decisions",
    ),
    Equation(
        "ESDP (3)",
        "net utility and supply cost",
        f"{SPEEDS}.problem:linear_cost",
        "",
        f"{SPEEDS}/test_problem.py::test_costs",
    ),
    Equation(
        "ESDP (4)",
        "nothing where no job came",
        f"{SPEEDS}.problem:FluctuatingSpeedsProblem.available",
        "",
        f"{SPEEDS}/test_problem.py::test_a_channel_of_an_absent_job_type_is_named",
    ),
    Equation(
        "ESDP (5)",
        "utility of a slot",
        f"{SPEEDS}.environment:FluctuatingSpeedsEnvironment",
        "",
        f"{SPEEDS}/test_environment.py::test_a_slot_is_what_the_formulas_say",
    ),
    Equation(
        "ESDP (6)",
        "regret",
        f"{SPEEDS}.offline:pseudo_regret",
        "",
        f"{SPEEDS}/test_offline.py::test_three_regrets_agree_on_average",
    ),
    Equation(
        "ESDP (7)",
        "omniscient policy x*(t) and Ω(t)",
        f"{SPEEDS}.offline:omniscient",
        "",
        f"{SPEEDS}/test_offline.py::test_omniscient_is_the_best_of_all_choices_in_every_slot",
    ),
    Equation(
        "ESDP (8)",
        "uses of a channel n",
        f"{SPEEDS}.esdp:ESDP.scores",
        "",
        f"{SPEEDS}/test_esdp.py::test_hand_case_h3",
    ),
    Equation(
        "ESDP (9)",
        "means v̂",
        f"{SPEEDS}.esdp:ESDP.scores",
        "",
        f"{SPEEDS}/test_esdp.py::test_hand_case_h3",
    ),
    Equation(
        "ESDP (10)",
        "widths σ̂²",
        f"{SPEEDS}.esdp:ESDP.scores",
        "",
        f"{SPEEDS}/test_esdp.py::test_hand_case_h3",
    ),
    Equation(
        "ESDP (11)",
        "exploration g(t)",
        f"{SPEEDS}.esdp:exploration",
        "",
        f"{SPEEDS}/test_esdp.py::test_sequences_are_those_of_the_figures",
    ),
    Equation(
        "ESDP (12)",
        "P3: the problem of a slot",
        f"{SOLVERS}.solver:P3Solver",
        f"{SOLVERS}.search:search",
        f"{SPEEDS}/test_solvers.py::test_exact_finds_what_brute_force_finds",
    ),
    Equation(
        "ESDP (14)",
        "rounding δ(t)",
        f"{SPEEDS}.esdp:delta",
        "",
        f"{SPEEDS}/test_esdp.py::test_sequences_are_those_of_the_figures",
    ),
    Equation(
        "ESDP (16)",
        "scaled means Υ̂",
        f"{SOLVERS}.programme:scale",
        "",
        f"{SPEEDS}/test_solvers_programme.py::test_h3_a_slot_by_hand",
    ),
    Equation(
        "ESDP (17)",
        "scaled widths Σ̂²",
        f"{SOLVERS}.programme:scale",
        "",
        f"{SPEEDS}/test_solvers_programme.py::test_h3_a_slot_by_hand",
    ),
    Equation(
        "ESDP (18)",
        "scale ξ",
        f"{SOLVERS}.programme:scale",
        "",
        f"{SPEEDS}/test_solvers_programme.py::test_h3_a_slot_by_hand",
    ),
    Equation(
        "ESDP (19)",
        "values S",
        f"{SOLVERS}.programme:scale",
        "",
        f"{SPEEDS}/test_solvers_programme.py::test_h3_a_slot_by_hand",
    ),
    Equation(
        "ESDP (20)",
        "P4(s): budgeted problems",
        f"{SOLVERS}.programme:Table",
        "",
        f"{SPEEDS}/test_solvers_programme.py::test_table_equals_the_recursion_and_its_choices_are_worth_it",
    ),
    Equation(
        "ESDP (21)",
        "selection of s",
        f"{SOLVERS}.programme:Table.select",
        "",
        f"{SPEEDS}/test_solvers_programme.py::test_selection_equals_p3_of_the_rounded_data",
    ),
    Equation(
        "ESDP (22)",
        "P5: channels up to i decided",
        f"{SOLVERS}.programme:DynamicProgramme",
        f"{SOLVERS}.kernels:tabulate",
        f"{SPEEDS}/test_solvers_programme.py::test_table_equals_the_recursion_and_its_choices_are_worth_it",
    ),
    Equation(
        "ESDP (23)",
        "channel skipped",
        f"{SOLVERS}.programme:DynamicProgramme",
        f"{SOLVERS}.kernels:tabulate",
        f"{SPEEDS}/test_solvers_programme.py::test_h1_the_missing_line",
    ),
    Equation(
        "ESDP (24)",
        "value of a skipped channel",
        f"{SOLVERS}.programme:DynamicProgramme",
        f"{SOLVERS}.kernels:tabulate",
        f"{SPEEDS}/test_solvers_programme.py::test_h1_the_missing_line",
    ),
    Equation(
        "ESDP (25)",
        "capacity after a channel",
        f"{SOLVERS}.programme:DynamicProgramme",
        f"{SOLVERS}.kernels:tabulate",
        f"{SPEEDS}/test_solvers_programme.py::test_h4_three_channels",
    ),
    Equation(
        "ESDP (26)",
        "budget after a channel",
        f"{SOLVERS}.programme:DynamicProgramme",
        f"{SOLVERS}.kernels:tabulate",
        f"{SPEEDS}/test_solvers_programme.py::test_h4_three_channels",
    ),
    Equation(
        "ESDP (27)",
        "recursion",
        f"{SOLVERS}.programme:DynamicProgramme",
        f"{SOLVERS}.kernels:tabulate",
        f"{SPEEDS}/test_solvers_programme.py::test_table_equals_the_recursion_and_its_choices_are_worth_it",
    ),
    Equation(
        "ESDP Algorithm 1",
        "ESDP",
        f"{SPEEDS}.esdp:ESDP",
        "",
        f"{SPEEDS}/test_esdp.py::test_every_choice_is_the_best_of_all",
    ),
    Equation(
        "ESDP Algorithm 2",
        "the dynamic programme as printed",
        f"{SOLVERS}.programme:algorithm_2",
        "",
        f"{SPEEDS}/test_solvers_programme.py::test_printed_values_are_right_and_the_line_added_makes_the_choices_right",
    ),
    Equation(
        "ESDP §2.2",
        "devices of the whole cluster",
        f"{SPEEDS}.problem:Pool",
        "",
        f"{SPEEDS}/test_problem.py::test_bad_clusters",
    ),
    Equation(
        "ESDP §3.1",
        "normalisation into [0, 1]",
        f"{SPEEDS}.problem:Scale",
        "",
        f"{SPEEDS}/test_problem.py::test_normalisation_is_stated_and_checked",
    ),
    Equation(
        "ESDP §3.4",
        "gangs at fluctuating speeds",
        f"{GANGS}.problem:GangSpeedsProblem",
        "",
        f"{GANGS}/test_problem_speeds.py::test_a_slot_by_hand",
    ),
    Equation(
        "ESDP §4",
        "baselines HAUF, LCF and LWTF",
        f"{SPEEDS}.baselines:HAUF",
        "",
        f"{SPEEDS}/test_baselines.py::test_hauf",
    ),
)

OPS_OPM = (
    Equation(
        "OPM (1)",
        "work of a slot X_j(t)",
        f"{JOBS}.environment:ApproximationEnvironment.step",
        f"{JOBS}.kernels:execute",
        f"{JOBS}/test_environment.py::test_rewards_add_up_to_the_overall_utility",
    ),
    Equation(
        "OPM (2)",
        "work of a job X_j",
        f"{JOBS}.environment:ApproximationEnvironment.results",
        f"{JOBS}.kernels:utility_gains",
        f"{JOBS}/test_environment.py::test_rewards_add_up_to_the_overall_utility",
    ),
    Equation(
        "OPM (P1)",
        "overall utility within budgets, offline",
        f"{JOBS}.offline:Programme",
        "",
        f"{JOBS}/test_offline.py::test_small_programmes_against_cvxpy",
    ),
    Equation(
        "OPM (3)",
        "one task per machine",
        f"{JOBS}.execution:tasks_of",
        f"{JOBS}.kernels:first_infeasible",
        f"{JOBS}/test_environment.py::test_impossible_decisions_are_refused",
    ),
    Equation(
        "OPM (4)",
        "budgets",
        f"{JOBS}.environment:ApproximationEnvironment.step",
        f"{JOBS}.kernels:execute",
        f"{JOBS}/test_environment.py::test_budgets_are_enforced_task_by_task",
    ),
    Equation(
        "OPM (6)",
        "dynamic regret",
        f"{JOBS}.regret:dynamic_regret",
        f"{JOBS}.kernels:utility_gains",
        f"{JOBS}/test_offline.py::test_regret_against_means_may_be_negative",
    ),
    Equation(
        "OPM (7)",
        "optimum of the means",
        f"{JOBS}.offline:offline_optimum",
        "",
        f"{JOBS}/test_offline.py::test_known_means_by_hand",
    ),
    Equation(
        "OPM (8)", "fit", f"{JOBS}.regret:fit", "", f"{JOBS}/test_offline.py::test_fit_is_signed"
    ),
    Equation(
        "OPM (9)",
        "utility per slot so far",
        f"{JOBS}.opm:OPM._slopes",
        f"{JOBS}.kernels:slopes",
        f"{JOBS}/test_opm.py::test_opm_follows_the_plain_one",
    ),
    Equation(
        "OPS (10)",
        "budget of a slot",
        f"{JOBS}.ops:OPS",
        "",
        f"{JOBS}/test_opm.py::test_ops_follows_the_plain_one",
    ),
    Equation(
        "OPS (12)",
        "upper confidence bound",
        f"{ESTIMATORS}:upper_bound",
        "",
        "estimators/test_estimators.py::test_ucb_by_hand",
    ),
    Equation(
        "OPS (13)",
        "empirical rate",
        f"{ESTIMATORS}:upper_bound",
        "",
        "estimators/test_estimators.py::test_ucb_is_the_plain_one",
    ),
    Equation(
        "OPS (14)",
        "confidence radius",
        f"{ESTIMATORS}:confidence_radius",
        "",
        "estimators/test_estimators.py::test_confidence_radius_by_hand",
    ),
    Equation(
        "OPS (16)",
        "work of the slope, estimated or executed",
        f"{JOBS}.ops:OPS",
        "",
        f"{JOBS}/test_opm.py::test_ops_follows_the_plain_one",
    ),
    Equation(
        "OPS (18)",
        "gradient step of the shares",
        f"{JOBS}.opm:PrimalDual.climb",
        f"{JOBS}.kernels:primal_step",
        f"{JOBS}/test_opm.py::test_ops_by_hand",
    ),
    Equation(
        "OPS (19)",
        "projection onto [0, 1]",
        f"{JOBS}.opm:PrimalDual.climb",
        f"{JOBS}.kernels:primal_step",
        f"{JOBS}/test_opm.py::test_ops_follows_the_plain_one",
    ),
    Equation(
        "OPS (20)",
        "multiplier",
        f"{JOBS}.opm:PrimalDual.multipliers",
        "",
        f"{JOBS}/test_opm.py::test_multipliers_are_those_of_20_written_out",
    ),
    Equation(
        "OPS (21)",
        "random rounding",
        f"{JOBS}.opm:PrimalDual.draw",
        f"{JOBS}.kernels:sample_fresh",
        f"{JOBS}/test_kernels.py::test_fresh_draw_by_hand",
    ),
    Equation(
        "OPS (22)",
        "rounding is unbiased",
        f"{JOBS}.opm:PrimalDual.draw",
        f"{JOBS}.kernels:sample_fresh",
        f"{JOBS}/test_kernels.py::test_long_runs_of_draws_are_unbiased",
    ),
    Equation(
        "OPS (23)",
        "claimed fit, one job",
        f"{JOBS}.regret:claimed_fit",
        "",
        f"{JOBS}/test_regret.py::test_claims_by_hand",
    ),
    Equation(
        "OPS (24)",
        "claimed regret, one job",
        f"{JOBS}.regret:claimed_regret",
        "",
        f"{JOBS}/test_regret.py::test_claims_by_hand",
    ),
    Equation(
        "OPS (25)",
        "multiplier as a virtual queue",
        f"{JOBS}.opm:PrimalDual.multipliers",
        "",
        f"{JOBS}/test_opm.py::test_multipliers_are_those_of_20_written_out",
    ),
    Equation(
        "OPS Algorithm 1",
        "OPS",
        f"{JOBS}.ops:OPS",
        "",
        f"{JOBS}/test_opm.py::test_ops_follows_the_plain_one",
    ),
    Equation(
        "OPM (64)",
        "budget of a slot β_j",
        f"{JOBS}.opm:OPM._target",
        "",
        f"{JOBS}/test_opm.py::test_opm_follows_the_plain_one",
    ),
    Equation(
        "OPM (66)",
        "upper confidence bound, several jobs",
        f"{ESTIMATORS}:upper_bound",
        "",
        "estimators/test_estimators.py::test_ucb_by_hand",
    ),
    Equation(
        "OPM (67)",
        "empirical rate, several jobs",
        f"{ESTIMATORS}:UCB",
        "",
        "estimators/test_estimators.py::test_ucb_is_the_plain_one",
    ),
    Equation(
        "OPM (68)",
        "slope of the Lagrangian",
        f"{JOBS}.opm:OPM._slopes",
        f"{JOBS}.kernels:slopes",
        f"{JOBS}/test_opm.py::test_opm_follows_the_plain_one",
    ),
    Equation(
        "OPM (69)",
        "gradient step, unprojected",
        f"{JOBS}.opm:PrimalDual.climb",
        f"{JOBS}.kernels:primal_step",
        f"{JOBS}/test_kernels.py::test_step_follows_the_plain_one_along_a_trajectory",
    ),
    Equation(
        "OPM (P4)",
        "projection, machine by machine",
        f"{JOBS}.opm:PrimalDual.climb",
        f"{JOBS}.kernels:simplex_threshold",
        f"{JOBS}/test_kernels.py::test_projection_solves_p4",
    ),
    Equation(
        "OPM (72)",
        "rounding is unbiased, several jobs",
        f"{JOBS}.opm:PrimalDual.draw",
        f"{JOBS}.kernels:sample_fresh",
        f"{JOBS}/test_kernels.py::test_long_runs_of_draws_are_unbiased",
    ),
    Equation(
        "OPM (73)",
        "multipliers",
        f"{JOBS}.opm:PrimalDual.multipliers",
        "",
        f"{JOBS}/test_opm.py::test_multipliers_are_those_of_20_written_out",
    ),
    Equation(
        "OPM (74)",
        "claimed fit, several jobs",
        f"{JOBS}.regret:claimed_fit",
        "",
        f"{JOBS}/test_regret.py::test_claims_by_hand",
    ),
    Equation(
        "OPM (101)",
        "claimed regret, jobs alike in time",
        f"{JOBS}.regret:claimed_regret",
        "",
        f"{JOBS}/test_regret.py::test_claims_by_hand",
    ),
    Equation(
        "OPM (102)",
        "capacities",
        f"{JOBS}.execution:tasks_of",
        "",
        f"{JOBS}/test_environment.py::test_machines_of_given_capacity",
    ),
    Equation(
        "OPM (103)",
        "parallelism",
        f"{JOBS}.execution:tasks_of",
        "",
        f"{JOBS}/test_environment.py::test_machines_of_given_capacity",
    ),
    Equation(
        "OPM (P5)",
        "projection in the general setting",
        f"{JOBS}.general:project_general",
        f"{JOBS}.general:alternate_prices",
        f"{JOBS}/test_general.py::test_projection_against_clarabel",
    ),
)
"""One paper, numbered through: its label is OPS in §IV, (10)–(63), and OPM elsewhere."""

EQUATIONS = (*OGASCHED, *ESDP, *OPS_OPM)


def find(label: str) -> Equation:
    """The entry of a label; case and blanks do not matter.

    Raises
    ------
    UnknownName
        For a label that is not in the table; says what was probably meant.

    Examples
    --------
    >>> find("ogasched(9)").symbol
    'gain_overhead.ascent:Ascent.slope'
    """
    plain = {"".join(entry.label.lower().split()): entry for entry in EQUATIONS}
    wanted = "".join(label.lower().split())
    if wanted not in plain:
        raise UnknownName("equation", label, [entry.label for entry in EQUATIONS])
    return plain[wanted]


class Place(NamedTuple):
    """Where a symbol is, and what it says of itself."""

    symbol: str
    file: str
    line: int
    docstring: str


def locate(where: str) -> Place:
    """Find ``module:attribute``, below ``gangwise``.

    Examples
    --------
    >>> locate("core.workload:BernoulliArrivals").docstring.splitlines()[0]
    'At most one job of each type in a slot, with probability ``probability[l]`` (OGASched (1)).'
    """
    module, _, attribute = where.partition(":")
    found: Any = importlib.import_module(f"gangwise.{module}")
    for part in attribute.split("."):
        found = getattr(found, part)
    if isinstance(found, property):
        found = found.fget
    # A kernel is a compiled object, a cached property an object of its own: both know the function.
    for wrapped in ("py_func", "func"):
        found = getattr(found, wrapped, found)
    line = inspect.getsourcelines(found)[1]
    file = inspect.getsourcefile(found) or ""
    return Place(where, file, line, inspect.getdoc(found) or "")


def mentions(text: str, label: str) -> bool:
    """Whether a text says a label, by itself or within a range.

    Examples
    --------
    >>> mentions("Scaling, ESDP (16)–(19).", "ESDP (18)"), mentions("ESDP (1)", "ESDP (11)")
    (True, False)
    """
    if label in text:
        return True
    paper, _, number = label.partition(" (")
    ranges = re.findall(rf"{re.escape(paper)} \((\d+)\)–\((\d+)\)", text)
    return bool(number) and any(int(a) <= int(number[:-1]) <= int(b) for a, b in ranges)


def markdown() -> str:
    """The table as a page of the documentation."""
    lines = [
        "# Equations",
        "",
        "Which symbol implements an equation, in which inner loop, and what tests it; "
        '`gangwise show "OGASched (9)"` prints the same. Written by `python docs/equations.py`.',
        "",
        "| equation | what | symbol | inner loop | test |",
        "|---|---|---|---|---|",
    ]
    for entry in EQUATIONS:
        kernel = f"`{entry.kernel}`" if entry.kernel else ""
        lines.append(
            f"| {entry.label} | {entry.name} | `{entry.symbol}` | {kernel} | `tests/{entry.test}` |"
        )
    return "\n".join(lines) + "\n"
