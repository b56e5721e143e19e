"""Rows of one test set, gathered by method and paired by instance."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from intervals import Interval, difference, mean, ratio
from rows import METHOD, Row, gap, history, problem_and_size, read_table, tables

LEARNED = ("recurrent", "base", "plain", "lehd", "pomo", "mdam")


@dataclass(frozen=True, eq=False)
class Cell:
    """All rows of one method on one set.

    Attributes:
        what: The columns that say which method.
        rows: Its rows.
    """

    what: Mapping[str, str]
    rows: Sequence[Row]

    def values(self, of: Callable[[Row], float]) -> dict[int, float]:
        """Returns one value per instance, the mean over seeds, without failures."""
        found: dict[int, list[float]] = {}
        for row in self.rows:
            if row["cost"]:
                found.setdefault(int(row["instance"]), []).append(of(row))
        return {i: sum(v) / len(v) for i, v in sorted(found.items())}

    @property
    def failures(self) -> int:
        """How many runs gave no solution."""
        return sum(not row["cost"] for row in self.rows)

    def mean(self, of: Callable[[Row], float]) -> Interval:
        """Returns the mean over all instances that were solved."""
        return mean([*self.values(of).values()])

    def average(self, of: Callable[[Row], float]) -> float:
        """Returns the same without an interval."""
        values = self.values(of).values()
        return sum(values) / len(values) if values else float("nan")

    @property
    def size(self) -> str:
        """The size of the encoder that runs at most steps; a solver has none."""
        return self.what["size"]

    @property
    def variant(self) -> str:
        """How the model searches, in a few words."""
        search = self.what["search"]
        return f"beam {self.what['width']}" if search == "beam" else search


def seconds(row: Row) -> float:
    """Returns the time of a row."""
    return float(row["seconds"])


def outside(row: Row) -> float:
    """Returns the share of the time outside the encoders, in percent."""
    if not row["inside"]:
        return float("nan")
    return 100 * (1 - float(row["inside"]) / float(row["seconds"]))


def of_peak(row: Row) -> float:
    """Returns the speed inside the encoders, in percent of the machine's peak."""
    if not row["inside"]:
        return float("nan")
    return 100 * float(row["gflop"]) / float(row["inside"]) / float(row["peak"])


def pairs(
    a: Cell, b: Cell, of: Callable[[Row], float]
) -> tuple[list[float], list[float]]:
    """Returns the values of two methods on the instances that both solved."""
    first, second = a.values(of), b.values(of)
    both = sorted(first.keys() & second.keys())
    return [first[i] for i in both], [second[i] for i in both]


def gap_difference(a: Cell, b: Cell) -> Interval | None:
    """Returns by how many points the gap of a is larger than that of b."""
    values, others = pairs(a, b, gap)
    return difference(values, others) if values else None


def time_ratio(a: Cell, b: Cell) -> Interval | None:
    """Returns how many times as long as b a takes."""
    values, others = pairs(a, b, seconds)
    return ratio(values, others) if values else None


def behind(a: Cell, b: Cell) -> tuple[float, float]:
    """Returns by how many points the curve of a is above that of b at most, until when.

    Curves are means over the instances that both searched, from the moment on when all
    have a solution. Zero and zero where a is never above.
    """
    curves = [{row["instance"]: history(row) for row in c.rows} for c in (a, b)]
    both = sorted(curves[0].keys() & curves[1].keys())
    steps = [curve[i] for curve in curves for i in both]
    begins = max((points[0][0] for points in steps), default=0.0)
    times = sorted({max(begins, s) for points in steps for s, _ in points})
    worst = until = 0.0
    for now, then in pairwise([*times, *times[-1:]]):
        first, second = (
            sum([g for s, g in curve[i] if s <= now][-1] for i in both)
            for curve in curves
        )
        above = (first - second) / len(both)
        if above > 0:
            worst, until = max(worst, above), then
    return worst, until


class Results:
    """The current rows of one test set."""

    def __init__(self, dataset: str, rows: Sequence[Row]) -> None:
        """Leaves out rows of other machines and of models that were replaced."""
        self.dataset, self.rows = dataset, current(rows)
        self.problem, self.n = problem_and_size(dataset)
        self.title = f"{self.problem.upper()}{self.n}"
        grouped: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            grouped.setdefault(tuple(row[name] for name in METHOD), []).append(row)
        self.cells = [
            Cell(dict(zip(METHOD, what, strict=True)), group)
            for what, group in grouped.items()
        ]

    def pick(self, *, roles: Iterable[str], **what: str) -> list[Cell]:
        """Returns the methods of some roles, in their order, with some settings."""
        found = []
        for role in roles:
            cells = [cell for cell in self.cells if cell.what["role"] == role]
            cells.sort(key=lambda cell: (cell.size, cell.what["model"]))
            for cell in cells:
                if all(cell.what[name] == value for name, value in what.items()):
                    found.append(cell)
        return found

    def constructions(self, roles: Iterable[str]) -> list[Cell]:
        """Returns greedy and beam searches with each model's usual k."""
        return [
            cell
            for cell in self.pick(roles=roles)
            if cell.what["search"] in ("greedy", "beam")
            and cell.what["k"] in ("1", "1000")
        ]

    def widest(self, roles: Iterable[str]) -> list[Cell]:
        """Returns those of the widest beam that all of the roles share."""
        found = self.constructions(roles)
        by_role: dict[str, set[int]] = {}
        for cell in found:
            width = int(cell.what["width"])
            by_role.setdefault(cell.what["role"], set()).add(width)
        common = set.intersection(*by_role.values()) if by_role else set()
        if not common:
            return []
        return [cell for cell in found if cell.what["width"] == str(max(common))]

    def limits(self) -> list[str]:
        """Returns the time limits under which classical solvers ran, ascending."""
        found = {cell.what["limit"] for cell in self.pick(roles=["peer"])}
        return sorted(found, key=float)


def current(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that tell how things are now.

    Those of the machine, the threads and the instances of the latest row; of each
    role, the models of the latest run in which it took part; of each classical
    solver, its latest version.
    """
    if not rows:
        return []
    last = max(rows, key=lambda row: row["date"])
    same = ("hardware", "threads", "dataset_sha256")
    here = [row for row in rows if all(row[n] == last[n] for n in same)]
    newest: dict[str, str] = {}
    for row in here:
        who = row["role"] if row["role"] in LEARNED else row["model"]
        newest[who] = max(newest.get(who, ""), row["run"])
    who_now = {
        _who(row)
        for row in here
        if row["run"] == newest[row["role"] if row["role"] in LEARNED else row["model"]]
    }
    return [row for row in here if _who(row) in who_now]


def _who(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("role", "model", "model_sha256", "version"))


def read_results(folder: Path) -> list[Results]:
    """Returns the results of all sets that have rows."""
    found = [Results(path.stem, read_table(path)) for path in tables(folder)]
    order = {"tsp": 0, "cvrp": 1, "op": 2}
    found = [results for results in found if results.rows]
    return sorted(found, key=lambda r: (order.get(r.problem, 9), r.n))
