"""Plans by savings, against a slow way to make them."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from renco import CVRP, routes, savings
from renco.data import Trajectories
from renco.features import View
from renco.generate import generate
from renco.model import PolicyConfig, view
from renco.savings import TOLD, savings_features

needs_compiler = pytest.mark.skipif(
    savings.compiled() is None, reason="needs a C compiler"
)


@pytest.fixture(params=["compiled", "by Python"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with and without `savings.c`."""
    if request.param == "by Python":
        monkeypatch.setattr(savings, "compiled", lambda: None)
    elif savings.compiled() is None:
        pytest.skip("needs a C compiler")


def views(n: int, batch: int = 3, steps: int | None = None) -> list[View]:
    """Returns what is seen of every state of random roll-outs."""
    state = CVRP.random(batch, n=n, seed=n, capacity=20).start()
    config = PolicyConfig.for_state(state, problem="cvrp", zoom=True)
    rng = torch.Generator().manual_seed(n)
    found = []
    while not state.done and len(found) != steps:
        found.append(view(state, config))
        chances = state.feasible().float().expand(batch, -1)
        state = state.step(torch.multinomial(chances, 1, generator=rng)[:, 0])
    return found


Routes = list[list[int]]


def slow_plan(xy: np.ndarray, demand: np.ndarray, room: float) -> Routes:
    """Returns routes of nodes; the first is that of the vehicle, from node 0 on."""

    def far(a: int, b: int) -> float:
        return math.dist(xy[a], xy[b])

    depot, customers = len(xy) - 1, range(1, len(xy) - 1)
    routes = [[0], *([node] for node in customers)]
    pairs = []
    for a in customers:
        others = sorted((b for b in customers if b != a), key=lambda b: far(a, b))
        pairs += [(a, b) for b in others[: savings.NEAREST]]
    pairs += [(0, b) for b in customers]

    def saving(pair: tuple[int, int]) -> float:
        home = [far(node, depot) for node in pair]
        less = savings.SHAPE * far(*pair) - savings.ASYMMETRY * abs(home[0] - home[1])
        return sum(home) - less

    def load(route: list[int]) -> float:
        return sum(1 - room if node == 0 else demand[node] for node in route)

    for a, b in sorted(pairs, key=saving, reverse=True):
        first, second = (next(r for r in routes if node in r) for node in (a, b))
        if first is second or saving((a, b)) <= 0:
            continue
        if load(first) + load(second) > 1 + 1e-6:
            continue
        if 0 in second:
            first, second, a, b = second, first, b, a
        turned = [*first[::-1]] if first[0] == a and first[0] != 0 else first
        onto = [*second[::-1]] if second[-1] == b else second
        if turned[-1] != a or onto[0] != b:
            continue
        routes = [r for r in routes if r is not first and r is not second]
        routes.append([*turned, *onto])
    return sorted(routes, key=lambda route: 0 not in route)


def given(xy: np.ndarray, demand: np.ndarray, room: float) -> tuple[np.ndarray, ...]:
    """Returns distances and loads as plans take them: the vehicle comes last."""
    points = np.concatenate([xy[1:-1], xy[:1], xy[-1:]]).astype(np.float32)
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    return apart, np.append(demand[1:-1], 1 - room).astype(np.float32)


def numbered(routes: Routes) -> Routes:
    """Returns routes in the numbers of a state: the vehicle is 0, customers follow."""
    first, *others = ([node + 1 for node in route] for route in routes)
    return [[0, *first], *others]


def slow_features(xy: np.ndarray, demand: np.ndarray, room: float) -> np.ndarray:
    """Returns what a plan says, one node after the other."""
    routes = numbered(savings._planned(*given(xy, demand, room)))
    depot = len(xy) - 1

    def far(a: int, b: int) -> float:
        return math.dist(xy[a], xy[b])

    def squeezed(x: float) -> float:
        return math.copysign(math.log1p(abs(x)), x)

    def squeezed_way(a: int, b: int) -> list[float]:
        way = xy[b] - xy[a]
        return (way * math.log1p(far(a, b)) / max(far(a, b), 1e-6)).tolist()

    loads = [
        sum(1 - room if node == 0 else demand[node] for node in route)
        for route in routes
    ]
    told = np.zeros((len(xy), TOLD))
    told[:, 0] = 1 - loads[0]
    told[:, 1] = math.log(len(routes)) / 2
    path = [*routes[0], depot]
    for number, route in enumerate(routes):
        stops = [*route, depot] if number == 0 else [depot, *route, depot]
        for place, node in enumerate(stops):
            if node in (0, depot):
                continue
            before, after = stops[place - 1], stops[place + 1]
            detours = [
                far(a, node) + far(node, b) - far(a, b)
                for a, b in itertools.pairwise(path)
            ]
            beside = sorted([before, after], key=lambda other: far(node, other))
            told[node, 2:] = [
                number == 0,
                math.log1p(place) / 2 if number == 0 else 0,
                loads[number],
                math.log(len(route) - (number == 0)) / 2,
                0 if number == 0 else squeezed(min(detours)),
                squeezed(far(before, node) + far(node, after) - far(before, after)),
                squeezed(far(0, depot) + far(node, depot) - far(0, node)),
                *squeezed_way(node, beside[0]),
                *squeezed_way(node, beside[1]),
            ]
    return told


@pytest.mark.parametrize("n", [1, 2, 3, 9, 25])
def test_plans_begin_with_savings(n: int) -> None:
    """Joined as by hand, on every state of roll-outs."""
    for seen in views(n):
        if seen.xy.shape[1] < 3:
            continue
        for row in range(len(seen.xy)):
            s = seen.s[row].double().numpy()
            xy = seen.xy[row].double().numpy()
            apart, load = given(xy, s[:, 2], s[0, 3])
            others = apart[:-2, :-2] + np.diag(np.full(len(load) - 1, np.inf))
            near = others.argsort(1)[:, : min(savings.NEAREST, len(load) - 2)].tolist()
            links = savings._joined(apart, load, near, np.float32(1 + 1e-5))
            found = split(savings._in_a_row(links, [*range(len(near))]))
            expected = slow_plan(xy, s[:, 2], s[0, 3])
            assert as_sets(found) == as_sets(expected)


def split(tour: list[int]) -> Routes:
    """Returns the routes of a row, in the numbers of a state."""
    depot, routes = max(tour), [[]]
    for node in tour[1:]:
        if node == depot:
            routes.append([])
        else:
            routes[-1].append(node)
    return numbered(routes[:-1])


def as_sets(routes: Routes) -> set[tuple[int, ...]]:
    """Returns routes in either direction alike, but that of the vehicle."""
    return {
        tuple(route) if route[0] == 0 else min(tuple(route), tuple(route[::-1]))
        for route in routes
    }


@pytest.mark.parametrize("n", [2, 12, 40])
def test_plans_get_shorter_and_stay_plans(n: int) -> None:
    """All customers once, and no more than a vehicle can carry, also under way."""
    lengths = []
    for seen in views(n)[: n - 1]:
        for row in range(len(seen.xy)):
            s = seen.s[row].double().numpy()
            xy, room = seen.xy[row].double().numpy(), s[0, 3]
            routes = numbered(savings._planned(*given(xy, s[:, 2], room)))
            assert sorted(itertools.chain(*routes)) == [*range(len(xy) - 1)]
            loads = [sum(s[node, 2] for node in route if node) for route in routes]
            assert max(loads[0] + 1 - room, *loads[1:], 0) <= 1 + 1e-4
            before = slow_plan(xy, s[:, 2], room)
            lengths.append([total(xy, before), total(xy, routes)])
    before, after = np.array(lengths).T
    assert (after <= before + 1e-4).all()
    assert n < 40 or after.sum() < 0.995 * before.sum()


def total(xy: np.ndarray, routes: Routes) -> float:
    """Returns the length of a plan; the first route begins at node 0."""
    depot = len(xy) - 1
    stops = [
        [*route, depot] if i == 0 else [depot, *route, depot]
        for i, route in enumerate(routes)
    ]
    return sum(math.dist(xy[a], xy[b]) for s in stops for a, b in itertools.pairwise(s))


SQUARE = [(1, 1), (2, 1), (1, -1), (2, -1)]
MENDED = {
    "turn": ([(1, 0), (1, 2), (2, 0), (2, 2)], [4, 0, 3, 2, 1, 5], {(0, 2, 3, 1)}),
    "trade": (SQUARE, [4, 0, 3, 5, 2, 1, 5], {(0, 1), (2, 3)}),
    "move": (
        [(0, 2), (0, 3), (0, 4), (3, 0)],
        [4, 0, 2, 5, 3, 1, 5],
        {(0, 1, 2), (3,)},
    ),
    "swap": (SQUARE, [4, 0, 3, 5, 1, 2, 5], {(0, 1), (2, 3)}),
}
"""Customers, a plan that is too long, and the plan that it becomes."""


@pytest.mark.parametrize("kind", MENDED)
def test_moves_mend_a_plan(kind: str) -> None:
    """Each by the only kind of change that is left to it."""
    points, before, after = MENDED[kind]
    xy = np.array([*points, (0, 0), (0, 0)], dtype=float)
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
    near = [
        [b for b in row[:4].argsort().tolist() if b != a]
        for a, row in enumerate(apart[:4])
    ]
    plan = routes.Routes(before, apart.tolist(), [0.3] * 4 + [0.0] * 2, near, 1.0)
    for other in MENDED.keys() - {kind}:
        setattr(plan, f"_{other}s", lambda *_: ())
    plan.improve(range(4))
    (_, *first), *others = split(plan.tour)
    found = [[node - 1 for node in route] for route in (first, *others)]
    assert {min(tuple(r), tuple(r[::-1])) for r in found if r} == after


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("n", [1, 2, 3, 9, 25])
def test_plans_are_told_of(n: int) -> None:
    """On every state of roll-outs, at the depot and under way."""
    for seen in views(n):
        found = savings_features(seen)
        for row in range(len(found)):
            s = seen.s[row].double().numpy()
            xy = seen.xy[row].double().numpy()
            expected = slow_features(xy, s[:, 2], s[0, 3])
            np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("n", [2, 3, 14, 15, 70])
def test_both_ways_give_the_same(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not all customers are among the nearest."""
    seen = views(n, steps=30)
    in_c = [savings_features(part) for part in seen]
    monkeypatch.setattr(savings, "compiled", lambda: None)
    for part, expected in zip(seen, in_c, strict=True):
        torch.testing.assert_close(
            savings_features(part), expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.usefixtures("either_way")
def test_customers_in_one_place_have_a_plan_too() -> None:
    """All at the depot, all at one point, all along a line."""
    line = np.linspace(0, 1, 9)[:, None] * [[1.0, 0.5]]
    point = np.concatenate([np.zeros((1, 2)), np.ones((8, 2))])
    for coords in (np.zeros((9, 2)), point, line):
        state = CVRP(coords, [0] + [3] * 8, 10).start()
        config = PolicyConfig.for_state(state, problem="cvrp", zoom=True)
        assert savings_features(view(state, config)).isfinite().all()


@needs_compiler
def test_experts_often_do_as_planned(tmp_path: Path) -> None:
    """More often than they take the nearest customer that fits."""
    generate("cvrp", n=50, count=12, out=tmp_path, expert="hygese", workers=1)
    data = Trajectories(tmp_path)
    problem, decisions = data.batch(np.arange(12))
    decisions = problem.arranged(decisions, 0, np.random.default_rng(0), "far")
    state = problem.start()
    config = PolicyConfig.for_state(state, problem="cvrp", zoom=True)
    planned, nearest = [], []
    for step in range(48):
        seen = view(state, config)
        told = savings_features(seen)[:, 1:-1]
        decided = torch.from_numpy(np.asarray(decisions[:, step]))
        place = (state.node[:, 1:-1] == decided[:, None] // 2).int().argmax(1)
        away = (seen.xy - seen.xy[:, :1]).norm(dim=-1)[:, 1:-1]
        away[seen.s[:, 1:-1, 2] > seen.s[:, 1:-1, 3] + 1e-6] = torch.inf
        under_way = (decided % 2 == 0) & (state.node[:, 0] != 0)
        next_one = told[..., 3] + 9 * (told[..., 2] == 0)
        planned.append((next_one.argmin(1) == place)[under_way])
        nearest.append((away.argmin(1) == place)[under_way])
        state = state.step((place + 1) * 2 + decided % 2)
    shares = [torch.cat(part).float().mean().item() for part in (nearest, planned)]
    assert shares[0] + 0.08 < shares[1]
