"""The whole system in one function: instance -> model -> search -> checked result."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from renco.checkpoints import load, read_config, shipped
from renco.formats import read, read_solution
from renco.lns import Callback, SearchResult
from renco.model import Policy
from renco.problems import Problem, Routes
from renco.result import Result
from renco.searches import SearchOptions, find_search
from renco.stop import Stop


class NoModel(ValueError):
    """No shipped model can solve the problem."""


def solve(
    instance: Problem | str | Path,
    *,
    search: str = "lns",
    model: str | Path | Policy | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    beam: int | None = None,
    k: int | None = None,
    n_sub: int | None = None,
    near: int | None = None,
    callback: Callback | None = None,
    start: Routes | Result | str | Path | None = None,
) -> Result | list[Result]:
    """Solves an instance, or all instances of a batch together.

    Every solution is checked and costed in float64, in the instance's own metric,
    before it is returned.

    Args:
        instance: One instance, a batch of equal size, or an instance file.
        search: `"greedy"`, `"beam"` or `"lns"`.
        model: Name of a shipped model, a folder, or a policy that is loaded already;
            None for the best shipped model of the problem.
        stop: When the large neighborhood search ends; None for `MaxRuntime(10)`.
        seed: Seed of the search.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:1"`.
        precision: `"auto"`, `"float32"` or `"bfloat16"`.
        threads: Number of processor threads to use; None for torch's own choice.
        beam: Width of the beams.
        k: Steps from one base encoding to the next; 1 never uses the recurrent one.
        n_sub: Size of the sub-problems of the large neighborhood search.
        near: How many nodes the policy looks at where there are more, the nearest; 0
            for all. By default all of up to 300, or else 100 (TSP) or 200.
        callback: Called with the progress of the large neighborhood search.
        start: Solution to improve: routes by node ids, an earlier result, or a file.

    Returns:
        A result; for a batch of several, a list of them.

    Raises:
        ValueError: An argument makes no sense.
        TypeError: The instance is none.
        FormatError: The instance file cannot be read.
        CheckpointError: The model cannot be loaded.
        NoModel: No model for this problem is shipped.
    """
    if isinstance(instance, str | Path):
        instance = read(instance)
    if not isinstance(instance, Problem):
        kind = type(instance).__name__
        raise TypeError(f"expected an instance such as renco.TSP(coords), got {kind}")
    found = find_search(search)
    options = SearchOptions(
        k=k,
        beam=beam,
        n_sub=n_sub,
        near=near,
        seed=seed,
        stop=stop,
        start=None if start is None else [_routes(start, instance)],
        callback=callback,
    )
    policy = find_policy(model, instance.name, device=device, precision=precision)
    options = found.completed(options, policy, instance)
    with using_threads(threads):
        solved = found(policy, instance, options)
    instances = [instance[i] for i in range(len(instance))]
    results = as_results(instances, solved, search, policy, options)
    return results[0] if len(results) == 1 else results


def as_results(
    instances: Sequence[Problem],
    solved: SearchResult,
    search: str,
    policy: Policy,
    options: SearchOptions,
    names: Sequence[str] | None = None,
) -> list[Result]:
    """Checks each solution against its own instance and says how it was found."""
    assert options.k is not None and options.beam is not None
    results = []
    for index, instance in enumerate(instances):
        routes = solved.routes[index]
        results.append(
            Result(
                problem=instance,
                solution=routes,
                cost=float(instance.cost([routes])[0]),
                history=[list(map(float, point)) for point in solved.history[index]],
                seconds=solved.seconds,
                iterations=solved.iterations,
                search=search,
                model=policy.name,
                k=options.k,
                beam=options.beam,
                seed=options.seed,
                instance=names[index] if names else instance.title or instance.name,
            )
        )
    return results


def find_policy(
    model: str | Path | Policy | None,
    problem: str,
    *,
    device: str = "auto",
    precision: str = "auto",
) -> Policy:
    """Returns a policy for a problem, ready to run.

    Raises:
        ValueError: It is for another problem, or the device is not there.
        CheckpointError: It cannot be loaded.
        NoModel: None is given, and none is shipped.
    """
    if isinstance(model, Policy):
        if (device, precision) != ("auto", "auto"):
            raise ValueError("a policy runs where and how it is: move or cast it first")
        policy = model.eval()
    else:
        name = default_model(problem) if model is None else model
        policy = load(name, device=find_device(device), precision=precision)
    if policy.config.problem != problem:
        raise ValueError(
            f"model {policy.name} is for {policy.config.problem}, not for {problem}"
        )
    return policy


def default_model(problem: str) -> str:
    """Returns the shipped model that is best for a problem.

    That is the one whose config says `"default": true`, else one with a recurrent
    encoder, else the first.
    """
    models = {
        name: config
        for name in shipped()
        if (config := read_config(name))["policy"]["problem"] == problem
    }
    if not models:
        raise NoModel(f"no model for {problem} is shipped: name one or train one")

    def rank(name: str) -> tuple[bool, bool]:
        config: dict[str, Any] = models[name]
        return not config.get("default"), config["policy"].get("recurrent") is None

    return min(sorted(models), key=rank)


def find_device(name: str) -> torch.device:
    """Returns a device by name; `auto` is a GPU where there is one.

    Raises:
        ValueError: There is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"device must be auto, cpu, cuda or cuda:i, got {name!r}"
        ) from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:i, got {name!r}")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(f"device {name!r} is not there: {count} GPUs found")
    return device


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Lets torch use that many processor threads for a while."""
    if threads is None:
        yield
        return
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _routes(start: Routes | Result | str | Path, problem: Problem) -> Routes:
    if len(problem) != 1:
        raise ValueError(f"a start is for one instance, got {len(problem)}")
    if isinstance(start, Result):
        return start.solution
    if isinstance(start, str | Path):
        return read_solution(start, problem)
    return [list(route) for route in start]
