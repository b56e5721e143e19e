"""Renders `docs/results.md` and its figures from the rows in `results/`.

    python experiments/render.py            # writes page and figures
    python experiments/render.py --check    # fails if they are not what rows say

Text between `<!-- begin NAME -->` and `<!-- end NAME -->` is replaced; the rest of the
page is written by hand and has no numbers. Numbers that are quoted from the paper come
from `quoted.csv` and are marked.
"""

import argparse
import csv
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from intervals import Interval
from pictures import FIGURES, digest, draw
from rows import RESULTS, gap, read_table
from verdicts import base_of, name_of, on_negative_gaps, on_story, on_use, ours
from views import (
    Cell,
    Results,
    behind,
    gap_difference,
    of_peak,
    outside,
    read_results,
    seconds,
    time_ratio,
)

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
QUOTED = Path(__file__).parent / "quoted.csv"
DECODE, EQUAL, REGRET = "decode.jsonl", "equal.csv", "regret.csv"
SECTION = re.compile(
    r"(?P<begin><!-- begin (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end (?P=name) -->)",
    re.DOTALL,
)
ENDS = ("recurrent", "base", "plain")

Found = Sequence[Results]


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table; none without rows."""
    if not rows:
        return []
    lines = [heading, ["---"] * len(heading), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def number(value: float, digits: int = 2) -> str:
    """Returns a number; a dash for what is not known."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"  # noqa: RUF001


def show(interval: Interval | None, digits: int = 2, sign: bool = False) -> str:
    """Returns an interval; a dash for none."""
    return "–" if interval is None else interval.show(digits, sign)  # noqa: RUF001


def count(cell: Cell) -> str:
    """Returns how many instances were solved, and how many were not."""
    failed = f", {cell.failures} failed" if cell.failures else ""
    return f"{len(cell.values(gap))}{failed}"


def figure_line(name: str, alt: str) -> Callable[[Found], list[str]]:
    """Returns what links a figure, where there is something to show."""

    def line(found: Found) -> list[str]:
        if not FIGURES[name](found):
            return []
        return [f"![{alt}](pictures/results-{name}.svg)", ""]

    return line


def story(found: Found) -> list[str]:
    """The picture at the top, and what may be said about it."""
    alt = "Gap against time: recurrent, base and plain models, side by side"
    picture = figure_line("story", alt)(found)
    smallest = {r.problem: r.n for r in reversed(found)}
    return picture + on_story([r for r in found if r.n == smallest[r.problem]])


def machines(found: Found) -> list[str]:
    """Hardware, threads, versions and commits of the rows that are shown."""
    names = ("hardware", "threads", "torch", "seed")
    rows = []
    for results in found:
        every = [sorted({row[name] for row in results.rows}) for name in names]
        commits = sorted({row["commit"] for row in results.rows})
        dates = sorted({row["date"][:10] for row in results.rows})
        instances = {row["instance"] for row in results.rows}
        cells = [results.dataset, str(len(instances)), *map(", ".join, every)]
        rows.append(
            [*cells, ", ".join(commits), " to ".join({dates[0]: 0, dates[-1]: 0})]
        )
    heading = ["set", "instances", *names, "commit", "measured"]
    return table(heading, rows)


def models_table(found: Found) -> list[str]:
    """Figure 2 as numbers."""
    rows = []
    for results in found:
        for cell in results.constructions(ENDS):
            rows.append(
                [
                    *(results.title, cell.what["role"], cell.size, cell.variant),
                    *(cell.mean(gap).show(), cell.mean(seconds).show(3), count(cell)),
                ]
            )
    heading = ["set", "role", "size", "search", "gap %", "seconds", "instances"]
    return table(heading, rows)


def speed_table(found: Found) -> list[str]:
    """Recurrent against base: latency, time outside the encoders, and the peak."""
    rows = []
    for results in found:
        for cell in results.constructions(["recurrent"]):
            base = base_of(results, cell)
            if base is None:
                continue
            rows.append(
                [
                    *(results.title, f"{cell.size} / {base.size}", cell.variant),
                    *(number(base.average(seconds), 3),),
                    *(number(cell.average(seconds), 3),),
                    show(time_ratio(base, cell)),
                    show(gap_difference(cell, base), sign=True),
                    *(f"{number(c.average(outside), 1)}" for c in (base, cell)),
                    *(f"{number(c.average(of_peak), 0)}" for c in (base, cell)),
                    count(cell),
                ]
            )
    heading = [
        *("set", "recurrent / base", "search", "base s", "recurrent s", "speed-up"),
        *("gap, points", "outside base %", "outside recurrent %", "peak base %"),
        *("peak recurrent %", "instances"),
    ]
    return table(heading, rows)


def decode_table(folder: Path) -> list[str]:
    """Speed of the paper's sizes with random weights, from `benchmarks/decode.py`."""
    path = folder / DECODE
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if run.get("steps"):  # only the beginning of a decoding: no latency
            continue
        for row in run["rows"]:
            rows.append(
                [
                    *(f"{row['problem'].upper()}{row['n']}", row["policy"]),
                    *(f"beam {run['width']}", str(run["threads"])),
                    *(f"{row['seconds']:.2f}", f"{row['speedup']:.2f}"),
                    f"{100 * row['outside']:.1f}",
                ]
            )
    heading = ["set", "policy", "search", "threads", "seconds", "speed-up", "outside %"]
    return table(heading, rows)


def k_table(found: Found) -> list[str]:
    """Gap against k."""
    rows = []
    for results in found:
        ends = results.widest(("recurrent", "base"))
        for cell in (c for c in ends if c.what["role"] == "recurrent"):
            what = {name: cell.what[name] for name in ("model", "width", "search")}
            steps = results.pick(roles=["recurrent"], **what)
            if len(steps) < 2:
                continue
            base = base_of(results, cell)
            for at in sorted(steps, key=lambda c: int(c.what["k"])):
                apart = gap_difference(at, base) if base else None
                rows.append(
                    [
                        *(results.title, at.size, at.variant, at.what["k"]),
                        *(at.mean(gap).show(), show(apart, sign=True)),
                        *(at.mean(seconds).show(3), count(at)),
                    ]
                )
    heading = [
        *("set", "size", "search", "k", "gap %", "points above k = 1", "seconds"),
        "instances",
    ]
    return table(heading, rows)


def near_table(found: Found) -> list[str]:
    """Greedy constructions with the nearest nodes in sight, and with all."""
    rows = []
    for results in found:
        cells = [c for c in results.cells if c.what["search"].startswith("near")]
        shown = sorted(cells, key=lambda cell: cell.what["role"], reverse=True)
        for cell in shown:
            what = {name: cell.what[name] for name in ("model", "k")}
            role = cell.what["role"]
            whole = results.pick(roles=[role], search="greedy", **what)
            for one in [cell, *whole]:
                apart = gap_difference(one, whole[0]) if one is cell and whole else None
                nodes = one.what["search"].removeprefix("near")
                seen = "all" if one is not cell else f"{nodes} nearest"
                rows.append(
                    [
                        *(results.title, role, one.size, seen),
                        *(one.mean(gap).show(), show(apart, sign=True)),
                        *(one.mean(seconds).show(3), count(one)),
                    ]
                )
    heading = [
        *("set", "role", "size", "nodes in sight", "gap %", "points above all"),
        *("seconds", "instances"),
    ]
    return table(heading, rows)


def lns_table(found: Found) -> list[str]:
    """Figure 3 as numbers: where the curves end, and where they cross."""
    rows = []
    for results in found:
        cells = results.pick(roles=("recurrent", "base"), search="algorithm4")
        for cell in cells:
            what = {name: cell.what[name] for name in ("n_sub", "limit", "search")}
            base = results.pick(roles=["base"], **what)
            against, crossing = None, show(None)
            if cell.what["role"] == "recurrent" and base:
                against = gap_difference(cell, base[0])
                worst, until = behind(cell, base[0])
                crossing = f"by {worst:.2f}, to {until:.1f} s" if worst else "never"
            rows.append(
                [
                    *(results.title, cell.what["role"], cell.size, cell.what["n_sub"]),
                    *(cell.what["limit"], cell.mean(gap).show()),
                    *(show(against, sign=True), crossing, count(cell)),
                ]
            )
    heading = [
        *("set", "role", "size", "n_sub", "seconds", "gap %", "points above base"),
        *("behind base on the way", "instances"),
    ]
    return table(heading, rows)


def peers_table(found: Found) -> list[str]:
    """Our search and classical solvers at equal time limits."""
    rows = []
    for results in found:
        for limit in results.limits():
            mine = ours(results, limit)
            peers = results.pick(roles=["local", "peer"], limit=limit)
            for cell in [*([mine] if mine else []), *peers]:
                apart = None
                if mine is not None and cell is not mine and cell.values(gap):
                    apart = gap_difference(mine, cell)
                name = name_of(cell.what["model"])
                if cell is mine:
                    name = f"**renco** {cell.what['role']} {cell.size}, lns"
                gaps = cell.mean(gap).show() if cell.values(gap) else show(None)
                rows.append(
                    [
                        *(results.title, limit, name, cell.what["version"] or "–"),  # noqa: RUF001
                        *(gaps, show(apart, sign=True)),
                        *(_seconds(cell), count(cell)),
                    ]
                )
    heading = [
        *("set", "limit s", "method", "version", "gap %", "renco minus it, points"),
        *("seconds", "instances"),
    ]
    return table(heading, rows)


def _seconds(cell: Cell) -> str:
    return cell.mean(seconds).show() if cell.values(seconds) else show(None)


def read_quoted() -> list[dict[str, str]]:
    """Returns the rows of the paper's table 1."""
    with QUOTED.open(encoding="utf-8", newline="") as file:
        lines = [line for line in file if not line.startswith("#")]
    return list(csv.DictReader(lines))


LABELS = {
    "recurrent": "ours",
    "base": "base (BQ's scheme)",
    "lehd": "LEHD, anew",
    "pomo": "POMO, rl4co",
    "mdam": "MDAM, rl4co",
}
"""Learned methods as tables name them."""


def equal_table(folder: Path) -> list[str]:
    """Learned methods after equal minutes of training."""
    every, rows = read_table(folder / EQUAL), []
    for dataset in sorted({row["dataset"] for row in every}):
        results = Results(dataset, [row for row in every if row["dataset"] == dataset])
        for cell in results.pick(roles=LABELS):
            name = f"{LABELS[cell.what['role']]} {cell.size}".strip()
            minutes = cell.what["model"].rpartition("-")[2].removesuffix("min")
            rows.append(
                [
                    *(results.title, minutes, name, cell.variant),
                    *(cell.mean(gap).show(), cell.mean(seconds).show(), count(cell)),
                ]
            )
    heading = ["set", "minutes", "method", "search", "gap %", "seconds", "instances"]
    return table(heading, rows)


def regret_table(folder: Path) -> list[str]:
    """Where greedy construction loses what it loses."""
    path = folder / REGRET
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        every = list(csv.DictReader(file))
    rows = []
    for row in every:
        what = ("model", "dataset", "by")
        alike = [r for r in every if all(r[name] == row[name] for name in what)]
        low, high = (f"{100 * float(row[end]):.0f}" for end in ("low", "high"))
        points, total = (
            sum(float(r["regret"]) for r in some) for some in ([row], alike)
        )
        rows.append(
            [
                *(row["dataset"], row["by"], f"{low} to {high} %"),
                *(f"{100 * float(row['decisions']):.0f}", number(points)),
                *(number(100 * points / total, 0), row["instances"]),
            ]
        )
    heading = [
        *("set", "by", "from", "% of the decisions", "points of gap", "% of the gap"),
        "instances",
    ]
    return table(heading, rows)


def table1(found: Found) -> list[str]:
    """Table 1: measured rows, and the paper's, quoted."""
    rows = []
    for results in found:
        if results.problem == "op" or results.n > 200:
            continue
        cells = results.constructions(("recurrent", "base"))
        for cell in [*cells, *results.pick(roles=["lehd", "pomo", "mdam"])]:
            name = f"{LABELS[cell.what['role']]} {cell.size}".strip()
            cost = cell.average(lambda row: float(row["cost"]))
            rows.append(
                [
                    *(results.title, name, cell.variant, "measured", f"{cost:.3f}"),
                    *(cell.mean(gap).show(), cell.mean(seconds).show(), count(cell)),
                ]
            )
    for row in read_quoted():
        rows.append(
            [
                f"{row['problem'].upper()}{row['n']}",
                *(row["method"], row["variant"].lower() or "–", "quoted"),  # noqa: RUF001
                *(row["cost"], row["gap"], row["seconds"] or "–", row["instances"]),  # noqa: RUF001
            ]
        )
    order = {"TSP100": 0, "TSP200": 1, "CVRP100": 2, "CVRP200": 3}
    rows.sort(key=lambda row: order.get(row[0], 9))
    heading = [
        "set",
        "method",
        "search",
        "source",
        "cost",
        "gap %",
        "seconds",
        "instances",
    ]
    return table(heading, rows)


def sections(found: Found, folder: Path) -> dict[str, list[str]]:
    """Returns the rendered parts of the page by name."""
    return {
        "story": story(found),
        "use": on_use(found),
        "machines": machines(found),
        "figure2": [
            *figure_line("figure2", "Figure 2: gap against time")(found),
            *models_table(found),
        ],
        "speed": speed_table(found),
        "decode": decode_table(folder),
        "k": [*figure_line("k", "Gap against k")(found), *k_table(found)],
        "near": near_table(found),
        "figure3": [
            *figure_line("figure3", "Figure 3: large neighborhood search")(found),
            *lns_table(found),
        ],
        "figure4": [
            *figure_line("figure4", "Figure 4: comparison at equal times")(found),
            *peers_table(found),
        ],
        "table1": table1(found),
        "equal": equal_table(folder),
        "regret": regret_table(folder),
        "negative": on_negative_gaps(found) if found else [],
    }


COMMANDS = {
    "story": "run.py figure2",
    "use": "run.py figure4",
    "machines": "run.py all",
    "negative": "run.py all",
    "equal": "equal.py",
    "regret": "regret.py",
}
"""What to run for a section that is not named like an item."""


def page(text: str, parts: Mapping[str, Sequence[str]]) -> str:
    """Returns the page with its rendered parts replaced.

    Args:
        text: The page.
        parts: Lines of each part, from `sections`.

    Raises:
        ValueError: A part is missing, unknown, or there twice.
    """
    named = [match["name"] for match in SECTION.finditer(text)]
    if sorted(named) != sorted(parts):
        raise ValueError(f"expected the parts {', '.join(parts)}, got {named}")

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        lines = parts[name]
        if not lines:
            command = COMMANDS.get(name, f"run.py {name}")
            lines = [f"Not measured yet: `python experiments/{command}`."]
        return f"{match['begin']}\n" + "\n".join(lines).strip() + f"\n\n{match['end']}"

    return SECTION.sub(replaced, text)


def stale(found: Found, pictures: Path) -> list[str]:
    """Returns the figures that do not show the rows, or show what is gone."""
    names = []
    for name, make in FIGURES.items():
        panels, path = make(found), pictures / f"results-{name}.svg"
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        if bool(panels) != bool(there) or (panels and digest(panels) not in there):
            names.append(path.name)
    return names


def main() -> None:
    """Renders, or checks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="rows")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to render")
    parser.add_argument("--check", action="store_true", help="change nothing")
    given = parser.parse_args()
    found, pictures = read_results(given.results), given.page.parent / "pictures"
    old = given.page.read_text(encoding="utf-8")
    new = page(old, sections(found, given.results))
    if given.check:
        if wrong := [
            *([given.page.name] if new != old else []),
            *stale(found, pictures),
        ]:
            sys.exit(f"not what the rows say: {', '.join(wrong)}; render again")
        return
    given.page.write_text(new, encoding="utf-8")
    pictures.mkdir(exist_ok=True)
    for name, make in FIGURES.items():
        path, panels = pictures / f"results-{name}.svg", make(found)
        if panels:
            draw(panels, path)
        else:
            path.unlink(missing_ok=True)
    print(f"{given.page}: {sum(len(r.rows) for r in found)} rows of {len(found)} sets")


if __name__ == "__main__":
    main()
