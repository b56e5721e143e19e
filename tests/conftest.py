"""Policies, instances and roll-outs that the tests share."""

import zlib
from collections.abc import Callable, Iterator
from typing import Self

import beartype
import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

# The shape checks decorate methods one by one, where beartype cannot tell what Self
# is; this must happen before the first import of the package.
beartype.beartype = beartype.beartype(
    conf=beartype.BeartypeConf(hint_overrides=beartype.FrozenDict({Self: object}))
)

from renco.model import EncoderConfig, Policy, PolicyConfig  # noqa: E402
from renco.problems import PROBLEMS, Problem  # noqa: E402
from renco.state import State  # noqa: E402

TIGHT = {"cvrp": {"capacity": 12}, "op": {"limit": 1.8}}
"""Options that give even small instances several routes, and unreachable nodes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the switch that writes the expected results anew."""
    parser.addoption(
        "--write-golden", action="store_true", help="rewrite tests/golden/*.json"
    )


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small tensors are slower on several threads, and runs may share the machine."""
    torch.set_num_threads(1)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switches the shape checks of the test run off, as in production.

    Wrong types then reach the code's own checks.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def small(name: str, batch: int = 4, n: int = 8, seed: int = 0) -> Problem:
    """Returns small instances on which every rule of the problem matters."""
    return PROBLEMS[name].random(batch, n, seed=seed, **TIGHT.get(name, {}))


def make_policy(
    problem: str,
    *,
    seed: int = 0,
    recurrent: bool = True,
    d: int = 16,
    alpha: float = 0.3,
    **options: bool,
) -> Policy:
    """Returns a small policy whose decisions depend on all of its parts.

    Each parameter is drawn by its own name, so neither the order in which modules
    are built nor the random generator of torch matters. ReZero starts as the
    identity; `alpha` opens the blocks. Options are those of `PolicyConfig`:
    `relative`, `geometry`, `zoom`.
    """
    small_size = EncoderConfig(layers=1, d=d // 2, heads=2, ff=d)
    config = PolicyConfig.for_state(
        PROBLEMS[problem].random(1, 3).start(),
        problem=problem,
        base=EncoderConfig(layers=2, d=d, heads=4, ff=2 * d),
        recurrent=small_size if recurrent else None,
        **options,
    )
    policy = Policy(config).eval()
    for name, parameter in policy.named_parameters():
        if "alpha" in name:
            torch.nn.init.constant_(parameter, alpha)
            continue
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        shape = tuple(parameter.shape)
        fan_in = shape[-1] if len(shape) > 1 else 4
        drawn = rng.normal(size=shape) * 1.5 / fan_in**0.5
        if "norm" in name:
            drawn = 1 + 0.2 * drawn
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(drawn))
    return policy


@pytest.fixture(scope="session")
def tiny_policy() -> Callable[..., Policy]:
    """Returns the maker of small seeded policies, `make_policy`."""
    return make_policy


class StubPolicy(Policy):
    """A policy without weights that matter; subclasses say what they prefer.

    As embeddings it carries row and node ids, so it notices when embeddings and
    states no longer belong together.
    """

    def __init__(self) -> None:
        """Builds the smallest policy; nothing of it is used."""
        super().__init__(PolicyConfig(base=EncoderConfig(1, 2, 1, 1)))

    def encode(self, state: State) -> Tensor:
        """Returns instance and node of each position."""
        instance = state.instance[:, None].expand_as(state.node)
        return torch.stack([instance, state.node], dim=-1).float()

    def update(self, h: Tensor, state: State) -> Tensor:
        """Realigns, and insists that the result is what `encode` would give."""
        index = state.origin[..., None].expand(-1, -1, h.shape[-1])
        aligned = h.gather(1, index)
        assert torch.equal(aligned, self.encode(state)), "embeddings are misplaced"
        return aligned

    def score(self, h: Tensor, state: State) -> Tensor:
        """Returns the masked log-probabilities of the preferences."""
        logits = self.preference(state).flatten(1)
        return logits.masked_fill(~state.feasible(), -torch.inf).log_softmax(-1)

    def preference(self, state: State) -> Tensor:
        """Returns how much each action is liked, by position and choice."""
        raise NotImplementedError


class UniformPolicy(StubPolicy):
    """Finds all feasible actions equally likely."""

    def preference(self, state: State) -> Tensor:
        """Returns zeros."""
        return torch.zeros(*state.node.shape, state.choices)


class NearestPolicy(StubPolicy):
    """Prefers the shortest move; choices but the first lead via the end."""

    def preference(self, state: State) -> Tensor:
        """Returns minus the length of each move."""
        xy = state.features()[..., :2]
        here, end = xy[:, :1], xy[:, -1:]
        direct = (xy - here).norm(dim=-1)
        via = (here - end).norm(dim=-1) + (xy - end).norm(dim=-1)
        return -10 * torch.stack([direct, *[via] * (state.choices - 1)], dim=-1)


def rollout(
    state: State, seed: int = 0, steps: int | None = None
) -> tuple[list[State], Tensor]:
    """Takes random feasible actions; returns all states and the decisions."""
    rng = torch.Generator().manual_seed(seed)
    states, decisions = [state], []
    while not state.done and (steps is None or len(decisions) < steps):
        open_actions = state.feasible().expand(len(state.node), -1).float()
        action = torch.multinomial(open_actions, 1, generator=rng)[:, 0]
        decisions.append(state.decision(action))
        state = state.step(action)
        states.append(state)
    if not decisions:
        return states, state.node.new_empty(len(state.node), 0)
    return states, torch.stack(decisions, dim=1)
