"""The figures of the results page: what they show, and how it is drawn.

A figure is first a value, panels of lines, and then a picture. The picture carries a
hash of the value, so a test can tell whether it still shows the rows.
"""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rows import gap, history
from views import Cell, Results, seconds

GREEN, BLUE, GREY, ORANGE = "#2e9f68", "#2166ac", "#8b95a0", "#d6562b"
COLOURS = {"recurrent": GREEN, "base": BLUE, "plain": BLUE, "lehd": ORANGE}
PEERS = ("#8a4bb0", "#d19a00", "#138f9e", "#c43a6f", "#85563a", "#51727f")
TIME, GAP = "seconds per instance", "gap to the reference (%)"
ENDS = ("recurrent", "base", "plain")


@dataclass(frozen=True)
class Line:
    """Points in one colour.

    Attributes:
        label: For the legend.
        points: x, y, and the lower and upper end of y's interval.
        colour: Its colour.
        marker: Of single points; empty for a line without.
        style: Of the line between them; empty for none.
    """

    label: str
    points: tuple[tuple[float, float, float, float], ...]
    colour: str
    marker: str = "o"
    style: str = ""


@dataclass(frozen=True)
class Panel:
    """A pair of axes."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]


Panels = tuple[Panel, ...]


def point(cell: Cell) -> tuple[float, float, float, float]:
    """Returns mean time and mean gap of a method."""
    gaps = cell.mean(gap)
    values = cell.average(seconds), gaps.value, gaps.low, gaps.high
    return tuple(round(value, 6) for value in values)  # type: ignore[return-value]


def _model_points(results: Results) -> list[Line]:
    marker = {"recurrent": "o", "base": "*", "plain": "s"}
    return [
        Line(
            f"{cell.what['role']} {cell.size}, {cell.variant}",
            (point(cell),),
            COLOURS[cell.what["role"]],
            marker[cell.what["role"]],
        )
        for cell in results.widest(ENDS)
    ]


def figure2(found: Sequence[Results]) -> Panels:
    """Gap against time of recurrent, base and plain models."""
    return _panels(found, TIME, _model_points)


def story(found: Sequence[Results]) -> Panels:
    """The same where models were trained, at the smallest size of each problem."""
    smallest = {r.problem: r.n for r in reversed(found)}
    return figure2([r for r in found if r.n == smallest[r.problem]])


def figure_k(found: Sequence[Results]) -> Panels:
    """Gap against k."""
    return _panels(found, "k, steps from one base encoding to the next", _k_lines)


def _k_lines(results: Results) -> list[Line]:
    lines = []
    ends = results.widest(("recurrent", "base"))
    base = [cell for cell in ends if cell.what["role"] == "base"]
    for cell in (cell for cell in ends if cell.what["role"] == "recurrent"):
        what = {name: cell.what[name] for name in ("model", "width", "search")}
        steps = results.pick(roles=["recurrent"], **what)
        if len(steps) < 2:
            continue
        points = [(float(c.what["k"]), *point(c)[1:]) for c in steps]
        if len(base) == 1:
            points.append((1.0, *point(base[0])[1:]))
        label = f"{cell.size}, {cell.variant}"
        lines.append(Line(label, tuple(sorted(points)), GREEN, "o", "-"))
    return lines


def figure3(found: Sequence[Results]) -> Panels:
    """Gap over time of the large neighborhood search."""
    return _panels(found, "seconds", _lns_curves)


def _lns_curves(results: Results) -> list[Line]:
    styles = ("-", "--", ":")
    cells = results.pick(roles=("recurrent", "base"), search="algorithm4")
    sizes = sorted({int(cell.what["n_sub"]) for cell in cells})
    return [
        Line(
            f"{cell.what['role']}, n_sub {cell.what['n_sub']}",
            curve(cell),
            COLOURS[cell.what["role"]],
            "",
            styles[sizes.index(int(cell.what["n_sub"])) % len(styles)],
        )
        for cell in cells
    ]


def curve(cell: Cell) -> tuple[tuple[float, float, float, float], ...]:
    """Returns the mean gap over time, from when all instances have a solution."""
    histories = [history(row) for row in cell.rows if row["history"]]
    first = max(1e-3, *(points[0][0] for points in histories))
    times = np.geomspace(first, max(first, float(cell.what["limit"])), 60)
    found = []
    for time in times:
        gaps = [[g for s, g in h if s <= time + 1e-9][-1] for h in histories]
        level = round(float(np.mean(gaps)), 6)
        found.append((round(float(time), 6), level, level, level))
    return tuple(found)


def figure4(found: Sequence[Results]) -> Panels:
    """Our searches and classical solvers."""
    return _panels([r for r in found if r.pick(roles=["peer"])], TIME, _comparison)


def _comparison(results: Results) -> list[Line]:
    lines = []
    improved = _lns(results)
    role = improved[0].what["role"] if improved else ""
    for cells, label, colour, marker, style in (
        (improved, f"{role}, LNS", GREEN, "D", "-"),
        (results.constructions(["recurrent"]), "recurrent", GREEN, "o", ""),
        (results.constructions(["base"]), "base, BQ's scheme", BLUE, "*", ""),
        (results.pick(roles=["lehd"]), "LEHD", ORANGE, "v", ""),
        (results.pick(roles=["pomo"]), "POMO, EAS", ORANGE, "^", ""),
        (results.pick(roles=["mdam"]), "MDAM", ORANGE, "s", ""),
    ):
        if cells:
            points = tuple(sorted(point(cell) for cell in cells))
            lines.append(Line(label, points, colour, marker, style))
    names = sorted({cell.what["model"] for cell in results.pick(roles=["peer"])})
    for name, colour in zip(names, PEERS, strict=False):
        cells = results.pick(roles=["peer"], model=name)
        points = tuple(sorted(point(c) for c in cells if c.values(gap)))
        lines.append(Line(name, points, colour, "x", "-"))
    return lines


def _lns(results: Results) -> list[Cell]:
    for role in ("recurrent", "base"):
        if found := results.pick(roles=[role], search="lns", n_sub=""):
            return found
    return []


def _panels(found: Sequence[Results], x: str, lines_of: object) -> Panels:
    assert callable(lines_of)
    panels = [Panel(r.title, x, GAP, tuple(lines_of(r))) for r in found]
    return tuple(panel for panel in panels if panel.lines)


FIGURES = {
    "story": story,
    "figure2": figure2,
    "k": figure_k,
    "figure3": figure3,
    "figure4": figure4,
}
"""All figures by name; a figure without panels is not drawn."""


def digest(panels: Panels) -> str:
    """Returns a hash of what a figure shows."""
    return hashlib.sha256(repr(panels).encode()).hexdigest()


def draw(panels: Panels, path: Path) -> None:
    """Writes a figure as SVG."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.3 * columns, 3.5 * rows), layout="constrained")
    figure.set_facecolor("white")
    for place, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(rows, columns, place), panel)
    buffer = io.BytesIO()
    # Without date and random ids the same figure is the same file.
    with mpl.rc_context({"svg.hashsalt": "renco", "svg.fonttype": "none"}):
        about = {"Date": None, "Description": digest(panels)}
        figure.savefig(buffer, format="svg", metadata=about)
    path.write_bytes(buffer.getvalue())


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_xlabel(panel.x, fontsize=9)
    axes.set_ylabel(panel.y, fontsize=9)
    axes.grid(color="#e8ebee", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for line in panel.lines:
        x, y, low, high = np.array(line.points).reshape(-1, 4).T
        form = {"color": line.colour, "ls": line.style or "none", "lw": 1.5}
        if line.marker:
            spread = np.maximum([y - low, high - y], 0)
            size = 10 if line.marker == "*" else 5.5
            axes.errorbar(
                x, y, spread, marker=line.marker, ms=size, elinewidth=0.9,
                label=line.label, **form,
            )  # fmt: skip
        else:
            axes.plot(x, y, label=line.label, **form)
    for name, side in axes.spines.items():
        side.set_visible(name in ("left", "bottom"))
        side.set_color("#c3c9cf")
    axes.tick_params(labelsize=8)
    axes.legend(frameon=False, fontsize=7)
