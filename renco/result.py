"""What `solve` returns: a checked solution and how it was found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from renco.files import write_json
from renco.formats import write_solution
from renco.problems import OP, Problem, Routes


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """One solution of one instance; it has passed `Problem.cost`.

    Attributes:
        problem: The instance.
        solution: Routes by node ids 0, 1, 2, ..., as `Problem.cost` takes them.
        cost: f(x) in the instance's own metric; minus the prize for an OP.
        history: Seconds and cost of each improvement, the first solution included.
        seconds: Time that the search took.
        iterations: Improvement steps of the search; zero for a construction.
        search: Name of the search.
        model: Name of the model.
        k: Steps from one base encoding to the next.
        beam: Width of the beam.
        seed: Seed of the search.
        instance: Name of the instance.
    """

    problem: Problem
    solution: Routes
    cost: float
    history: list[list[float]]
    seconds: float
    iterations: int
    search: str
    model: str
    k: int
    beam: int
    seed: int
    instance: str

    @property
    def feasible(self) -> bool:
        """True: a solution that breaks a rule raises instead of becoming a result."""
        return True

    @property
    def metric(self) -> str:
        """The rule for distances, rounding included, that the cost is measured in."""
        return self.problem.metric

    @property
    def routes(self) -> Routes:
        """The routes, with the nodes numbered as in the instance's file."""
        numbers = self.problem.numbers
        if numbers is None:
            return [list(route) for route in self.solution]
        return [[numbers[node] for node in route] for route in self.solution]

    @property
    def prize(self) -> float | None:
        """The collected prize of an OP, else None."""
        return -self.cost + 0.0 if isinstance(self.problem, OP) else None

    @property
    def length(self) -> float:
        """The length travelled, in the instance's metric."""
        return float(self.problem.length([self.solution])[0])

    @property
    def gap(self) -> float | None:
        """Percent above the best known cost, where the instance states one."""
        return percent_above(self.cost, self.problem.best_known)

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as it stands in JSON."""
        values = {
            "instance": self.instance,
            "problem": self.problem.name,
            "n": self.problem.n,
            "cost": self.cost,
            "routes": self.routes,
            "feasible": self.feasible,
            "metric": self.metric,
            "search": self.search,
            "model": self.model,
            "k": self.k,
            "beam": self.beam,
            "seed": self.seed,
            "seconds": self.seconds,
            "iterations": self.iterations,
            "history": self.history,
        }
        if self.prize is not None:
            values |= {"prize": self.prize, "length": self.length}
        return values

    def summary(self) -> str:
        """Returns a few lines for people."""
        problem = self.problem
        worth = [f"cost {number(self.cost)}"]
        if isinstance(problem, OP):
            limit = number(float(problem.limit[0]))
            worth = [f"prize {number(-self.cost + 0.0)}"]
            worth.append(f"length {number(self.length)} of {limit}")
        elif problem.name == "cvrp":
            worth.append(f"{len(self.solution)} routes")
        if self.gap is not None and problem.best_known is not None:
            known = number(abs(problem.best_known))
            worth.append(f"gap {self.gap:.2f} % to the best known {known}")
        time = f"{self.seconds:.2f} s"
        if self.iterations:
            time += f", {self.iterations} iterations"
        return "\n".join(
            [
                f"{self.instance} ({problem.name}, n = {problem.n}, {self.metric})",
                f"  {', '.join(worth)}",
                f"  {self.search} in {time}, seed {self.seed}",
                f"  {self.model}, k = {self.k}, beam {self.beam}",
            ]
        )

    def plot(self, path: str | Path, reference: float | None = None) -> None:
        """Draws the routes to a `.png`, `.svg` or `.pdf` file.

        Args:
            path: The file to write.
            reference: Cost to state the gap to; by default the best known one.
        """
        from renco.plot import plot_routes

        plot_routes(
            self.problem,
            self.solution,
            path,
            title=self.instance,
            reference=reference,
        )

    def write(self, path: str | Path) -> None:
        """Writes the solution: `.sol`, `.tour` (TSP), or `.json` with everything."""
        if Path(path).suffix.lower() == ".json":
            write_json(Path(path), self.to_dict())
        else:
            write_solution(path, self.problem, self.solution, self.cost)


def percent_above(cost: float, reference: float | None) -> float | None:
    """Returns the relative gap to a reference cost, None where there is none."""
    if not reference:
        return None
    return 100 * (cost - reference) / abs(reference)


def number(value: float) -> str:
    """Returns a cost as people read it: whole, or with six digits."""
    value = float(value)
    return str(int(value)) if value.is_integer() else f"{value:.6g}"
