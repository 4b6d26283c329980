"""AccaSim playing an SWF log first come, first served on one pool; prints id, start, end.

To be run as a program: ``python accasim_fcfs.py LOG.swf PROCESSORS``. AccaSim 1.1.3 was written
for older Pythons; the few names that have moved since are put back before it is imported.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import logging
import sys
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path


def main(log: str, processors: int) -> None:
    warnings.simplefilter("ignore")
    for name in ("Mapping", "MutableMapping", "Iterable", "Callable", "Sequence"):
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    from accasim.base.allocator_class import FirstFit
    from accasim.base.scheduler_class import FirstInFirstOut
    from accasim.base.simulator_class import Simulator

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        cluster = {
            "groups": {"pool": {"core": processors, "mem": 10**9}},
            "resources": {"pool": 1},
            "start_time": 0,
            "equivalence": {"processor": {"core": 1}},
        }
        description = Path(folder, "cluster.json")
        description.write_text(json.dumps(cluster))
        simulator = Simulator(
            log,
            str(description),
            FirstInFirstOut(FirstFit()),
            statistics_output=False,
            show_statistics=False,
            RESULTS_FOLDER_PATH=folder,
        )
        simulator.start_simulation()
        for line in next(Path(folder).glob("sched-*")).read_text().splitlines():
            first, _, last = line.split("__")
            times = [
                int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
                for text in last.split(";")[:2]
            ]
            print(first.split(";")[0], *times)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
