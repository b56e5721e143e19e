"""The work behind `renco solve`: one bad instance does not stop the others."""

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from renco.checkpoints import locate
from renco.commands.console import complain, usage
from renco.commands.limits import Limits
from renco.commands.references import read_references
from renco.commands.watching import Interrupt, Watcher
from renco.formats import FormatError, read_all, read_json, read_solution
from renco.model import PRECISIONS, Policy
from renco.plot import check_format
from renco.problems import Problem, Routes
from renco.result import Result, percent_above
from renco.searches import SearchOptions, find_search
from renco.solver import as_results, find_device, find_policy, using_threads
from renco.violations import violations


@dataclass(frozen=True, eq=False)
class Task:
    """An instance to solve, and what to call it."""

    name: str
    problem: Problem


@dataclass(kw_only=True)
class Job:
    """All that one call of `renco solve` is asked to do; see its options."""

    search: str
    model: str | None
    device: str
    precision: str
    threads: int | None
    beam: int | None
    k: int | None
    n_sub: int | None
    near: int | None
    seed: int
    time_limit: float | None
    iterations: int | None
    batch: bool
    start: str | None
    reference: str | None
    folder: Path | None
    picture: str | None
    quiet: bool
    failures: int = 0
    several: bool = False
    references: dict[str, float] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    written: set[Path] = field(default_factory=set)

    def run(self, files: list[str]) -> list[Result]:
        """Solves what can be solved and returns the results in order."""
        self._check()
        tasks = self._read(files)
        self.several = len(files) > 1 or len(tasks) > 1
        if self.start is not None and self.several:
            raise usage("a start is for one instance", "--start")
        found: dict[Task, Result] = {}
        interrupt = Interrupt()
        with (
            using_threads(self.threads),
            interrupt,
            Watcher(len(tasks), quiet=self.quiet) as watcher,
        ):
            for group in self._groups(tasks):
                if not interrupt.asked:
                    found |= self._try(group, interrupt, watcher)
        if interrupt.asked and len(found) + self.failures < len(tasks):
            left = len(tasks) - len(found)
            complain(f"interrupted: {left} of {len(tasks)} instances are not solved")
            self.failures += left
        return [found[task] for task in tasks if task in found]

    def gap(self, result: Result) -> float | None:
        """Returns the gap to the reference that the user or the file gives."""
        return percent_above(result.cost, self._known(result))

    def _known(self, result: Result) -> float | None:
        reference = self.references.get(result.instance, self.references.get(""))
        if reference is None:
            return result.problem.best_known
        # People state prizes, not costs.
        return -abs(reference) if result.problem.name == "op" else reference

    def _check(self) -> None:
        """Raises usage errors before any work is done."""
        try:
            option = "--search"
            find_search(self.search)
            option = "--device"
            find_device(self.device)
            option = "--plot"
            if self.picture is not None:
                check_format(self.picture)
            option = "--model"
            if self.model is not None:
                locate(self.model)
        except ValueError as error:
            raise usage(str(error), option) from None
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise usage(f"expected {known}, got {self.precision!r}", "--precision")
        if self.reference is not None:
            self.references = read_references(self.reference)

    def _read(self, files: list[str]) -> list[Task]:
        tasks: list[Task] = []
        for file in files:
            try:
                problems = (
                    read_json(sys.stdin.buffer.read())
                    if file == "-"
                    else read_all(file)
                )
            except FormatError as error:
                self._fail(error)
                continue
            stem = "stdin" if file == "-" else Path(file).stem
            for number, problem in enumerate(problems):
                place = f"-{number}" if len(problems) > 1 else ""
                tasks.append(Task(problem.title or stem + place, problem))
        return tasks

    def _groups(self, tasks: list[Task]) -> list[list[Task]]:
        """Returns what is solved together."""
        if not self.batch:
            return [[task] for task in tasks]
        groups: dict[object, list[Task]] = defaultdict(list)
        for task in tasks:
            problem = task.problem
            alone = None if problem.matrix is None else id(task)
            groups[problem.name, problem.n, problem.metric, alone].append(task)
        return list(groups.values())

    def _try(
        self, group: list[Task], interrupt: Interrupt, watcher: Watcher
    ) -> dict[Task, Result]:
        try:
            results = self._solve(group, interrupt, watcher)
        except KeyboardInterrupt:
            return {}
        except (ValueError, OSError, RuntimeError) as error:
            self._fail(f"{group[0].name}: {error}", len(group))
            return {}
        for result in results:
            try:
                self._keep(result)
            except (ValueError, OSError) as error:
                self._fail(error)
        return dict(zip(group, results, strict=True))

    def _solve(
        self, group: list[Task], interrupt: Interrupt, watcher: Watcher
    ) -> list[Result]:
        problem = joined([task.problem for task in group])
        search = find_search(self.search)
        options = SearchOptions(
            k=self.k, beam=self.beam, near=self.near, seed=self.seed
        )
        limits = Limits.of(self.search, self.time_limit, self.iterations)
        limits = limits.times(len(group))
        if limits.rule is not None:
            options = replace(
                options,
                n_sub=self.n_sub,
                stop=limits.rule | interrupt,
                start=self._start(problem),
                callback=watcher,
            )
        policy = self._policy(problem.name)
        options = search.completed(options, policy, problem)
        watcher.begin(group[0].name, len(group), limits.seconds)
        with interrupt.letting_finish(search.improves):
            solved = search(policy, problem, options)
        watcher.end(len(group))
        instances = [task.problem for task in group]
        names = [task.name for task in group]
        return as_results(instances, solved, self.search, policy, options, names)

    def _policy(self, problem: str) -> Policy:
        if problem not in self.policies:
            self.policies[problem] = find_policy(
                self.model, problem, device=self.device, precision=self.precision
            )
        return self.policies[problem]

    def _start(self, problem: Problem) -> list[Routes] | None:
        if self.start is None:
            return None
        routes = read_solution(self.start, problem)
        if faults := violations(problem, routes):
            raise ValueError(f"{self.start}: {'; '.join(faults)}")
        return [routes]

    def _keep(self, result: Result) -> None:
        """Writes the files that are asked for, as soon as they can be."""
        if self.folder is not None:
            suffix = ".tour" if result.problem.name == "tsp" else ".sol"
            result.write(self._unused(self.folder / (file_name(result) + suffix)))
        if self.picture is not None:
            path = Path(self.picture)
            if self.several:
                path = path.with_stem(f"{path.stem}-{file_name(result)}")
            result.plot(self._unused(path), self._known(result))

    def _unused(self, path: Path) -> Path:
        """Returns a name that no other instance of this call has taken."""
        unused, number = path, 2
        while unused in self.written:
            unused, number = path.with_stem(f"{path.stem}-{number}"), number + 1
        self.written.add(unused)
        return unused

    def _fail(self, error: Exception | str, count: int = 1) -> None:
        complain(error)
        self.failures += count


def joined(problems: Sequence[Problem]) -> Problem:
    """Returns instances of equal size and metric as one batch."""
    first = problems[0]
    if len(problems) == 1:
        return first
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(problem, name) for problem in problems])
        for name in first.arrays
    }
    return type(first)(metric=first.metric, **arrays)


def file_name(result: Result) -> str:
    """Returns a file name for an instance, whatever its title contains."""
    name = re.sub(r"[^\w.+=-]+", "_", result.instance).strip("._")
    return name[:100] or "instance"
