import pytest

import gangwise
from gangwise.study.compare import Comparison


@pytest.fixture(scope="session")
def real() -> Comparison:
    return gangwise.compare(
        "ogasched-default-v1:servers=16,job_types=4",
        ["ogasched-react", "drf", "fairness"],
        slots=40,
        seeds=[0, 1],
        optimum_slots=10,
    )
