"""Old import paths, for one release: each warns and gives the module from its new place."""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_SITES = "calibration forecast kueue node_effects preemption retelling site slurm_files slurm_site "
_SITES += "slurm_limits slurm_passes slurm_places wait_history whole_nodes"
_PAPERS = "approximation_jobs estimators fluctuating_speeds gain_overhead gangs reproduce scenarios"
MOVED = {f"jobs.{name}": f"sites.{name}" for name in _SITES.split()}
MOVED |= {name: f"papers.{name}" for name in _PAPERS.split()}
MOVED |= {"jobs.filling": "papers.reproduce.field"}
MOVED |= {"scenarios.jobs": "study.job_classes", "traces.slots": "papers.scenarios"}
MOVED |= dict.fromkeys(("traces.formats.slurm_notation", "jobs.slurm_values"), "notation")
_SIBLINGS = """
cli.logs=replay,trace core.contracts=identity core.simulation=check core.terminal=wording
engines.engine=intake jobs.compiled=stacks jobs.distance=distance_kernels
logs.formats.slurm=slurm_json logs.formats.tabular=swf logs.formats.training=measured_speeds,philly
logs.text=blocks papers.approximation_jobs.policies=baselines,opm
papers.approximation_jobs.problem=workloads papers.fluctuating_speeds.problem=speeds
papers.gangs.placement=milp papers.gangs.policies=environment
papers.scenarios.drawn=alibaba,esdp,files,ogasched,opm papers.scenarios.opening=fluctuating_speeds
report.answers=usage report.charts=nodes,traces report.jobs=causes report.plotting=drawing
service.store=sound sites.node_effects=distances sites.slurm_limits=slurm_minutes
sites.slurm_places=several_pools sites.wait_history=quantile_forest study.answer=where_waited
study.explain=from_history study.runs=store
"""
"""Modules whose contents stand in a sibling: where they are, and what they were called."""
for _where in _SIBLINGS.split():
    _home, _, _names = _where.partition("=")
    MOVED |= {f"{_home.rpartition('.')[0]}.{name}": _home for name in _names.split(",")}
_PACKAGES = "traces=logs logs.io=logs experiments=study papers.slots=papers.scenarios"
_PACKAGES += " logs.pending=sites.wait_history notation.kubernetes=notation notation.slurm=notation"
_PACKAGES += " notation.units=notation jobs.route_kernels=study.route jobs.part_names=catalogue"
MOVED |= dict(pair.split("=") for pair in _PACKAGES.split())


class _MovedModules(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old_path = fullname.removeprefix("gangwise.")
        for place in sorted(MOVED, key=len, reverse=True):
            if old_path == place or old_path.startswith(f"{place}."):
                new_path = f"gangwise.{MOVED[place]}{old_path.removeprefix(place)}"
                return ModuleSpec(fullname, _MovedModules(), loader_state=new_path)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        message = f"{spec.name} is {spec.loader_state} now; the old path ends with version 0.4"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        module = importlib.import_module(spec.loader_state)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # which import has overwritten


def former_face(package: str, *modules: str) -> Callable[[str], Any]:
    """A package's ``__getattr__`` that warns and gives a name from the module that has it."""

    def load(name: str) -> Any:
        # Import asks a package for its modules by attribute first: they are no names of its face.
        if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is None:
            for module in modules:
                home = importlib.import_module(f".{module}", package)
                if (thing := getattr(home, name, None)) is not None:
                    place = f"{getattr(thing, '__module__', home.__name__)}.{name}"
                    message = f"{package}.{name} is {place} now; the old path ends with version 0.4"
                    warnings.warn(message, DeprecationWarning, stacklevel=2)
                    return thing
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load


# First, for the path of a package that moved would find its modules a second time.
sys.meta_path.insert(0, _MovedModules())
