"""Building solutions step by step: greedy (Algorithms 1 and 2) and beam search.

Both know states and policies only; which problem is solved they cannot tell.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
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


@dataclass(frozen=True, eq=False)
class GreedySolutions(Solutions):
    """Solutions that were decided one step at a time, once and for all.

    Attributes:
        sure: Probability of each decision when it was made.
    """

    sure: Float[Tensor, "batch step"]


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")


def _carry_on() -> None:
    """Does nothing: the search goes on."""


def _check_scores(score: Float[Tensor, "*any"]) -> None:
    """Raises if a network gave no numbers; checked once, at the end."""
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
) -> GreedySolutions:
    """Constructs one solution per row by always taking the likeliest action.

    Algorithm 2 of the paper. With `k=1` the base encoder runs at every step,
    which is Algorithm 1. `on_step` runs before each step; what it raises ends the
    construction.
    """
    _check_k(k)
    t, decisions, scores = 0, [], []
    h = torch.empty(0)  # E gives the first one
    state = policy.visible(state)
    while not state.done:
        on_step()
        h = policy.encode(state) if t % k == 0 else policy.update(h, state)
        likeliest, action = policy.score(h, state).max(dim=-1)
        scores.append(likeliest)
        decisions.append(state.decision(action))
        state = policy.visible(state.step(action))
        t += 1
    sure = _stacked(state, scores).exp()
    _check_scores(sure)
    return GreedySolutions(_stacked(state, decisions), state.cost, sure)


SPARE = 2
"""Steps that are tried per beam, so that enough remain when some are given up."""


@torch.inference_mode()
def beam_search(
    policy: Policy,
    state: State,
    *,
    k: int,
    width: int,
    merge: bool = False,
    on_step: Callable[[], None] = _carry_on,
) -> Solutions:
    """Keeps the `width` likeliest partial solutions and returns the cheapest.

    Beams are ranked by cumulative log-probability; the final choice among them is
    by cost. All beams of a row stay together in a flat batch. While a row has fewer
    distinct partial solutions than `width`, its spare beams are dead: their score
    is -inf and they are never chosen. `on_step` runs before each step; what it
    raises ends the search.

    With `merge`, of partial solutions that lead to the same state only the best one
    is kept. Unlike the paper, whose beams fill with such twins.
    """
    _check_k(k)
    merge &= width > 1
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    batch = state.node.shape[0]
    score = torch.zeros(batch, 1, device=state.node.device)
    first = torch.arange(batch, device=state.node.device)[:, None]
    t, decisions = 0, _stacked(state, [])
    h = torch.empty(0)
    state = policy.visible(state)
    while not state.done:
        on_step()
        h = policy.encode(state) if t % k == 0 else policy.update(h, state)
        beams = score.shape[1]
        ranked = score[..., None] + policy.score(h, state).unflatten(0, (batch, beams))
        actions = ranked.shape[-1]
        tried = min(width * (SPARE if merge else 1), beams * actions)
        score, best = ranked.flatten(1).topk(tried)
        parent = (first * beams + best // actions).flatten()
        action = (best % actions).flatten()
        state = state.rows(parent)
        chosen = state.decision(action)[:, None]
        state = state.step(action)
        if merge:
            score = score.masked_fill(dominated(state, score), -torch.inf)
            score, kept = score.topk(min(width, tried))
            row = (first * tried + kept).flatten()
            state, parent, chosen = state.rows(row), parent[row], chosen[row]
        state = policy.visible(state)
        h, decisions = h[parent], torch.cat([decisions[parent], chosen], dim=1)
        t += 1
    _check_scores(score)
    cost = state.cost.view(batch, -1).masked_fill(score.isinf(), torch.inf)
    winner = first[:, 0] * cost.shape[1] + cost.argmin(dim=1)
    return Solutions(decisions[winner], state.cost[winner])


def dominated(
    state: State, score: Float[Tensor, "batch beam"]
) -> Bool[Tensor, "batch beam"]:
    """Returns which beams can never become better than another one of their row.

    Two beams that stand at the same node with the same nodes open have the same
    future: the one that has spent more on the way can be given up.
    """
    place, spent = (x.unflatten(0, score.shape) for x in (state.place(), state.spent()))
    same = place[:, :, None] == place[:, None]
    no_better = (spent[:, :, None] >= spent[:, None]).all(dim=-1)
    # Of two that have spent the same, the likelier one stays: beams are sorted.
    beam = torch.arange(score.shape[1], device=score.device)
    first = beam[:, None] > beam
    other = (first | ~no_better.mT) & ~score.isinf()[:, None]
    return (same & no_better & other).any(dim=-1)
