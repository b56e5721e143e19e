"""Pictures of solutions, searches and training runs.

Every function returns a `Figure` and, given a path, also writes it: SVG, PDF or PNG by
the suffix. Nothing here touches pyplot, so there is no window and no global state.
"""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy import ndarray

from renco import metrics
from renco.files import write_atomic
from renco.problems import CVRP, OP, Problem, Routes
from renco.result import number, percent_above

FORMATS = (".svg", ".pdf", ".png")
COLOURS = (
    *("#2166ac", "#d6562b", "#2e9f68", "#8a4bb0", "#d19a00", "#138f9e"),
    *("#c43a6f", "#6f8f1d", "#85563a", "#4d5bd1", "#e58aa8", "#51727f"),
)
"""Told apart side by side; lines and routes take them in this order."""
INK, TEXT, FAINT, PAPER = "#22262b", "#59626c", "#9aa3ad", "#ffffff"
OPEN = "#c5ccd3"
"""Of nodes that no route visits."""
DOTS_PER_INCH = 200


def plot_routes(
    problem: Problem,
    routes: Routes | None = None,
    path: str | Path | None = None,
    *,
    title: str = "",
    reference: float | None = None,
) -> Figure:
    """Draws an instance, and the routes of a solution in distinct colours.

    The depot is a square; the area of a node is its demand or prize.

    Args:
        problem: One instance.
        routes: Node ids, as `Problem.cost` takes them; None draws the nodes alone.
        path: File to write.
        title: Heading; by default the instance's own.
        reference: Cost to state the gap to; by default the instance's best known.
    """
    if len(problem) != 1:
        raise ValueError(f"a picture shows one instance, got {len(problem)}")
    xy = metrics.plane(problem.metric, problem.coords)[0]
    figure = Figure(figsize=(6.4, 6.6), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    alone = INK if routes is None else OPEN
    colours = dict.fromkeys(range(len(xy)), alone)
    for route, colour in zip(_by_angle(xy, routes or []), _cycle(), strict=False):
        _draw_route(axes, problem, xy, route, colour)
        colours |= dict.fromkeys(route, colour)
    _draw_nodes(axes, problem, xy, colours)
    _frame(axes, xy)
    heading = title or problem.title or f"{problem.name.upper()} {problem.n}"
    axes.set_title(heading, loc="left", fontweight="bold", color=INK, pad=22)
    below = _caption(problem, routes, reference)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(below, (0, 1), (0, 7), color=TEXT, fontsize=9.5, **place)
    return _written(figure, path)


def plot_history(
    histories: Mapping[str, Sequence[Sequence[float]]],
    path: str | Path | None = None,
    *,
    reference: float | None = None,
) -> Figure:
    """Draws the best cost found so far against time, one line per search.

    Args:
        histories: `[seconds, cost]` pairs of each search by its name, as
            `Result.history` has them.
        path: File to write.
        reference: Cost of a reference solution, drawn as a dashed line.
    """
    figure, axes = _chart("seconds", "cost")
    last = max((h[-1][0] for h in histories.values() if len(h)), default=0.0)
    for (name, history), colour in zip(histories.items(), _cycle(), strict=False):
        seconds, cost = np.array([*history, [last, history[-1][1]]]).T
        axes.step(seconds, cost, where="post", color=colour, label=name, lw=1.8)
        axes.plot(seconds[-1], cost[-1], "o", color=colour, ms=4.5)
    if reference is not None:
        axes.axhline(reference, color=FAINT, ls="--", lw=1.2, label="reference")
    axes.legend(frameon=False)
    return _written(figure, path)


def plot_gap_time(
    rows: Sequence[Mapping[str, Any]], path: str | Path | None = None
) -> Figure:
    """Draws gap against time for rows of `renco evaluate`, as in figure 2.

    Rows of one model and search are joined by a line. Rows without a time (batched
    runs) are left out.
    """
    figure, axes = _chart("seconds per instance", "gap to the reference (%)")
    groups: dict[str, list[tuple[float, float, str]]] = {}
    for row in rows:
        if row["seconds_per_instance"] in ("", None):
            continue
        point = float(row["seconds_per_instance"]), float(row["gap_mean"])
        groups.setdefault(str(row["model"]), []).append((*point, _setting(row)))
    for (name, points), colour in zip(groups.items(), _cycle(), strict=False):
        points.sort()
        seconds, gaps = [p[0] for p in points], [p[1] for p in points]
        axes.plot(seconds, gaps, "o-", color=colour, label=name, lw=1.6, ms=5)
        for second, gap, setting in points:
            axes.annotate(
                setting, (second, gap), (5, 4), textcoords="offset points",
                fontsize=7.5, color=colour,
            )  # fmt: skip
    axes.set_xscale("log")
    _readable(axes.xaxis)
    if all(gap > 0 for points in groups.values() for _, gap, _ in points) and groups:
        axes.set_yscale("log")
        _readable(axes.yaxis)
    if groups:
        axes.legend(frameon=False, fontsize=8.5)
    return _written(figure, path)


def plot_curves(
    logs: Mapping[str, str | Path], path: str | Path | None = None
) -> Figure:
    """Draws the curves of training runs from their `log.jsonl`.

    One panel for each of loss, validation cross-entropy and validation gap that any
    of the runs has logged, against minutes. What was measured with the recurrent
    encoder is dashed.

    Args:
        logs: Log file of each run by the name to show.
        path: File to write.
    """
    runs = {name: _read_log(Path(log)) for name, log in logs.items()}
    panels = {"loss": "training loss", "val_ce": "validation cross-entropy"}
    panels |= {"val_gap": "validation gap (%)"}
    shown = [
        key for key in panels if any(key in e for log in runs.values() for e in log)
    ]
    if not shown:
        raise ValueError(
            f"no {', '.join(panels)} in {', '.join(map(str, logs.values()))}"
        )
    figure = Figure(figsize=(4.2 * len(shown), 3.6), layout="constrained")
    for place, key in enumerate(shown, start=1):
        axes = figure.add_subplot(1, len(shown), place)
        _style(axes, "minutes", panels[key])
        for (name, log), colour in zip(runs.items(), _cycle(), strict=False):
            for column, label, dash in (
                (key, name, "-"),
                (f"{key}_recurrent", f"{name}, recurrent", "--"),
            ):
                points = [(e["seconds"] / 60, e[column]) for e in log if e.get(column)]
                if points:
                    style = {"color": colour, "ls": dash}
                    _curve(axes, np.array(points, dtype=float), label, **style)
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(frameon=False, fontsize=8.5)
    return _written(figure, path)


def check_format(path: str | Path) -> None:
    """Raises ValueError unless a picture can be written to a file of that name."""
    if Path(path).suffix.lower() not in FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"a picture is written to {known}, got {str(path)!r}")


def _written(figure: Figure, path: str | Path | None) -> Figure:
    if path is None:
        return figure
    check_format(path)
    suffix = Path(path).suffix.lower()[1:]
    buffer = io.BytesIO()
    # Without date and random ids the same picture is the same file.
    with mpl.rc_context({"svg.hashsalt": "renco"}):
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
        figure.savefig(buffer, format=suffix, dpi=DOTS_PER_INCH, metadata=metadata)
    write_atomic(Path(path), buffer.getvalue())
    return figure


def _cycle() -> list[str]:
    return list(COLOURS) * 20


def _by_angle(xy: ndarray, routes: Routes) -> Routes:
    """Orders routes around the depot, so that neighbours differ in colour."""
    some = [route for route in routes if route]
    if len(some) < 2:
        return some
    centres = np.array([xy[route].mean(axis=0) - xy[0] for route in some])
    order = np.arctan2(centres[:, 1], centres[:, 0]).argsort()
    return [some[i] for i in order]


def _draw_route(
    axes: Axes, problem: Problem, xy: ndarray, route: list[int], colour: str
) -> None:
    width = float(np.interp(problem.n, [50, 1000], [1.9, 0.9]))
    line: dict[str, Any] = {"color": colour, "solid_capstyle": "round", "zorder": 2}
    if problem.name == "tsp":
        tour = xy[[*route, *route[:1]]]
        axes.fill(*tour.T, color=colour, alpha=0.08, lw=0, zorder=1)
        axes.plot(*tour.T, lw=width, **line)
        return
    if isinstance(problem, OP):
        axes.fill(*xy[[0, *route]].T, color=colour, alpha=0.08, lw=0, zorder=1)
    axes.plot(*xy[route].T, lw=width, **line)
    # Ways from and to the depot overlap: lighter, so that routes stay readable.
    for end in (route[0], route[-1]):
        axes.plot(*xy[[0, end]].T, lw=width * 0.8, alpha=0.45, **line)


def _draw_nodes(
    axes: Axes, problem: Problem, xy: ndarray, colours: dict[int, str]
) -> None:
    size = float(np.interp(problem.n, [20, 100, 1000], [46, 26, 6]))
    weights = np.ones(len(xy))
    if isinstance(problem, CVRP):
        weights = problem.demands[0]
    elif isinstance(problem, OP):
        weights = problem.prizes[0]
    mean = weights[1:].mean() if len(weights) > 1 and weights[1:].any() else 1.0
    area = size * (0.25 + 0.75 * weights / mean)
    depot = problem.name != "tsp"
    nodes = np.arange(int(depot), len(xy))
    inside = [colours[int(node)] for node in nodes]
    edge: dict[str, Any] = {"edgecolors": PAPER, "lw": 0.7}
    x, y = xy.T
    axes.scatter(x[nodes], y[nodes], s=area[nodes], c=inside, zorder=3, **edge)
    if depot:
        axes.scatter(x[:1], y[:1], s=3.2 * size, c=INK, marker="s", zorder=4, **edge)


def _frame(axes: Axes, xy: ndarray) -> None:
    """Shows all nodes undistorted, without numbers on the axes."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    middle, half = (low + high) / 2, max(float((high - low).max()) * 0.54, 1e-9)
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#d5dade")


def _caption(problem: Problem, routes: Routes | None, reference: float | None) -> str:
    count = f"{problem.n} {'nodes' if problem.name == 'tsp' else 'customers'}"
    if routes is None:
        return count
    cost = float(problem.cost([routes])[0])
    words = [count]
    if isinstance(problem, OP):
        length = float(problem.length([routes])[0])
        words = [f"{len(routes[0])} of {problem.n} nodes", f"prize {number(-cost)}"]
        words.append(f"length {number(length)} of {number(float(problem.limit[0]))}")
    else:
        if isinstance(problem, CVRP):
            words.append(f"{sum(map(bool, routes))} routes")
        words.append(f"cost {number(cost)}")
    reference = problem.best_known if reference is None else reference
    gap = percent_above(cost, reference)
    if gap is not None:
        words.append(f"gap {gap:.2f} %")
    return "  ·  ".join(words)


def _chart(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    _style(axes, x, y)
    return figure, axes


def _style(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.grid(color="#e8ebee", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=TEXT, labelsize=9)
    for name, side in axes.spines.items():
        side.set_visible(name in ("left", "bottom"))
        side.set_color("#c3c9cf")


def _readable(axis: Axis) -> None:
    """Labels a logarithmic axis with 0.1, 0.2, 0.5, 1, ..."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _setting(row: Mapping[str, Any]) -> str:
    search, width = str(row["search"]), str(row["width"])
    return f"beam {width}" if search == "beam" else search


def _read_log(path: Path) -> list[dict[str, Any]]:
    entries = []
    for place, line in enumerate(
        path.read_text(encoding="utf-8").splitlines(), start=1
    ):
        if not line.strip():
            continue
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{place}: not JSON: {error.msg}") from None
    return [
        entry for entry in entries if isinstance(entry, dict) and "seconds" in entry
    ]


def _curve(axes: Axes, points: ndarray, name: str, **style: Any) -> None:
    """Draws a curve; where it is dense, faint and with its running mean on top."""
    minutes, values = points.T
    window = len(values) // 50
    if window < 3:
        axes.plot(minutes, values, lw=1.6, marker="o", ms=3, label=name, **style)
        return
    axes.plot(minutes, values, lw=0.8, alpha=0.25, **style)
    smooth = np.convolve(values, np.ones(window) / window, mode="valid")
    axes.plot(minutes[window - 1 :], smooth, lw=1.7, label=name, **style)
