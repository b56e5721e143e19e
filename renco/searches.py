"""The searches by name, each behind one call: a batch of instances to solutions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from renco.construct import Solutions, beam_search, greedy
from renco.lns import Callback, LNSSettings, SearchResult, large_neighborhood_search
from renco.model import Policy
from renco.problems import Problem, Routes
from renco.sight import LEAST, usual
from renco.state import State
from renco.stop import MaxRuntime, Stop

SECONDS = 10.0
"""How long the large neighborhood search runs unless told otherwise."""
BEAM = 16
"""Width of a beam search unless told otherwise."""
ONCE = 1000
"""k with which the base encoder runs once, up to that many steps (figure 2)."""
LARGEST_BATCH = 200_000
"""Nodes, times beams, that are encoded at once: about a gigabyte of activations."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a user may ask of a search; None leaves the choice to the search.

    Attributes:
        k: Steps from one base encoding to the next.
        beam: Width of the beams.
        n_sub: Size of sub-problems.
        near: Nodes that the policy looks at where there are more (`renco.sight`); 0
            for all.
        seed: Seed of random choices.
        stop: When to end.
        start: Solutions to improve, one per instance.
        callback: Called as the search goes on.
    """

    k: int | None = None
    beam: int | None = None
    n_sub: int | None = None
    near: int | None = None
    seed: int = 0
    stop: Stop | None = None
    start: Sequence[Routes] | None = None
    callback: Callback | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that make no sense."""
        for name in ("k", "beam", "n_sub"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.near and self.near < LEAST:
            raise ValueError(f"near must be 0 or at least {LEAST}, got {self.near}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")


@dataclass(frozen=True)
class Search:
    """A way to solve a batch of instances of equal size.

    Attributes:
        run: Solves a batch; k, beam and near are always given.
        width: Returns the width of the beams unless the user gives one.
        improves: Whether it goes on until it is stopped, and from a given start.
    """

    run: Callable[[Policy, Problem, SearchOptions], SearchResult]
    width: Callable[[Problem], int]
    improves: bool = False

    def __call__(
        self, policy: Policy, problem: Problem, options: SearchOptions
    ) -> SearchResult:
        """Returns one checked solution per instance."""
        return self.run(policy, problem, self.completed(options, policy, problem))

    def completed(
        self, options: SearchOptions, policy: Policy, problem: Problem
    ) -> SearchOptions:
        """Returns the options with k, beam and near filled in.

        Raises:
            ValueError: The search or the policy cannot do what is asked.
        """
        if not self.improves:
            for name in ("stop", "start", "callback", "n_sub"):
                if getattr(options, name) is not None:
                    raise ValueError(f"only the search lns takes {name}")
        recurrent = policy.recurrent is not None
        if not recurrent and options.k not in (None, 1):
            raise ValueError(
                f"{policy.name} has no recurrent encoder: k must be 1, got {options.k}"
            )
        k = options.k or (ONCE if recurrent else 1)
        near = options.near
        if near is None:
            near = usual(problem.name, problem.n) or 0
        beam = options.beam or self.width(problem)
        return replace(options, k=k, beam=beam, near=near)


def construction(
    build: Callable[[Policy, State, SearchOptions], Solutions], beam: int = 1
) -> Search:
    """Makes a search of a function that builds solutions from start states.

    Instances are taken in batches that fit into memory; time includes the
    environment and the check of the solutions.
    """

    def run(policy: Policy, problem: Problem, options: SearchOptions) -> SearchResult:
        began = perf_counter()
        device = next(policy.parameters()).device
        rows = max(1, LARGEST_BATCH // ((problem.n + 2) * (options.beam or 1)))
        routes: list[Routes] = []
        for low in range(0, len(problem), rows):
            part = problem[low : low + rows]
            built = build(policy, part.start(device), options)
            routes += part.routes(built.decisions.cpu())
        cost = problem.cost(routes)
        seconds = perf_counter() - began
        history = [[(seconds, value)] for value in cost.tolist()]
        return SearchResult(routes, cost, history, iterations=0, seconds=seconds)

    return Search(run, lambda problem: beam)


def _defaults(problem: Problem) -> LNSSettings:
    return LNSSettings.default(problem.name, problem.n, recurrent=True)


def _improve(policy: Policy, problem: Problem, options: SearchOptions) -> SearchResult:
    assert options.k is not None and options.beam is not None
    settings = replace(
        _defaults(problem), k_init=options.k, k_sub=options.k, near=options.near or None
    )
    if options.beam != settings.b_sub:  # what the user asked for
        settings = replace(settings, b_init=options.beam, b_sub=options.beam)
    if options.n_sub is not None:
        settings = replace(settings, n_sub=options.n_sub)
    return large_neighborhood_search(
        policy,
        problem,
        settings=settings,
        stop=options.stop or MaxRuntime(SECONDS),
        seed=options.seed,
        start=options.start,
        callback=options.callback,
    )


SEARCHES: dict[str, Search] = {
    "greedy": construction(
        lambda policy, state, options: greedy(
            policy, state, k=options.k or 1, near=options.near or None
        )
    ),
    "beam": construction(
        lambda policy, state, options: beam_search(
            policy,
            state,
            k=options.k or 1,
            width=options.beam or BEAM,
            merge=True,
            near=options.near or None,
        ),
        beam=BEAM,
    ),
    "lns": Search(_improve, lambda problem: _defaults(problem).b_sub, improves=True),
}
"""All searches; a new one is a function and a line here."""


def find_search(name: str) -> Search:
    """Returns a search by name.

    Raises:
        ValueError: There is no such search.
    """
    if name not in SEARCHES:
        known = ", ".join(SEARCHES)
        raise ValueError(f"unknown search {name!r}: expected one of {known}")
    return SEARCHES[name]
