"""What is compared: shipped models and installed solvers.

Models are found by what their `config.json` says, not by their names.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from peers import lehd, reinforced
from protocol import SHOWN, Answer, Meter, Method, gflop

from renco import __version__
from renco.checkpoints import load, read_config, shipped
from renco.experts import EXPERTS, MissingExpert
from renco.lns import DEFAULTS, LNSSettings, large_neighborhood_search
from renco.model import Policy, PolicyConfig
from renco.pace import Pace
from renco.problems import PROBLEMS, Problem
from renco.quick import quick_start
from renco.searches import ONCE, SearchOptions, find_search
from renco.segments import segments_of
from renco.sight import renewal
from renco.stop import MaxIterations, MaxRuntime

WARM_UP = 50
"""Nodes of the instance that warms a model up."""
ALGORITHM4 = "algorithm4"
"""The search of the paper: the policy alone, one size of sub-problems and beams."""
PROGRAMS = ("concorde", "lkh", "op-solver")
"""Solvers that end when they are done: they have no place at equal time limits."""


@dataclass(frozen=True)
class Model:
    """A trained model in one role.

    Attributes:
        name: Shipped name or path.
        role: `recurrent`; `base`, the model below it, decoded at every step as BQ
            does; `plain`, a control of another size without recurrence.
        sha256: Of its weights.
        k: Steps from one base encoding to the next.
        size: Of the encoder that runs at most steps.
    """

    name: str
    role: str
    sha256: str
    k: int
    size: str

    def method(self, search: str, **settings: Any) -> Method:
        """Returns the method that searches with the model."""
        settings = {"k": self.k} | settings
        return Method(
            role=self.role,
            model=Path(self.name).name,
            source=self.name,
            size=self.size,
            model_sha256=self.sha256[:SHOWN],
            search=search,
            **settings,
        )


def models(problem: str, others: Iterable[str] = ()) -> list[Model]:
    """Returns the models for a problem in their roles.

    The base of a recurrent model is the shipped one that it was trained on, or that
    has the size of its base encoder, or the base encoder that it contains; without
    any recurrent model the largest one. All others are controls.

    Args:
        problem: Name of the problem.
        others: Folders of further models.
    """
    every = {name: read_config(name) for name in [*shipped(), *others]}
    configs = {n: c for n, c in every.items() if c["policy"]["problem"] == problem}
    alone = {n: c for n, c in configs.items() if c["policy"]["recurrent"] is None}
    sizes = {name: PolicyConfig.from_dict(c["policy"]) for name, c in configs.items()}
    found = []
    bases: set[str] = set()
    for name, config in configs.items():
        size, digest = sizes[name], config["sha256"]
        if size.recurrent is None:
            continue
        found.append(Model(name, "recurrent", digest, ONCE, size.recurrent.name))
        below = (config.get("base") or {}).get("sha256")
        known = [n for n, c in alone.items() if c["sha256"] == below]
        known = known or [n for n in alone if sizes[n].base == size.base][:1]
        if known:
            bases.update(known)
        else:
            found.append(Model(name, "base", digest, 1, size.base.name))
    if not found and alone:
        bases.add(max(alone, key=lambda name: alone[name]["parameters"]))
    for name, config in alone.items():
        role = "base" if name in bases else "plain"
        found.append(Model(name, role, config["sha256"], 1, sizes[name].base.name))
    return sorted(found, key=lambda model: (model.role != "recurrent", model.role))


def peers(problem: str) -> list[Method]:
    """Returns the installed classical solvers of a problem, without time limits."""
    found = []
    for name, expert in EXPERTS.items():
        if problem not in expert.problems or name in PROGRAMS:
            continue
        try:
            expert.check()
        except MissingExpert:
            continue
        found.append(Method(role="peer", model=name, version=expert.version))
    return found


def local_method() -> Method:
    """Returns our local moves and kicks without any network."""
    return Method(role="local", model="local-moves", version=__version__)


def lehd_method(folder: str, search: str) -> Method:
    """Returns a trained LEHD, `greedy` or with re-constructions as in `rrc10`."""
    about = lehd.read_about(folder)
    size = PolicyConfig.from_dict(about["policy"]).base
    return Method(
        role="lehd",
        model=Path(folder).name,
        source=folder,
        size=replace(size, layers=size.layers + about["layers"]).name,
        model_sha256=about["sha256"][:SHOWN],
        search=search,
    )


def reinforced_method(folder: str, search: str) -> Method:
    """Returns a trained POMO or MDAM, asked by one of its searches."""
    about = reinforced.read_about(folder)
    return Method(
        role=about["method"],
        model=Path(folder).name,
        source=folder,
        model_sha256=about["sha256"][:SHOWN],
        search=search,
    )


def in_sight(method: Method) -> int | None:
    """Returns how many nodes a greedy construction looks at; 0 for all, as the paper.

    What our own search looks at is its own choice, None.
    """
    if method.search == "lns":
        return None
    return int(method.search[4:]) if method.search.startswith("near") else 0


def rounds(method: Method) -> int:
    """Returns the number of random re-constructions of LEHD, or of rounds of EAS."""
    counted = method.search.startswith(("rrc", "eas"))
    return int(method.search[3:]) if counted else 0


class Bench:
    """Runs methods; models are loaded once, and watched."""

    def __init__(self, device: torch.device) -> None:
        """Runs models on a device."""
        self.device = device
        self._policies: dict[str, tuple[Policy, Meter]] = {}

    def _policy(self, name: str) -> tuple[Policy, Meter]:
        if name not in self._policies:
            policy = load(name, device=self.device)
            self._policies[name] = policy, Meter(policy)
        return self._policies[name]

    def __call__(self, method: Method, problem: Problem, seed: int) -> Answer:
        """Solves one instance."""
        if method.role == "peer":
            return _ask(method, problem, seed)
        if method.role == "local":
            return _kick(method, problem, seed)
        if method.role == "lehd":
            return self._lehd(method, problem, seed)
        if method.role in reinforced.SEARCHES:
            return self._reinforced(method, problem, seed)
        return self._search(method, problem, seed)

    def warm_up(self, method: Method, problem: Problem) -> None:
        """Solves a small instance; the first of a model pays for what it loads."""
        if method.role in ("peer", "local"):
            return
        small = PROBLEMS[problem.name].random(1, min(problem.n, WARM_UP), seed=1)
        once = None if method.limit is None else 0.0
        self(replace(method, limit=once), small, 0)

    def _lehd(self, method: Method, problem: Problem, seed: int) -> Answer:
        policy = lehd.load(method.source, self.device)
        _wait(self.device)
        began = perf_counter()
        routes = lehd.solve(policy, problem, rounds(method), seed, self.device)
        problem.cost([routes])
        return Answer(routes=routes, seconds=perf_counter() - began)

    def _reinforced(self, method: Method, problem: Problem, seed: int) -> Answer:
        model = reinforced.load(method.source, self.device)
        _wait(self.device)
        began = perf_counter()
        routes = reinforced.solve(model, problem, method.search, seed, self.device)
        problem.cost([routes])
        return Answer(routes=routes, seconds=perf_counter() - began)

    def _search(self, method: Method, problem: Problem, seed: int) -> Answer:
        policy, meter = self._policy(method.source)
        stop = None
        if method.limit is not None:  # zero warms up
            stop = MaxRuntime(method.limit) if method.limit else MaxIterations(1)
        options = SearchOptions(
            k=method.k,
            beam=method.width,
            n_sub=method.n_sub,
            stop=stop,
            seed=seed,
            near=in_sight(method),
        )
        meter.reset()
        _wait(self.device)
        began = perf_counter()
        if method.search == ALGORITHM4:
            assert method.k is not None and method.n_sub is not None and stop
            plain = LNSSettings(method.k, method.k, n_sub=method.n_sub)
            found = large_neighborhood_search(policy, problem, plain, stop, seed=seed)
        else:
            search = "greedy" if options.near else method.search
            found = find_search(search)(policy, problem, options)
        _wait(self.device)
        return Answer(
            routes=found.routes[0],
            seconds=perf_counter() - began,
            inside=meter.seconds if meter.timed else None,
            gflop=meter.gflop,
            history=found.history[0] if method.search in ("lns", ALGORITHM4) else (),
        )


def _ask(method: Method, problem: Problem, seed: int) -> Answer:
    """Lets a classical solver solve one instance."""
    assert method.limit is not None
    began = perf_counter()
    routes = EXPERTS[method.model](problem, seconds=method.limit, seed=seed)
    problem.cost([routes])
    return Answer(routes=routes, seconds=perf_counter() - began)


def _kick(method: Method, problem: Problem, seed: int) -> Answer:
    """Improves one quick solution by local moves and kicks until time is up."""
    assert method.limit is not None
    stop, began = MaxRuntime(method.limit), perf_counter()
    rng, pace = np.random.default_rng(seed), Pace(stop)
    segments = segments_of(problem, quick_start(problem, rng), torch.device("cpu"))
    segments.polish()
    times = DEFAULTS[problem.name]["kicks"]
    while pace.left() > 0:
        segments.kick(times, pace.part_left(), rng, lambda: pace.left() <= 0)
    problem.cost(segments.routes)
    return Answer(routes=segments.routes[0], seconds=perf_counter() - began)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


EFFICIENCY = 0.5
"""Share of the machine's peak that encoders reach, to tell beforehand how long."""
PER_STEP = 0.002
"""Seconds of a step outside the encoders, for the same purpose."""


def expected_seconds(method: Method, problem: str, n: int, peak: float) -> float:
    """Returns about how long a method takes on an instance of n nodes."""
    if method.limit is not None:
        return method.limit
    if method.role in reinforced.SEARCHES:
        views = 1 if method.search == "greedy" else reinforced.VIEWS
        return PER_STEP * n * views * (1 + 4 * rounds(method)) * n / 50
    if method.role == "lehd":
        about = lehd.read_about(method.source)
        config = PolicyConfig.from_dict(about["policy"])
        config = replace(config, base=replace(config.base, layers=about["layers"]))
        again = 1 + rounds(method) / 3  # a cut is half as long on average
    else:
        config, again = PolicyConfig.from_dict(read_config(method.source)["policy"]), 1
    steps = min(n, round(4 * n**0.5)) if problem == "op" else n
    work = 0.0
    near = in_sight(method) or n
    k = renewal(method.k or 1, near, n)
    for t in range(steps):
        size, outer = config.base, 0
        if config.recurrent is not None and t % k:
            size, outer = config.recurrent, config.base.d
        work += gflop(size, method.width or 1, min(n - t, near) + 1, outer)
    return again * (work / (EFFICIENCY * peak) + PER_STEP * steps)
