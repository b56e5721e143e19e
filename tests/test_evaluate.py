"""Gaps, times and the table of results."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_policy

from renco import evaluate as module
from renco.data import Trajectories
from renco.evaluate import (
    COLUMNS,
    Evaluation,
    append_row,
    evaluate,
    read_rows,
    relative_gap,
)
from renco.manifest import Manifest
from renco.searches import SEARCHES, Search, SearchOptions
from renco.stop import MaxIterations, seconds_left


def labelled(problem: str = "tsp", n: int = 8, count: int = 6) -> Trajectories:
    """Returns a set whose labels visit the nodes in the order of their ids."""
    settings = {"tsp": {}, "cvrp": {"capacity": 40, "demand": [1, 5]}}
    manifest = Manifest(
        problem=problem,
        n=n,
        count=count,
        seed=5,
        settings=settings[problem],
        expert="in-order",
        version="1",
        seconds=0.1,
    )
    instances = manifest.draw(0, count)
    rows = manifest.rows(np.arange(count), instances)
    ids = list(range(0 if problem == "tsp" else 1, n + (problem != "tsp")))
    rows["decisions"] = instances.decisions([[ids]] * count).numpy()
    rows["cost"] = instances.cost([[ids]] * count)
    return Trajectories.in_memory(manifest, rows)


def test_the_gap_is_relative_to_the_reference() -> None:
    """Percent above the reference, also where costs are negative prizes."""
    gaps = relative_gap(np.array([11.0, 9.0, -8.0]), np.array([10.0, 10.0, -10.0]))
    assert gaps.tolist() == pytest.approx([10.0, -10.0, 20.0])


def test_senseless_references_are_refused(unchecked: None) -> None:
    """A reference of zero has no relative gap, nor has one of another size."""
    with pytest.raises(ValueError, match="instance 1 is zero"):
        relative_gap(np.ones(2), np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="references"):
        relative_gap(np.ones(2), np.ones(3))


def test_mean_and_error_follow_from_the_gaps() -> None:
    """The standard error is that of the mean, from the sample deviation."""
    data = labelled(count=4)
    found = evaluate(make_policy("tsp"), data)
    gaps = relative_gap(found.cost, data.costs)
    assert found.gap_mean == pytest.approx(gaps.mean())
    assert found.gap_sem == pytest.approx(gaps.std(ddof=1) / 2)
    assert evaluate(make_policy("tsp"), data, limit=1).gap_sem == 0.0


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_batches_and_single_instances_cost_the_same(search: str, problem: str) -> None:
    """Only single instances are timed."""
    data, policy = labelled(problem), make_policy(problem)
    single = evaluate(policy, data, search=search)
    together = evaluate(policy, data, search=search, batch=4)
    assert single.cost.tolist() == pytest.approx(together.cost.tolist())
    assert together.seconds is None and together.batch == 4
    assert single.seconds is not None and (single.seconds > 0).all()


def test_the_warm_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first instance is solved once more before the clock starts."""
    calls: list[int] = []
    greedy = SEARCHES["greedy"]

    def run(*arguments: object) -> object:
        calls.append(len(arguments[1]))  # type: ignore[arg-type]
        return greedy.run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setitem(SEARCHES, "counted", Search(run, greedy.width))  # type: ignore[arg-type]
    progress: list[tuple[int, int]] = []
    found = evaluate(
        make_policy("tsp"),
        labelled(count=3),
        search="counted",
        progress=lambda done, total: progress.append((done, total)),
    )
    assert calls == [1, 1, 1, 1]
    assert found.seconds is not None and len(found.seconds) == 3
    assert progress == [(1, 3), (2, 3), (3, 3)]


def test_the_warm_up_of_a_search_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One iteration of a large instance may take minutes: a second is enough."""
    lns, stops = SEARCHES["lns"], []

    def run(*arguments: Any) -> object:
        stops.append(arguments[2].stop)
        return lns.run(*arguments)

    monkeypatch.setitem(SEARCHES, "watched", Search(run, lns.width, improves=True))
    asked = MaxIterations(3)
    evaluate(
        make_policy("tsp"),
        labelled(n=12, count=2),
        search="watched",
        options=SearchOptions(stop=asked, beam=2),
    )
    assert seconds_left(stops[0]) <= 1
    assert stops[1:] == [asked, asked]


def test_improvement_is_measured_too() -> None:
    """The large neighborhood search is evaluated like the others."""
    options = SearchOptions(stop=MaxIterations(2), beam=2)
    found = evaluate(
        make_policy("tsp"), labelled(n=12, count=2), search="lns", options=options
    )
    assert found.row()["search"] == "lns" and found.options.beam == 2


def test_the_limit_takes_the_first_instances() -> None:
    """A limit beyond the end takes all."""
    policy, data = make_policy("tsp"), labelled(count=4)
    assert len(evaluate(policy, data, limit=2, batch=9).cost) == 2
    assert len(evaluate(policy, data, limit=99, batch=9).cost) == 4


def test_a_set_of_another_problem_is_refused() -> None:
    """The message names both; senseless sizes are named as well."""
    with pytest.raises(ValueError, match="for cvrp, the set is of tsp"):
        evaluate(make_policy("cvrp"), labelled())
    with pytest.raises(ValueError, match="got 0"):
        evaluate(make_policy("tsp"), labelled(), batch=0)
    with pytest.raises(ValueError, match="magic"):
        evaluate(make_policy("tsp"), labelled(), search="magic")


@pytest.fixture
def found() -> Evaluation:
    """Returns a small evaluation."""
    return evaluate(make_policy("tsp"), labelled(count=2), dataset="tiny-test")


def test_a_row_says_how_it_was_measured(found: Evaluation) -> None:
    """All columns are filled in."""
    row = found.row()
    assert tuple(row) == COLUMNS
    assert row["model"] == "untrained" and row["dataset"] == "tiny-test"
    assert row["k"] == 1000 and row["width"] == 1 and row["instances"] == 2
    assert row["threads"] == 1 and row["precision"] == "float32"
    assert len(row["dataset_sha256"]) == 64 and row["commit"]
    assert row["seconds_per_instance"] > 0 and row["hardware"]


def test_rows_are_appended_below_one_heading(found: Evaluation, tmp_path: Path) -> None:
    """The file reads back as it was written, even if its last line was cut off."""
    path = tmp_path / "rows.csv"
    append_row(path, found.row())
    path.write_text(path.read_text().rstrip("\n"))
    append_row(path, found.row())
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 3
    again = read_rows([path])
    assert [row["gap_mean"] for row in again] == [str(found.row()["gap_mean"])] * 2


def test_other_tables_are_not_appended_to(found: Evaluation, tmp_path: Path) -> None:
    """A file with other columns stays as it is."""
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv: has columns a, b"):
        append_row(path, found.row())
    assert path.read_text() == "a,b\n1,2\n"


def test_without_git_the_version_stands_for_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An installed package has no commit."""

    def missing(*arguments: object, **options: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(module.subprocess, "run", missing)
    assert module.commit() == module.__version__
