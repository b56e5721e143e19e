"""Spanning trees and prices, against slow ways to find them."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_policy
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from renco import TSP, trees
from renco.construct import greedy
from renco.data import Trajectories
from renco.generate import generate
from renco.model import PolicyConfig, view
from renco.trees import FIRST, NEXT, TOLD, tree_features

needs_compiler = pytest.mark.skipif(
    trees.compiled() is None, reason="needs a C compiler"
)


@pytest.fixture(params=["compiled", "by PyTorch"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with and without `trees.c`."""
    if request.param == "by PyTorch":
        monkeypatch.setattr(trees, "compiled", lambda: None)
    elif trees.compiled() is None:
        pytest.skip("needs a C compiler")


def points(batch: int, n: int, seed: int = 0) -> torch.Tensor:
    """Returns states of a tour: in the first, the end is where it begins."""
    rng = torch.Generator().manual_seed(seed)
    xy = torch.rand(batch, n, 2, generator=rng) * n**0.5
    xy[0, -1] = xy[0, 0]
    return xy


def slow_tree(xy: np.ndarray, price: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Returns the edges of the cheapest tree of the open nodes, and its two ties."""
    inner, price = xy[1:-1], price[1:-1]
    apart = np.linalg.norm(inner[:, None] - inner[None], axis=-1)
    weight = apart + price + price[:, None] + 1e3  # 0 would be no edge at all
    np.fill_diagonal(weight, 0)
    edges = minimum_spanning_tree(weight).toarray() > 0
    first, last = (
        int((np.linalg.norm(inner - end, axis=-1) + price).argmin())
        for end in (xy[0], xy[-1])
    )
    return edges | edges.T, first, last


def bound(xy: np.ndarray, price: np.ndarray) -> float:
    """Returns a length that no path through all nodes falls short of."""
    edges, first, last = slow_tree(xy, price)
    inner, paid = xy[1:-1], price[1:-1]
    apart = np.linalg.norm(inner[:, None] - inner[None], axis=-1) + paid + paid[:, None]
    ties = np.linalg.norm(inner[first] - xy[0]) + np.linalg.norm(inner[last] - xy[-1])
    total = (apart * edges).sum() / 2 + ties + paid[first] + paid[last]
    return float(total - 2 * paid.sum())


def shortest(xy: np.ndarray) -> float:
    """Returns the length of the shortest path, by trying all of them."""
    found = np.inf
    for order in itertools.permutations(range(1, len(xy) - 1)):
        path = xy[[0, *order, len(xy) - 1]]
        found = min(found, np.linalg.norm(np.diff(path, axis=0), axis=1).sum())
    return found


def signed_log(x: np.ndarray) -> np.ndarray:
    """Returns log(1 + |x|) with the sign of x."""
    return np.sign(x) * np.log1p(np.abs(x))


def slow_features(xy: np.ndarray, price: np.ndarray) -> np.ndarray:
    """Returns what the tree at given prices says, one node after the other."""
    edges, first, last = slow_tree(xy, price)
    inner, paid = xy[1:-1], price[1:-1]
    count = len(inner)
    apart = np.linalg.norm(inner[:, None] - inner[None], axis=-1) + paid + paid[:, None]
    here = np.linalg.norm(inner - xy[0], axis=-1) + paid
    there = np.linalg.norm(inner - xy[-1], axis=-1) + paid
    order, above = breadth_first_order(edges, first)
    ways = {first: [first]}
    for node in order[1:]:
        ways[node] = [*ways[above[node]], node]
    below = [sum(node in way for way in ways.values()) for node in range(count)]
    told = np.zeros((len(xy), TOLD))
    for node, way in ways.items():
        steps = [apart[a, b] for a, b in itertools.pairwise(way)]
        degree = edges[node].sum() + (node == first) + (node == last)
        numbers = [
            *(paid[node], here[node] - here[first], there[node] - there[last]),
            here[node] - max([here[first], *steps]),
        ]
        off = len(way) - len(set(way) & set(ways[last]))
        told[node + 1, :8] = [
            *signed_log(np.array(numbers)),
            degree - 2,
            np.log1p(len(way) - 1) / 2,
            np.log(below[node]) / 2,
            np.log1p(off),
        ]
        children = [b for b in np.flatnonzero(edges[node]) if b not in way]
        up = way[-2] if len(way) > 1 else node
        down = max(children, key=lambda b: below[b]) if children else node
        for column, other in ((8, up), (10, down)):
            offset = inner[other] - inner[node]
            length = np.linalg.norm(offset)
            told[node + 1, column : column + 2] = (
                offset * np.log1p(length) / max(length, 1e-6)
            )
    return told


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("n", [3, 4, 5, 9, 20, 40])
def test_trees_are_told_of(n: int) -> None:
    """At the prices that were found, from none and from those of the state before."""
    xy = points(4, n, seed=n)
    price = None
    for _ in range(2):
        told, price = tree_features(xy, price)
        assert told.shape == (4, n, TOLD)
        for row, paid, found in zip(xy.double(), price.double(), told, strict=True):
            expected = slow_features(row.numpy(), paid.numpy())
            subtree = found.double().numpy()
            heirs = np.abs(subtree[:, 10:] - expected[:, 10:]).max(1) > 1e-4
            assert np.abs(subtree[:, :10] - expected[:, :10]).max() < 1e-4
            assert heirs.mean() <= 0.25  # of two equal halves either may come next


@needs_compiler
@pytest.mark.parametrize("n", [2, 3, 4, 16, 17, 18, 19, 60])
def test_both_ways_give_the_same(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where vectors are full, and where nothing is open."""
    xy = points(5, n, seed=n)
    in_c = [tree_features(xy, None)]
    in_c.append(tree_features(xy, in_c[0][1]))
    monkeypatch.setattr(trees, "compiled", lambda: None)
    by_torch = [tree_features(xy, None)]
    by_torch.append(tree_features(xy, by_torch[0][1]))
    for (told, price), (other_told, other_price) in zip(in_c, by_torch, strict=True):
        torch.testing.assert_close(other_price, price, rtol=0, atol=0)
        torch.testing.assert_close(other_told, told, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("either_way")
def test_equal_points_have_a_tree_too() -> None:
    """Everything in one place, and everything on a line."""
    one_place = torch.zeros(1, 12, 2)
    line = torch.arange(12.0).repeat(2, 1).t()[None]
    for xy in (one_place, line):
        told, price = tree_features(xy, None)
        assert price.isfinite().all() and told.isfinite().all()
    assert (told[0, 1:-1, 4] == 0).all()  # a line is a path already


@pytest.mark.usefixtures("either_way")
def test_no_path_is_shorter_than_the_bound() -> None:
    """The theorem of Held and Karp: whatever the prices; and good prices come close."""
    gaps = []
    for seed in range(12):
        xy = points(1, 9, seed=seed)
        _, price = tree_features(xy, None)
        _, again = tree_features(xy, price)
        plain = xy[0].double().numpy()
        best = shortest(plain)
        for paid in (torch.zeros_like(price), price, again):
            assert bound(plain, paid[0].double().numpy()) <= best + 1e-5
        gaps.append(
            [
                1 - bound(plain, paid[0].double().numpy()) / best
                for paid in (torch.zeros_like(price), price, again)
            ]
        )
    none, first, then = np.mean(gaps, axis=0)
    assert none > 0.03 and first < 0.01 and then < 0.01


@needs_compiler
def test_cheapest_edges_are_those_of_good_tours(tmp_path: Path) -> None:
    """An expert takes them more often than the shortest, and prices last for long."""
    generate("tsp", n=60, count=16, out=tmp_path, expert="fast-tsp", workers=1)
    data = Trajectories(tmp_path)
    problem, decisions = data.batch(np.arange(16))
    state = problem.path(
        torch.from_numpy(np.pad(decisions, ((0, 0), (1, 1))))  # in the expert's order
    )
    config = PolicyConfig.for_state(state, zoom=True)
    nearest, cheapest, scaled = [], [], None
    for _ in range(50):
        seen = view(state, config)
        price = None if scaled is None else scaled / seen.scale[..., 0]
        told, price = tree_features(seen.xy, price)
        scaled = (price * seen.scale[..., 0])[:, 1:]
        away = (seen.xy - seen.xy[:, :1]).norm(dim=-1)[:, 1:-1]
        nearest.append(away.argmin(1) == 0)
        cheapest.append(told[:, 1:-1, 1].argmin(1) == 0)
        state = state.step(torch.ones(16, dtype=torch.long))
    shares = [torch.stack(part).float().mean().item() for part in (nearest, cheapest)]
    assert shares[0] < 0.86 and shares[1] > 0.92


def counting(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor | None]:
    """Returns a list of the prices that trees will be begun with."""
    given: list[torch.Tensor | None] = []
    features: Callable[..., tuple[torch.Tensor, torch.Tensor]] = tree_features

    def noted(xy: torch.Tensor, price: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        given.append(price)
        return features(xy, price)

    monkeypatch.setattr("renco.model.tree_features", noted)
    return given


def test_prices_go_with_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In units of the instance, whatever unit square each state is seen in."""
    given = counting(monkeypatch)
    policy = make_policy("tsp", zoom=True, trees=True)
    state = TSP.random(3, n=12).start()
    after = state.step(torch.tensor([4, 7, 11]))
    with torch.inference_mode():
        h = policy.encode(state)
        policy.update(h, after)
    assert h.shape[-1] == policy.config.base.d + 1
    before, now = (view(s, policy.config) for s in (state, after))
    _, price = tree_features(before.xy, None)
    kept = price.gather(1, after.origin) * before.scale[..., 0] / now.scale[..., 0]
    assert given[0] is None
    torch.testing.assert_close(given[1], kept)
    assert kept.abs().max() > 0.1


def test_embeddings_are_scored_without_prices() -> None:
    """Decoder and encoders do not see the number behind the embedding."""
    policy = make_policy("tsp", zoom=True, trees=True)
    state = TSP.random(3, n=12).start()
    with torch.inference_mode():
        h = policy.encode(state)
        other = h.clone()
        other[..., -1] = 7.0
        assert torch.equal(policy.score(other, state), policy.score(h, state))


def test_first_steps_are_for_the_base_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only U goes on from the prices of the state before."""
    given = counting(monkeypatch)
    policy = make_policy("tsp", zoom=True, trees=True)
    state = TSP.random(2, n=9).start()
    greedy(policy, state, k=4)
    assert [price is None for price in given] == [t % 4 == 0 for t in range(8)]
    assert len(FIRST) > len(NEXT)


def test_a_row_does_not_depend_on_its_batch() -> None:
    """Trees are grown state by state."""
    xy = points(6, 30)
    told, price = tree_features(xy, None)
    for row in range(6):
        alone = tree_features(xy[[row]], None)
        torch.testing.assert_close(alone[1][0], price[row], rtol=0, atol=0)
        torch.testing.assert_close(alone[0][0], told[row], rtol=0, atol=1e-6)


def test_open_nodes_may_come_in_any_order() -> None:
    """A tree belongs to points, not to how they are listed."""
    xy = points(3, 25)
    order = torch.randperm(23, generator=torch.Generator().manual_seed(1)) + 1
    order = torch.cat([torch.tensor([0]), order, torch.tensor([24])])
    told, price = tree_features(xy, None)
    other_told, other_price = tree_features(xy[:, order], None)
    torch.testing.assert_close(other_price, price[:, order], rtol=0, atol=1e-5)
    torch.testing.assert_close(other_told, told[:, order], rtol=0, atol=1e-5)
