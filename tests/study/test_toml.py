"""An experiment written as a file is the same experiment."""

from __future__ import annotations

import tomllib

from gangwise.study.sweep import Experiment, experiment_toml


def test_an_experiment_file_says_the_same_as_the_experiment() -> None:
    experiment = Experiment(
        name="x",
        scenario="ogasched-default-v1",
        settings={"utility": 'a"\\b', "rho": 0.5},
        grid={"contention": [1, 5], "alpha": [[1, 1.5], [1, 2]]},
        cases=[{"servers": 4, "job_types": 2}],
        seeds=[3, 7],
        slots=None,
        metrics=["gain"],
        policies=[
            "drf",
            {
                "name": "ogasched-react",
                "label": "ascent",
                "arguments": {"fraction": 1e-7},
                "grid": {"steps": [1, 5]},
            },
        ],
    )
    text = experiment_toml(experiment.model_dump(mode="json"))
    assert Experiment.of(tomllib.loads(text)) == experiment
