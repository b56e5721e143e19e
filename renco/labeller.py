"""The process in which an expert runs: it may crash or hang, the set must not.

`python -m renco.labeller` reads a manifest from standard input, then one request a
line, and answers with one line each. Experts write what they like to standard output:
the answers go through a private copy of it.
"""

import contextlib
import importlib
import json
import os
import signal
from io import TextIOBase
from typing import Any

import numpy as np
import torch

from renco.experts import find
from renco.manifest import Manifest
from renco.problems import Problem


def find_expert(name: str, problem: str) -> Any:
    """Returns an `Expert` by its name, or by `module:attribute` for one's own.

    The name `none` gives None.

    Raises:
        ValueError: There is no such expert, or it cannot solve the problem.
        ImportError: It is not installed.
    """
    if ":" not in name:
        return find(name, problem)
    module, _, attribute = name.partition(":")
    try:
        expert = getattr(importlib.import_module(module), attribute)
    except AttributeError:
        raise ValueError(f"module {module} has no expert {attribute!r}") from None
    if problem not in expert.problems:
        known = ", ".join(expert.problems)
        raise ValueError(f"expert {name} cannot solve {problem}, it can solve {known}")
    return expert


def expert_seed(seed: int, index: int, attempt: int) -> int:
    """Returns the expert's seed: a function of instance and try, 31 bits."""
    return int(np.random.SeedSequence([seed, index, attempt]).generate_state(1)[0] >> 1)


def _serve(requests: TextIOBase, answers: TextIOBase) -> None:
    """Answers one request a line until there are no more."""

    def reply(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    job = json.loads(requests.readline())
    patience = job.pop("patience")
    manifest = Manifest(**job)
    try:
        expert = find_expert(str(manifest.expert), manifest.problem)
    except (ImportError, ValueError) as error:
        reply({"error": str(error)})
        return
    assert expert is not None and manifest.seconds is not None
    reply({})
    for line in requests:
        request = json.loads(line)
        index, attempt = request["index"], request["attempt"]
        # Should the parent die, nobody else would end a hanging solver.
        _alarm(2 * patience)
        try:
            instance = load_instance(manifest, index)
            seed = expert_seed(manifest.seed or 0, index, attempt)
            how = {"seconds": manifest.seconds, "seed": seed}
            if request.get("own") is None:
                routes = expert(instance, **how)
                decisions = instance.decisions([routes])[0].tolist()
            else:
                decisions = expert.complete(instance, request["own"], **how)
                routes = instance.routes(torch.tensor([decisions]))[0]
            cost = float(instance.cost([routes])[0])
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {error}"})
        else:
            reply({"decisions": decisions, "cost": cost})
        _alarm(0.0)


def load_instance(manifest: Manifest, index: int) -> Problem:
    """Draws or reads one instance of a set."""
    if manifest.seed is not None:
        return manifest.draw(index, 1)
    from renco.formats import read

    return read(manifest.files[index])


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main() -> None:
    """Runs a worker: requests on standard input, answers on standard output."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    with contextlib.suppress(BrokenPipeError):  # nobody waits for an answer any more
        _serve(requests, answers)


if __name__ == "__main__":
    main()
