"""Building solutions step by step: greedy (Algorithms 1 and 2) and beam search.

Both know states and policies only; which problem is solved they cannot tell.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from renco.model import Policy
from renco.sight import LEAST, Sight, renewal
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
        rivals: The likeliest decisions of each step, as many as were asked for.
        chances: Their probabilities; 0 where there are not so many.
    """

    sure: Float[Tensor, "batch step"]
    rivals: Int[Tensor, "batch step rival"] | None = None
    chances: Float[Tensor, "batch step rival"] | None = None


def _renewal(state: State, k: int, near: int | None) -> int:
    """Returns after how many steps the base encoder runs again.

    Raises:
        ValueError: A number is out of range.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if near is not None and near < LEAST:
        raise ValueError(f"near must be at least {LEAST}, got {near}")
    return renewal(k, near, state.node.shape[1] - 2)


def _carry_on() -> None:
    """Does nothing: the search goes on."""


def _likeliest(
    score: Float[Tensor, "batch action"], state: State, count: int
) -> tuple[Int[Tensor, "batch rival"], Float[Tensor, "batch rival"]]:
    """Returns the likeliest decisions of each row, and their probabilities."""
    found, action = score.exp().topk(min(count, score.shape[1]))
    decisions = [state.decision(column) for column in action.unbind(1)]
    missing = count - len(decisions)
    rivals = torch.stack([*decisions, *missing * decisions[:1]], dim=1)
    return rivals, F.pad(found, (0, missing))


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
    near: int | None = None,
    rivals: int = 0,
    on_step: Callable[[], None] = _carry_on,
) -> GreedySolutions:
    """Constructs one solution per row by always taking the likeliest action.

    Algorithm 2 of the paper. With `k=1` the base encoder runs at every step,
    which is Algorithm 1. With `near`, among more open nodes than that the policy
    looks at the nearest ones only (`renco.sight`). `rivals` is how many decisions of
    each step are reported beside the one that was taken. `on_step` runs before each
    step; what it raises ends the construction.
    """
    k = _renewal(state, k, near)
    t, decisions, scores = 0, [], []
    others = []
    h = torch.empty(0)  # E gives the first one
    sight = Sight.of(policy.visible(state))
    while not sight.whole.done:
        on_step()
        sight = sight.renewed(near) if t % k == 0 else sight
        s = sight.seen
        h = policy.encode(s) if t % k == 0 else policy.update(h, s)
        score = policy.score(h, s)
        if rivals:
            others.append(_likeliest(score, s, rivals))
        likeliest, action = score.max(dim=-1)
        scores.append(likeliest)
        decisions.append(s.decision(action))
        sight = sight.step(action).trimmed(policy.visible)
        t += 1
    sure = _stacked(state, scores).exp()
    _check_scores(sure)
    known = [_stacked(state, [*part]) for part in zip(*others, strict=True)]
    cost = sight.whole.cost
    return GreedySolutions(_stacked(state, decisions), cost, sure, *known)


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
    near: int | None = None,
    on_step: Callable[[], None] = _carry_on,
) -> Solutions:
    """Keeps the `width` likeliest partial solutions and returns the cheapest.

    Beams are ranked by cumulative log-probability; the final choice among them is
    by cost. All beams of a row stay together in a flat batch. While a row has fewer
    distinct partial solutions than `width`, its spare beams are dead: their score
    is -inf and they are never chosen. `near` and `on_step` are those of `greedy`.

    With `merge`, of partial solutions that lead to the same state only the best one
    is kept. Unlike the paper, whose beams fill with such twins.
    """
    k = _renewal(state, k, near)
    merge &= width > 1
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    batch = state.node.shape[0]
    score = torch.zeros(batch, 1, device=state.node.device)
    first = torch.arange(batch, device=state.node.device)[:, None]
    t, decisions = 0, _stacked(state, [])
    h = torch.empty(0)
    sight = Sight.of(policy.visible(state))
    while not sight.whole.done:
        on_step()
        sight = sight.renewed(near) if t % k == 0 else sight
        s = sight.seen
        h = policy.encode(s) if t % k == 0 else policy.update(h, s)
        beams = score.shape[1]
        ranked = score[..., None] + policy.score(h, s).unflatten(0, (batch, beams))
        actions = ranked.shape[-1]
        tried = min(width * (SPARE if merge else 1), beams * actions)
        score, best = ranked.flatten(1).topk(tried)
        parent = (first * beams + best // actions).flatten()
        action = (best % actions).flatten()
        sight = sight.rows(parent)
        chosen = sight.seen.decision(action)[:, None]
        sight = sight.step(action)
        if merge:
            twins = dominated(sight.whole, score)
            score = score.masked_fill(twins, -torch.inf)
            score, kept = score.topk(min(width, tried))
            row = (first * tried + kept).flatten()
            sight, parent, chosen = sight.rows(row), parent[row], chosen[row]
        sight = sight.trimmed(policy.visible)
        h, decisions = h[parent], torch.cat([decisions[parent], chosen], dim=1)
        t += 1
    _check_scores(score)
    cost = sight.whole.cost
    costs = cost.view(batch, -1).masked_fill(score.isinf(), torch.inf)
    winner = first[:, 0] * costs.shape[1] + costs.argmin(dim=1)
    return Solutions(decisions[winner], cost[winner])


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
