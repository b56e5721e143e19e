"""Building solutions step by step: greedy (Algorithms 1 and 2) and beam search.

Both know states and policies only; which problem is solved they cannot tell.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from renco.model import Policy
from renco.state import State


@dataclass(frozen=True, eq=False)
class Solutions:
    """One solution per row of the state that was solved.

    Attributes:
        decisions: Node ids (times choices, plus choice) in order.
        cost: Cost as the state sees it; `Problem.cost` has the last word.
    """

    decisions: Int[Tensor, "batch step"]
    cost: Float[Tensor, " batch"]


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")


def _carry_on() -> None:
    """Does nothing: the search goes on."""


def _check_scores(score: Float[Tensor, "*any"]) -> None:
    """Raises if a network gave no numbers; checked once, sums of NaN stay NaN."""
    if score.isnan().any():
        raise ValueError("the policy's scores are not finite numbers but NaN")


def _stacked(state: State, decisions: list[Tensor]) -> Tensor:
    if not decisions:  # instances of one or two nodes leave nothing to decide
        return state.node.new_empty(state.node.shape[0], 0)
    return torch.stack(decisions, dim=1)


@torch.inference_mode()
def greedy(
    policy: Policy,
    state: State,
    *,
    k: int,
    on_step: Callable[[], None] = _carry_on,
) -> Solutions:
    """Constructs one solution per row by always taking the likeliest action.

    Algorithm 2 of the paper. With `k=1` the base encoder runs at every step,
    which is Algorithm 1. `on_step` runs before each step; what it raises ends the
    construction.
    """
    _check_k(k)
    t, decisions = 0, []
    h = torch.empty(0)  # E gives the first one
    score = torch.zeros(state.node.shape[0], device=state.node.device)
    while not state.done:
        on_step()
        h = policy.encode(state) if t % k == 0 else policy.update(h, state)
        likeliest, action = policy.score(h, state).max(dim=-1)
        score = score + likeliest
        decisions.append(state.decision(action))
        state = state.step(action)
        t += 1
    _check_scores(score)
    return Solutions(_stacked(state, decisions), state.cost)


@torch.inference_mode()
def beam_search(
    policy: Policy,
    state: State,
    *,
    k: int,
    width: int,
    on_step: Callable[[], None] = _carry_on,
) -> Solutions:
    """Keeps the `width` likeliest partial solutions and returns the cheapest.

    Beams are ranked by cumulative log-probability; the final choice among them is
    by cost. All beams of a row stay together in a flat batch. While a row has fewer
    distinct partial solutions than `width`, its spare beams are dead: their score
    is -inf and they are never chosen. `on_step` runs before each step; what it
    raises ends the search.
    """
    _check_k(k)
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    batch = state.node.shape[0]
    score = torch.zeros(batch, 1, device=state.node.device)
    first = torch.arange(batch, device=state.node.device)[:, None]
    t, decisions = 0, _stacked(state, [])
    h = torch.empty(0)
    while not state.done:
        on_step()
        h = policy.encode(state) if t % k == 0 else policy.update(h, state)
        beams = score.shape[1]
        ranked = score[..., None] + policy.score(h, state).unflatten(0, (batch, beams))
        actions = ranked.shape[-1]
        score, best = ranked.flatten(1).topk(min(width, beams * actions))
        parent = (first * beams + best // actions).flatten()
        action = (best % actions).flatten()
        state, h = state.rows(parent), h[parent]
        chosen = state.decision(action)[:, None]
        decisions = torch.cat([decisions[parent], chosen], dim=1)
        state = state.step(action)
        t += 1
    _check_scores(score)
    cost = state.cost.view(batch, -1).masked_fill(score.isinf(), torch.inf)
    winner = first[:, 0] * cost.shape[1] + cost.argmin(dim=1)
    return Solutions(decisions[winner], state.cost[winner])
