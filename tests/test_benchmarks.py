"""Benchmarks follow the code that they measure."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_training import trajectories

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def last_line(*words: object) -> dict[str, list[dict[str, float]]]:
    """Runs a benchmark and returns what its last line says."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_all_training_loops_are_measured(tmp_path: Path) -> None:
    """Each has a rate and a share of the machine's peak."""
    data = trajectories("tsp", tmp_path / "tours")
    brief = ("--threads", 1, "--rounds", 1, "--seconds", 0.1)
    rows = last_line(BENCHMARKS / "training.py", "--data", data, *brief)["rows"]
    assert len(rows) == 6
    for row in rows:
        assert row["samples"] > 0 and row["nodes"] > row["samples"]
        assert 0 < row["of_peak"] < 3  # bfloat16 may exceed the peak of float32
