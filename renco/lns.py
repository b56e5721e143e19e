"""Large neighborhood search (Algorithm 4), as long as a stop rule allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray

from renco.construct import beam_search
from renco.model import Policy
from renco.pace import OutOfTime, Pace, least_seconds, step_seconds, tokens_at_once
from renco.problems import Problem, Routes
from renco.quick import quick_start
from renco.segments import CutSettings, Segments, segments_of
from renco.segments.base import RouteChoice
from renco.sight import LEAST, Sight, renewal, usual
from renco.state import State
from renco.stop import Stop

WORTHWHILE = 0.1
"""Part of the sub-problems that must get better, or the next stage begins."""
OVERLAP = 3
"""How often the sub-problems of an iteration may cover an instance."""


@dataclass(frozen=True)
class LNSSettings:
    """The parameters of Algorithm 4, by their names in the paper, and ours.

    Attributes:
        k_init: The base encoder runs every k_init-th step of the initial solution.
        k_sub: The same for sub-problems.
        b_init: Beam width for the initial solution.
        b_sub: Beam width for sub-problems.
        n_sub: Nodes of a sub-problem: with both ends for the TSP, open customers
            for the CVRP and open nodes for the OP.
        segments: Sub-problems per instance and iteration; None for as many as keep
            the machine busy. The paper has all that fit for the TSP, one for the
            CVRP.
        order: CVRP: which routes are cut together, "random" as in the paper or
            "near" each other.
        inner: OP: whether half of the segments end at any visited node, not at the
            depot.
        n_least: Unlike the paper, which has one size of sub-problems, the search
            begins with this one and goes on to larger ones, up to n_sub, as small
            ones stop to get better. None for n_sub.
        b_least: The same for beam widths, up to b_sub. None for b_sub.
        polish: Improves solutions by local moves between iterations, with at most a
            part of the time. Unlike the paper, where only the policy changes them.
        share: Part of a time limit that the initial solution may be expected to take:
            beams get narrower to fit, and where not even one does, a quick start
            without a network stays.
        kicks: Times per iteration that a solution is disturbed at a random place and
            repaired. Unlike the paper.
        near: Nodes that the policy looks at for the initial solution, where there are
            more (`renco.sight`); None for all, as in the paper.
    """

    k_init: int = 1000
    k_sub: int = 1000
    b_init: int = 16
    b_sub: int = 16
    n_sub: int = 100
    segments: int | None = None
    order: RouteChoice = "near"
    inner: bool = True
    n_least: int | None = None
    b_least: int | None = None
    polish: bool = False
    share: float = 0.05
    kicks: int = 0
    near: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if a setting makes no sense."""
        least = {"n_sub": 4, "n_least": 4}  # two nodes to swap between fixed ends
        for name in ("k_init", "k_sub", "b_init", "b_sub", "b_least", "segments"):
            least[name] = 1
        least["kicks"], least["near"] = 0, LEAST
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise ValueError(f"{name} must be at least {smallest}, got {value}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {self.share}")
        if self.order not in ("random", "near"):
            raise ValueError(f"order must be random or near, got {self.order!r}")

    @property
    def stages(self) -> list[tuple[int, int]]:
        """Size and beam width of sub-problems, the cheapest first."""
        sizes, widths = [self.n_sub], [self.b_sub]
        while sizes[0] // 2 >= (self.n_least or self.n_sub):
            sizes.insert(0, sizes[0] // 2)
        while widths[0] // 4 >= (self.b_least or self.b_sub):
            widths.insert(0, widths[0] // 4)
        return [(size, width) for width in widths for size in sizes]

    @classmethod
    def default(cls, problem: str, n: int, *, recurrent: bool) -> Self:
        """Returns the settings for a problem of n nodes.

        Args:
            problem: Name of the problem.
            n: Size of the instances.
            recurrent: Whether the policy has a recurrent encoder. Then the base
                encoder runs at first steps only, as in figure 3.
        """
        k = 1000 if recurrent else 1
        return cls(k_init=k, k_sub=k, near=usual(problem, n), **DEFAULTS[problem])


_OURS = {"n_least": 25, "b_sub": 4, "b_least": 1, "polish": True}
DEFAULTS: dict[str, dict[str, Any]] = {
    "tsp": {"n_sub": 100, **_OURS, "b_sub": 16, "kicks": 2000},
    "cvrp": {"n_sub": 50, **_OURS, "kicks": 16_000},
    "op": {"n_sub": 100, **_OURS, "share": 0.5, "kicks": 2000},
}
"""What is best on two cores, by problem."""


@dataclass(frozen=True, eq=False)
class Progress:
    """How a search is doing.

    Attributes:
        seconds: Time since its start.
        iterations: Iterations done.
        cost: Best cost of each instance.
        tried: Sub-problems solved so far.
        improved: How many of them made a solution better.
    """

    seconds: float
    iterations: int
    cost: Float64[ndarray, " batch"]
    tried: int
    improved: int

    @property
    def improvement_rate(self) -> float:
        """The part of the sub-problems that made a solution better."""
        return self.improved / max(1, self.tried)


Callback = Callable[[Progress], object]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best solutions found.

    Attributes:
        routes: One solution per instance, checked by `Problem.cost`.
        cost: Their costs.
        history: For each instance, when (in seconds since the start) which cost
            was reached.
        iterations: Iterations done.
        seconds: Time taken.
        interrupted: Whether Ctrl-C ended the search.
    """

    routes: list[Routes]
    cost: Float64[ndarray, " batch"]
    history: list[list[tuple[float, float]]]
    iterations: int
    seconds: float
    interrupted: bool = False


def large_neighborhood_search(
    policy: Policy,
    problem: Problem,
    settings: LNSSettings | None,
    stop: Stop,
    *,
    seed: int = 0,
    start: Sequence[Routes] | None = None,
    callback: Callback | None = None,
) -> SearchResult:
    """Improves solutions piece by piece, all instances of a batch at once.

    Algorithm 4. Never returns a solution worse than `start`. With a limit of
    iterations the result depends on the seed only; under a time limit, beam widths
    adapt to what still fits, and the limit includes the initial solution. Ctrl-C
    (KeyboardInterrupt) ends the search like a stop rule.

    Args:
        policy: Solves the sub-problems; the search runs on its device.
        problem: The instances.
        settings: None for the defaults of the problem.
        stop: Asked before each iteration, with the mean cost of the instances.
        seed: Seed of all random choices.
        start: Solutions to improve; None constructs them by beam search.
        callback: Called with the progress after every iteration.

    Raises:
        Infeasible: A solution of `start` breaks a rule.
        ValueError: Settings do not fit the policy.
    """
    recurrent = policy.recurrent is not None
    if settings is None:
        settings = LNSSettings.default(problem.name, problem.n, recurrent=recurrent)
    if not recurrent and (settings.k_init, settings.k_sub) != (1, 1):
        raise ValueError(
            "a policy without recurrent encoder needs k_init = k_sub = 1, "
            f"got {settings.k_init} and {settings.k_sub}"
        )
    search = _Search(policy, problem, settings, stop, seed)
    return search.run(start, callback)


class _Search:
    """One run of the search."""

    def __init__(
        self,
        policy: Policy,
        problem: Problem,
        settings: LNSSettings,
        stop: Stop,
        seed: int,
    ) -> None:
        self.policy, self.problem, self.settings = policy, problem, settings
        self.stop, self.pace = stop, Pace(stop)
        self.rng = np.random.default_rng(seed)
        parameter = next(policy.parameters(), torch.empty(0))
        self.device = parameter.device
        self.tokens = tokens_at_once(self.device)
        self.iterations = self.tried = self.improved = 0
        self.polishing = self.kicking = 0.0
        self.stage = 0
        self.history: list[list[tuple[float, float]]] = [
            [] for _ in range(len(problem))
        ]

    def run(
        self, start: Sequence[Routes] | None, callback: Callback | None
    ) -> SearchResult:
        """Searches until the rule, the clock or the user says stop."""
        first = start
        if first is None:
            first = quick_start(self.problem, self.rng, hurry=self.pace.late)
        segments = segments_of(self.problem, list(first), self.device)
        interrupted = False
        try:
            self._record(segments, callback)
            self._polish(segments)
            if start is None:
                self._construct(segments)
                self._polish(segments)
                self._kick(segments)
                self._record(segments, callback)
            while not self.stop(float(segments.cost.mean())):
                if not self._iterate(segments):
                    break
                self._polish(segments)
                self._kick(segments)
                self._record(segments, callback)
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            interrupted = True
        routes = segments.routes
        return SearchResult(
            routes=routes,
            cost=self.problem.cost(routes),
            history=self.history,
            iterations=self.iterations,
            seconds=self.pace.elapsed(),
            interrupted=interrupted,
        )

    def _record(self, segments: Segments[Any], callback: Callback | None) -> None:
        """Notes improvements and reports the progress."""
        now, cost = self.pace.elapsed(), segments.cost.copy()
        for history, value in zip(self.history, cost.tolist(), strict=True):
            if not history or value < history[-1][1]:
                history.append((now, value))
        if callback is not None:
            callback(Progress(now, self.iterations, cost, self.tried, self.improved))

    def _polish(self, segments: Segments[Any]) -> None:
        """Applies local moves, if asked for and while they have time."""
        if self.settings.polish:
            began = self.pace.elapsed()
            segments.polish(partial(self.pace.strays, self.polishing, began))
            self.polishing += self.pace.elapsed() - began

    def _kick(self, segments: Segments[Any]) -> None:
        """Disturbs and polishes, if asked for and while there is time."""
        if self.settings.kicks:
            began = self.pace.elapsed()
            hurry = partial(self.pace.ahead, self.kicking, began)
            segments.kick(self.settings.kicks, self.pace.part_left(), self.rng, hurry)
            self.kicking += self.pace.elapsed() - began

    def _construct(self, segments: Segments[Any]) -> None:
        """Offers solutions by beam search, the first line of Algorithm 4."""
        problem, settings = self.problem, self.settings
        width = self._initial_width()
        if width == 0:
            return
        rows = max(1, self.tokens // (width * (problem.n + 1)))
        for low in range(0, len(problem), rows):
            part = problem[low : low + rows]
            start = part.start(self.device)
            decisions = self._solve(start, settings.k_init, width, settings.near)
            for i, routes in enumerate(part.routes(torch.from_numpy(decisions))):
                segments.offer(low + i, routes)

    def _initial_width(self) -> int:
        """Returns the largest beam width that fits, zero if not even greedy does."""
        pace, problem, k = self.pace, self.problem, self.settings.k_init
        share, near = self.settings.share, self.settings.near
        if not pace.limited:
            return self.settings.b_init
        sizes = np.minimum(np.arange(problem.n, 0, -1), near or problem.n)
        k = renewal(k, near, problem.n)
        if self.device.type == "cpu":
            least = least_seconds(self.policy, sizes, k) * len(problem)
            if pace.times(least, share) == 0:
                return 0
        first = Sight.of(problem[:1].start(self.device)).renewed(near).seen
        # Steps get shorter with the number of nodes.
        steps = sizes.sum() / sizes[0]
        seconds = step_seconds(self.policy, first, k) * steps * len(problem)
        return min(self.settings.b_init, pace.times(seconds, share))

    def _iterate(self, segments: Segments[Any]) -> bool:
        """Runs one iteration; false if the instances have no sub-problems."""
        settings, problem = self.settings, self.problem
        size, width = settings.stages[self.stage]
        size, count = min(size, problem.n + 1), settings.segments
        if count is None:
            count = self.tokens // (width * size * len(problem))
            count = max(1, min(count, OVERLAP * problem.n // size))
        count, width = self.pace.plan(count, width, len(problem), size)
        how = CutSettings(size, settings.order, settings.inner)
        cut = segments.sample_subproblem(count, how, self.rng)
        if cut is None:
            return False
        decisions = self._solve(cut.state, settings.k_sub, width)
        better, pasted = segments.update_solution(cut, decisions)
        self.pace.solved(len(cut) * width, size)
        self.iterations += 1
        self.tried += len(cut)
        self.improved += int(pasted.sum())
        if better.mean() < WORTHWHILE:
            self.stage = (self.stage + 1) % len(settings.stages)
        return True

    def _solve(
        self, state: State, k: int, width: int, near: int | None = None
    ) -> Int[ndarray, "row step"]:
        """Returns decisions by beam search, in batches that fit the machine."""
        total, nodes = state.node.shape
        rows = max(1, self.tokens // (width * nodes))
        found = []
        self.pace.begin()
        for index in torch.arange(total, device=self.device).split(rows):
            part = state.rows(index)
            solved = beam_search(
                self.policy,
                part,
                k=k,
                width=width,
                merge=True,
                near=near,
                on_step=self.pace.on_step,
            )
            # Batches of the OP may be done early: the rest is staying at home.
            home = part.node[:, -1:].expand(-1, nodes - 2)
            steps = solved.decisions.shape[1]
            found.append(torch.cat([solved.decisions, home[:, steps:]], dim=1))
        return torch.cat(found).cpu().numpy()
