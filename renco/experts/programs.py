"""Programs that users install themselves: Concorde, LKH-3 and op-solver.

Their licences keep them out of package registries. Each run has its own temporary
folder, is given files of the TSPLIB family with an explicit matrix of scaled
distances, and is stopped when it overstays. Whatever comes back is checked here,
since a program on PATH can be anything.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from renco.experts.base import ExpertFailed, MissingExpert, Solver
from renco.experts.scaling import distances, factor, whole, whole_demands
from renco.problems import CVRP, OP, Infeasible, Problem, Routes

LONGEST = 1_000_000
"""Scaled longest distance: LKH multiplies by 100 and has 32 bits."""


class Program(Solver):
    """Runs an executable found on PATH.

    Attributes:
        program: Name of the executable.
        source: Where users get it.
        grace: Seconds beyond the time limit before the program is stopped.
    """

    program: ClassVar[str]
    source: ClassVar[str]
    grace: ClassVar[float] = 10.0

    @property
    def version(self) -> str:
        """The beginning of the executable's SHA-256: few of them know their version."""
        digest = hashlib.sha256(Path(self._path()).read_bytes()).hexdigest()
        return f"sha256:{digest[:12]}"

    def check(self) -> None:
        """Raises `MissingExpert` unless the program is on PATH."""
        self._path()

    def missing(self) -> MissingExpert:
        """Returns the error that says how to get the program."""
        return MissingExpert(
            f"expert {self.name} needs the program {self.program} on PATH: "
            f"see {self.source}"
        )

    def _path(self) -> str:
        path = shutil.which(self.program)
        if path is None:
            raise self.missing()
        return path

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        with tempfile.TemporaryDirectory(prefix="renco-") as name:
            folder = Path(name)
            arguments = self._write(instance, folder, seconds, seed)
            self._run(arguments, folder, seconds)
            try:
                routes = self._read(instance, folder)
                instance.cost([routes])
            except OSError:
                raise ExpertFailed(f"{self.program} wrote no solution") from None
            except Infeasible as error:
                raise ExpertFailed(f"{self.program} is wrong: {error}") from None
            except (ValueError, LookupError, TypeError) as error:
                raise ExpertFailed(
                    f"{self.program} wrote no readable solution: {error}"
                ) from None
        return routes

    def _run(self, arguments: list[str], folder: Path, seconds: float) -> None:
        log = folder / "log.txt"
        with log.open("wb") as output:
            # Its own process group, so that children do not survive a timeout.
            process = subprocess.Popen(
                [self._path(), *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds + self.grace)
            except subprocess.TimeoutExpired:
                raise ExpertFailed(
                    f"{self.program} was stopped {self.grace:g} s after its limit of "
                    f"{seconds:g} s"
                ) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if code != 0:
            lines = log.read_text(errors="replace").strip().splitlines()
            said = f": {lines[-1][:200]}" if lines else ""
            raise ExpertFailed(f"{self.program} ended with code {code}{said}")

    @abstractmethod
    def _write(
        self, instance: Problem, folder: Path, seconds: float, seed: int
    ) -> list[str]:
        """Writes the input files and returns the arguments of the program."""

    @abstractmethod
    def _read(self, instance: Problem, folder: Path) -> Routes:
        """Returns the solution that the program has written."""


class Concorde(Program):
    """Concorde, which proves optimality; `seconds` is a limit, not a budget."""

    name = "concorde"
    problems = ("tsp",)
    program = "concorde"
    source = "https://www.math.uwaterloo.ca/tsp/concorde.html"

    def _write(
        self, instance: Problem, folder: Path, seconds: float, seed: int
    ) -> list[str]:
        _write_problem(folder / "a.tsp", whole(distances(instance), LONGEST), "TSP")
        # -x: remove what it leaves behind.
        return ["-x", "-s", str(_seed(seed)), "-o", "a.sol", "a.tsp"]

    def _read(self, instance: Problem, folder: Path) -> Routes:
        count, *tour = map(int, (folder / "a.sol").read_text().split())
        if count != len(tour):
            raise ValueError(f"a tour of {count} nodes lists {len(tour)}")
        return [tour]


class LKH(Program):
    """LKH-3 by K. Helsgaun."""

    name = "lkh"
    problems = ("tsp", "cvrp")
    program = "LKH"
    source = "http://akira.ruc.dk/~keld/research/LKH-3"

    def _write(
        self, instance: Problem, folder: Path, seconds: float, seed: int
    ) -> list[str]:
        matrix = whole(distances(instance), LONGEST)
        settings: dict[str, Any] = {
            "PROBLEM_FILE": "a.tsp",
            "TOUR_FILE": "a.tour",
            "RUNS": 1,
            "MAX_TRIALS": 10**9,  # the time limit decides
            "TIME_LIMIT": f"{seconds:g}",
            "SEED": _seed(seed),
            "TRACE_LEVEL": 0,
        }
        if isinstance(instance, CVRP):
            demands, capacity = whole_demands(instance)
            _write_problem(folder / "a.tsp", matrix, "CVRP", demands, capacity)
            # More vehicles than needed, which may stay empty: length is what counts.
            vehicles = -(-int(demands.sum()) // capacity) + 1 + instance.n // 50
            settings["VEHICLES"] = max(1, min(vehicles, instance.n))
            settings["MTSP_MIN_SIZE"] = 0
        else:
            _write_problem(folder / "a.tsp", matrix, "TSP")
        lines = [f"{key} = {value}\n" for key, value in settings.items()]
        (folder / "a.par").write_text("".join(["SPECIAL\n", *lines]))
        return ["a.par"]

    def _read(self, instance: Problem, folder: Path) -> Routes:
        text = (folder / "a.tour").read_text()
        section = text.split("TOUR_SECTION", 1)[1].split("-1", 1)[0]
        tour = [int(number) - 1 for number in section.split()]
        if not isinstance(instance, CVRP):
            return [tour]
        # Numbers beyond the nodes are copies of the depot, one per vehicle.
        routes: Routes = [[]]
        start = next(i for i, node in enumerate(tour) if not 0 < node <= instance.n)
        for node in tour[start:] + tour[:start]:
            if 0 < node <= instance.n:
                routes[-1].append(node)
            else:
                routes.append([])
        return [route for route in routes if route]


class OPSolver(Program):
    """EA4OP, the evolutionary algorithm of G. Kobeaga's op-solver.

    It stops by convergence; `seconds` only bounds how long it may take.
    """

    name = "op-solver"
    problems = ("op",)
    program = "op-solver"
    source = "https://github.com/gkobeaga/op-solver"

    def _write(
        self, instance: Problem, folder: Path, seconds: float, seed: int
    ) -> list[str]:
        assert isinstance(instance, OP)
        matrix = distances(instance)
        scale = factor(matrix, LONGEST)
        # Rounded up: a tour within the limit here is one in the instance as well.
        lengths = np.ceil(matrix * scale).astype(np.int64)
        limit = int(instance.limit[0] * scale)
        _write_problem(
            folder / "a.oplib", lengths, "OP", prizes=instance.prizes[0], limit=limit
        )
        arguments = ["opt", "--op-exact", "0", "--seed", str(_seed(seed))]
        return [*arguments, "--stats", "a.json", "a.oplib"]

    def _read(self, instance: Problem, folder: Path) -> Routes:
        # One object per phase, one after the other; the last is the result.
        text = (folder / "a.json").read_text().strip()
        phase: Any = {}
        end = 0
        while end < len(text):
            phase, end = json.JSONDecoder().raw_decode(text, end)
            end += len(text[end:]) - len(text[end:].lstrip())
        tour = [int(number) - 1 for number in phase["sol"]["cycle"]]
        start = tour.index(0)
        return [tour[start + 1 :] + tour[:start]]


def _write_problem(
    path: Path,
    matrix: np.ndarray,
    kind: str,
    demands: np.ndarray | None = None,
    capacity: int = 0,
    prizes: np.ndarray | None = None,
    limit: int = 0,
) -> None:
    """Writes a file of the TSPLIB family with an explicit matrix; nodes from 1."""
    head = ["NAME : renco", f"TYPE : {kind}", f"DIMENSION : {len(matrix)}"]
    tail = ["EDGE_WEIGHT_SECTION"]
    tail += [" ".join(map(str, row)) for row in matrix.tolist()]
    if demands is not None:
        head.append(f"CAPACITY : {capacity}")
        tail += ["DEMAND_SECTION", *_numbered(demands.tolist())]
    if prizes is not None:
        head.append(f"COST_LIMIT : {limit}")
        tail += ["NODE_SCORE_SECTION", *_numbered(prizes.tolist())]
    head += ["EDGE_WEIGHT_TYPE : EXPLICIT", "EDGE_WEIGHT_FORMAT : FULL_MATRIX"]
    if kind != "TSP":
        tail += ["DEPOT_SECTION", "1", "-1"]
    path.write_text("\n".join([*head, *tail, "EOF", ""]))


def _seed(seed: int) -> int:
    """Returns a seed that is not zero, which some take for none, and fits 31 bits."""
    return 1 + seed % (2**31 - 1)


def _numbered(values: list[Any]) -> list[str]:
    return [f"{number} {value:.15g}" for number, value in enumerate(values, 1)]
