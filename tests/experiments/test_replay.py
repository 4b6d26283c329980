"""Replays told to programs."""

import json

from gangwise.experiments.replay import replay


def test_one_seed_has_no_interval_and_is_json():
    names = ["fcfs+easy+label", "fcfs"]
    found = replay("twin:alibaba-gpu-v2023", names, [3], first=30, world="like", nodes=4)
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    over = told["schedulers"][1]["over"]
    assert over["than"] == "fcfs+easy+label"
    assert (over["low"], over["high"]) == (None, None)
