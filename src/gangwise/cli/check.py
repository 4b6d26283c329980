"""``gangwise check``: does a policy or a scheduler keep to its contract?"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from gangwise.cli import completion
from gangwise.cli.options import Json, say
from gangwise.core.json_text import json_text


def check_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="POLICY_OR_SCHEDULER",
            help="file.py:Class, package.module:Class or a registered name, with arguments after a "
            "colon if wanted.",
            show_default=False,
            autocompletion=completion.deciders,
        ),
    ],
    kind: Annotated[
        Literal["policy", "scheduler"] | None,
        typer.Option(help="What it is; by default what the class, or the name, looks like."),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Of a policy that does not say its family itself.")
    ] = None,
    cases: Annotated[int, typer.Option(min=1, help="How many random problems are tried.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Draws the problems.")] = 0,
    isolated: Annotated[
        bool,
        typer.Option(
            "--isolated/--here",
            help="Run it in a process of its own, which sees observations only; or in this one.",
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Try a policy or scheduler on random problems, and say in a sentence what is wrong with it.

    It is imported and run in a process of its own that is told the problem and observations, never
    arrivals to come, work or rates; one that reads them all the same, beside its world, is named.
    Exit code 1 where it does not keep to the contract.
    """
    from gangwise.core.check import PolicyCheckFailed, check_policy
    from gangwise.jobs.check import SchedulerCheckFailed, check_scheduler

    kind = kind or _kind_of(what)
    fault = ""
    try:
        if kind == "policy":
            check_policy(what, cases, seed=seed, family=family, isolated=isolated)
        else:
            check_scheduler(what, cases, seed, isolated)
    except (PolicyCheckFailed, SchedulerCheckFailed) as error:
        fault = str(error)
    where = "in a process of its own" if isolated else "in this process"
    if as_json:
        told: dict[str, Any] = {"name": what, "kind": kind, "cases": cases, "seed": seed}
        print(json_text({**told, "isolated": isolated, "sound": not fault, "fault": fault or None}))
    elif not fault:
        print(f"{what} keeps to the contract of a {kind}: tried on {cases} random cases, {where}")
    if fault:
        if not as_json:
            say(f"gangwise: {fault}")
        raise typer.Exit(1)


def _kind_of(what: str) -> Literal["policy", "scheduler"]:
    """By the registered name, or by what the class has; it is not imported here."""
    from gangwise.core.errors import UnknownName
    from gangwise.core.isolation import IsolatedProcess
    from gangwise.core.registry import ANY, entries, is_outside, parse
    from gangwise.jobs.scheduler import parts

    if is_outside(what):
        has = IsolatedProcess("policy", what, {}).about["methods"]
        return "scheduler" if "place" in has else "policy"
    policies, name = entries("policy"), parse(what)[0]
    schedulers = [each for each in entries("scheduler") if each != ANY]
    schedulers += [*parts("queue"), *parts("backfilling"), *parts("choice")]
    if name not in policies and name.split("+")[0] not in schedulers:
        raise UnknownName("policy or scheduler", name, [*policies, *schedulers])
    return "policy" if name in policies else "scheduler"
