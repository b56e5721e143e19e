"""Pictures: written in the right format, of every problem, without global state."""

import json
import sys
from pathlib import Path

import pytest
from conftest import small
from matplotlib.figure import Figure
from matplotlib.text import Text

from renco.plot import (
    plot_curves,
    plot_gap_time,
    plot_history,
    plot_routes,
)
from renco.problems import CVRP, OP, TSP, Infeasible, Problem, Routes

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}

SOLVED: dict[str, tuple[Problem, Routes]] = {
    "tsp": (TSP([[0, 0], [0, 1], [1, 1], [1, 0]], title="square"), [[0, 1, 2, 3]]),
    "cvrp": (
        CVRP([[0, 0], [1, 0], [0, 1], [-1, 0]], [0, 2, 3, 4], 5, best_known=6.0),
        [[1, 2], [3]],
    ),
    "op": (OP([[0, 0], [1, 0], [0, 1]], [0, 5, 7], 2.5), [[1]]),
}


def texts(figure: Figure) -> str:
    """Returns all words of a picture."""
    return " ".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("suffix", MAGIC)
def test_pictures_have_the_format_of_their_suffix(suffix: str, tmp_path: Path) -> None:
    """SVG, PDF and PNG start as such files do."""
    path = tmp_path / f"picture{suffix}"
    plot_routes(*SOLVED["cvrp"], path)
    data = path.read_bytes()
    assert data.startswith(MAGIC[suffix]) and len(data) > 3000


@pytest.mark.parametrize("name", SOLVED)
def test_every_problem_can_be_drawn(name: str, tmp_path: Path) -> None:
    """With and without routes, and the captions say what it is."""
    problem, routes = SOLVED[name]
    plot_routes(problem, None, tmp_path / "bare.png")
    words = texts(plot_routes(problem, routes, tmp_path / "routes.png"))
    expected = {
        "tsp": ["square", "4 nodes", "cost 4"],
        "cvrp": ["3 customers", "2 routes", "cost 5.41421", "gap -9.76 %"],
        "op": ["1 of 2 nodes", "prize 5", "length 2 of 2.5"],
    }
    for word in expected[name]:
        assert word in words
    assert (tmp_path / "bare.png").stat().st_size > 3000


@pytest.mark.parametrize(
    ("problem", "routes"),
    [
        (TSP([[3, 3]]), [[0]]),
        (TSP([[1, 1]] * 5), [[0, 1, 2, 3, 4]]),
        (TSP([[0, 0], [5e6, 0]]), [[0, 1]]),
        (OP([[0, 0], [9, 9]], [0, 1], 1.0), [[]]),
        (CVRP([[0, 0]], [0], 1), []),
        (CVRP([[0, 0], [1, 1]], [0, 0], 1), [[1]]),
        (TSP([[14.55, -23.31], [28.06, -15.24]], metric="GEO"), [[0, 1]]),
    ],
)
def test_odd_instances_can_be_drawn(
    problem: Problem, routes: Routes, tmp_path: Path
) -> None:
    """One node, identical nodes, empty routes, no customers."""
    plot_routes(problem, routes, tmp_path / "odd.svg")
    assert (tmp_path / "odd.svg").stat().st_size > 1000


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    """No dates and no random ids: committed pictures only change when they do."""
    for name in ("a.svg", "b.svg"):
        plot_routes(*SOLVED["cvrp"], tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_wrong_routes_are_not_drawn() -> None:
    """A picture with a cost is of a feasible solution."""
    with pytest.raises(Infeasible, match="visited twice"):
        plot_routes(SOLVED["tsp"][0], [[0, 1, 1, 2]])


def test_a_picture_is_of_one_instance(tmp_path: Path) -> None:
    """A batch is refused, and so are formats that nobody can write."""
    with pytest.raises(ValueError, match="got 4"):
        plot_routes(small("tsp"))
    with pytest.raises(ValueError, match=r"x\.gif"):
        plot_routes(*SOLVED["tsp"], tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


def test_many_routes_have_colours(tmp_path: Path) -> None:
    """There is no limit on the number of routes."""
    problem = CVRP.random(1, 30, capacity=9)
    plot_routes(problem, [[i] for i in range(1, 31)], tmp_path / "many.png")


def test_histories_are_drawn_with_the_reference(tmp_path: Path) -> None:
    """Each search is in the legend."""
    histories = {"k = 1": [[0.1, 9.0], [1.0, 8.0]], "k = 10": [[0.05, 8.5]]}
    words = texts(plot_history(histories, tmp_path / "h.svg", reference=7.9))
    assert "k = 1" in words and "k = 10" in words and "reference" in words


def test_gaps_are_drawn_against_time(tmp_path: Path) -> None:
    """Rows of the table of results become points, batched ones do not."""
    row = {"model": "m", "search": "beam", "width": "16", "gap_mean": "0.5"}
    rows = [
        row | {"seconds_per_instance": "0.1"},
        row | {"seconds_per_instance": "1", "width": "64", "gap_mean": "0.1"},
        row | {"seconds_per_instance": "", "model": "batched"},
    ]
    figure = plot_gap_time(rows, tmp_path / "g.png")
    words = texts(figure)
    assert "beam 16" in words and "beam 64" in words and "batched" not in words
    assert figure.axes[0].get_yscale() == "log"
    rows.append(row | {"seconds_per_instance": "2", "gap_mean": "-0.1"})
    assert plot_gap_time(rows).axes[0].get_yscale() == "linear"


def test_nothing_to_draw_is_an_empty_chart(tmp_path: Path) -> None:
    """No rows are no error."""
    plot_gap_time([], tmp_path / "empty.png")


def test_training_curves_have_a_panel_each(tmp_path: Path) -> None:
    """Loss, cross-entropy and gap, as far as the log has them."""
    log = tmp_path / "log.jsonl"
    entries = [{"step": i, "seconds": i * 2.0, "loss": 1 / (i + 1)} for i in range(400)]
    entries[50] |= {"val_ce": 0.3, "val_gap": 5.0, "val_gap_recurrent": 4.0}
    log.write_text("\n".join(map(json.dumps, [*entries, {"note": "no time"}])) + "\n\n")
    figure = plot_curves({"run": log}, tmp_path / "c.png")
    assert len(figure.axes) == 3
    labels = [axes.get_legend_handles_labels()[1] for axes in figure.axes]
    assert labels == [["run"], ["run"], ["run", "run, recurrent"]]
    short = tmp_path / "short.jsonl"
    short.write_text('{"step": 1, "seconds": 1, "loss": 2}\n')
    assert len(plot_curves({"run": log, "short": short}).axes) == 3
    assert len(plot_curves({"short": short}).axes) == 1


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    """File and line are in the message; a log without curves is an error too."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"seconds": 1}\n{"sec\n')
    with pytest.raises(ValueError, match=r"log\.jsonl:2: not JSON"):
        plot_curves({"run": log})
    log.write_text('{"seconds": 1}\n')
    with pytest.raises(ValueError, match="no loss"):
        plot_curves({"run": log})


def test_pictures_leave_pyplot_alone() -> None:
    """No window system, no list of open figures."""
    plot_routes(*SOLVED["tsp"])
    assert "matplotlib.pyplot" not in sys.modules
