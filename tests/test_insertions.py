"""Plans by insertions, against what a plan must be."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from renco import OP, insertions
from renco.data import Trajectories
from renco.features import View
from renco.generate import generate
from renco.insertions import TOLD, Outing, insertion_features
from renco.model import PolicyConfig, view

needs_compiler = pytest.mark.skipif(
    insertions.compiled() is None, reason="needs a C compiler"
)


@pytest.fixture(params=["compiled", "by NumPy"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with and without `insertions.c`."""
    if request.param == "by NumPy":
        monkeypatch.setattr(insertions, "compiled", lambda: None)
    elif insertions.compiled() is None:
        pytest.skip("needs a C compiler")


def views(n: int, batch: int = 3) -> list[View]:
    """Returns what is seen of every state of random roll-outs."""
    state = OP.random(batch, n=n, seed=n).start()
    config = PolicyConfig.for_state(state, problem="op", zoom=True, reach=True)
    rng = torch.Generator().manual_seed(n)
    found = []
    while not state.done:
        found.append(view(state, config))
        chances = state.feasible().float()
        state = state.step(torch.multinomial(chances, 1, generator=rng)[:, 0])
        state = state.trimmed()
    return found


def planned(seen: View, row: int) -> tuple[Outing, np.ndarray, np.ndarray, float]:
    """Returns the plan for one state: coordinates, prizes, and the length left."""
    left = (seen.s[row, 0, 3] / seen.unit.expand(len(seen.s), 1, 1)[row, 0, 0]).float()
    xy, prize = seen.xy[row].float().numpy(), seen.s[row, :, 2].float().numpy()
    plan = Outing(xy, prize, left.item())
    plan.plan(np.zeros(len(xy), np.float32), times=5)
    return plan, xy, prize, left.item()


def total(xy: np.ndarray, path: list[int]) -> float:
    """Returns the length of a path."""
    return sum(math.dist(xy[a], xy[b]) for a, b in itertools.pairwise(path))


@pytest.mark.parametrize("n", [1, 2, 3, 12, 40])
def test_plans_keep_to_the_limit_and_leave_out_nothing_that_fits(n: int) -> None:
    """From the vehicle to the destination, each node at most once, no way crossed."""
    for seen in views(n):
        for row in range(len(seen.xy)):
            if seen.xy.shape[1] < 3:
                continue
            plan, xy, prize, limit = planned(seen, row)
            path = plan.path
            assert path[0] == 0 and path[-1] == len(xy) - 1
            assert len(set(path)) == len(path)
            length = total(xy, path)
            assert length == pytest.approx(plan.length, abs=1e-3)
            assert length <= limit + 1e-3 or len(path) == 2
            for node in {*range(1, len(xy) - 1)} - {*path}:
                for at in range(1, len(path)):
                    longer = total(xy, [*path[:at], node, *path[at:]])
                    assert longer > limit - 1e-3 or prize[node] == 0
            for i in range(1, len(path) - 2):
                for j in range(i + 1, len(path) - 1):
                    turned = [*path[:i], *path[i : j + 1][::-1], *path[j + 1 :]]
                    assert total(xy, turned) > length - 1e-3


def test_a_dear_detour_is_left_for_two_short_ones() -> None:
    """The node with the largest prize is worth less than what else its length buys."""
    xy = [(0, 0), (0, 2), (1, 0.1), (2, 0.1), (3, 0.1), (4, 0)]
    prize = np.array([0, 1, 0.9, 0.9, 0.9, 0], np.float32)
    for limit, path in ((4.2, [0, 2, 3, 4, 5]), (9.0, [0, 1, 2, 3, 4, 5])):
        plan = Outing(np.array(xy, np.float32), prize, limit)
        plan.plan(np.zeros(6, np.float32), times=5)
        assert plan.path == path


def slow_features(seen: View, row: int) -> np.ndarray:
    """Returns what a plan says, one node after the other."""
    plan, xy, prize, limit = planned(seen, row)
    path = plan.path
    price = sum(prize[node] for node in path[1:-1]) / limit if len(path) > 2 else 0

    def squeezed(x: float) -> float:
        return math.copysign(math.log1p(abs(x)), x)

    def squeezed_way(a: int, b: int) -> np.ndarray:
        far = math.dist(xy[a], xy[b])
        return (xy[b] - xy[a]) * math.log1p(far) / max(far, 1e-6)

    def detour(place: int, node: int) -> float:
        a, b = path[place - 1 : place + 1]
        return total(xy, [a, node, b]) - total(xy, [a, b])

    told = np.zeros((len(xy), TOLD))
    told[:, :3] = (
        squeezed(limit - plan.length),
        math.log(len(path) - 1) / 2,
        squeezed(price),
    )
    told[0, 10:] = squeezed_way(0, path[1])
    for node in range(1, len(xy) - 1):
        if node in path:
            place = path.index(node)
            told[node, 3:5] = 1, math.log1p(place) / 2
            before, after = path[place - 1], path[place + 1]
            cost = total(xy, [before, node, after]) - total(xy, [before, after])
        else:
            place = min(range(1, len(path)), key=lambda i, x=node: detour(i, x))
            before, after = path[place - 1 : place + 1]
            cost = detour(place, node)
        told[node, 5] = squeezed(cost)
        told[node, 6] = squeezed(prize[node] - price * cost)
        told[node, 7] = squeezed(detour(1, node) if node != path[1] else 0)
        told[node, 8:10] = squeezed_way(node, before)
        told[node, 10:] = squeezed_way(node, after)
    return told


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("n", [1, 2, 3, 9, 25])
def test_plans_are_told_of(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every state of roll-outs, at the depot and under way."""
    monkeypatch.setattr(insertions, "FIRST", 5)
    for seen in views(n):
        if seen.xy.shape[1] < 3:
            continue
        found, _ = insertion_features(seen)
        for row in range(len(found)):
            expected = slow_features(seen, row)
            ours = found[row].numpy()
            np.testing.assert_allclose(ours[:, :8], expected[:, :8], atol=2e-4)
            # At the depot a path begins and ends alike: both ends may be as near.
            same = np.abs(ours - expected).max(1) < 2e-4
            assert same.mean() > 0.9 or n < 9


@needs_compiler
@pytest.mark.parametrize("n", [2, 3, 14, 70])
def test_both_ways_give_the_same(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing, and going on from state to state of roll-outs."""
    monkeypatch.setattr(insertions, "FIRST", 8)

    def plans() -> list[torch.Tensor]:
        """Returns all that is told, and places, of one state after the other."""
        found, place = [], None
        for t, seen in enumerate(views(n)):
            n_now = seen.xy.shape[1]
            before = None if t % 5 == 0 else place[:, -n_now:].clone()
            told, place = insertion_features(seen, before)
            found += [told, place]
        return found

    in_c = plans()
    monkeypatch.setattr(insertions, "compiled", lambda: None)
    for by_numpy, expected in zip(plans(), in_c, strict=True):
        torch.testing.assert_close(by_numpy, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("either_way")
def test_plans_go_on_where_the_last_one_led() -> None:
    """Whoever does as planned keeps the plan; whoever turns around too."""
    state = OP.random(1, n=30, seed=4).start()
    config = PolicyConfig.for_state(state, problem="op", zoom=True)
    _, place = insertion_features(view(state, config))
    order = place[0, 1:-1].argsort(descending=True) + 1
    visits = order[: int((place > 0).sum())].flip(0)
    for first, rest in ((visits[0], visits[1:]), (visits[-1], visits[:-1].flip(0))):
        after = state.step(first[None])
        seen = view(after, config)
        x, prize = seen.xy[0].numpy(), seen.s[0, :, 2].numpy()
        left = (seen.s[0, 0, 3] / seen.unit[0, 0, 0]).item()
        plan = Outing(x, prize, left)
        plan.plan(place.gather(1, after.origin)[0].numpy(), times=0)
        expected = state.node[0, rest].tolist()
        assert [after.node[0, node].item() for node in plan.path[1:-1]] == expected


def test_what_can_no_longer_be_visited_is_left_out() -> None:
    """Where the vehicle went out of its way, the plan keeps to what is left."""
    xy = np.array([(0, 0), (1, 0), (2, 0), (3, 3), (4, 0)], np.float32)
    prize = np.array([0, 1, 1, 1, 0], np.float32)
    plan = Outing(xy, prize, 5.0)
    plan.plan(np.array([0, 1, 2, 3, 0], np.float32), times=0)
    assert plan.path == [0, 1, 2, 4]
    assert plan.length == pytest.approx(4)


@pytest.mark.usefixtures("either_way")
def test_nodes_in_one_place_have_a_plan_too() -> None:
    """All at the depot, all at one point, all along a line; and out of reach."""
    line = np.linspace(0, 1, 9)[:, None] * [[1.0, 0.5]]
    point = np.concatenate([np.zeros((1, 2)), np.ones((8, 2))])
    prizes = [0] + [3] * 8
    for coords in (np.zeros((9, 2)), point, line):
        for limit in (0.5, 4.0):
            state = OP(coords, prizes, limit).start()
            config = PolicyConfig.for_state(state, problem="op", zoom=True)
            assert insertion_features(view(state, config))[0].isfinite().all()


@needs_compiler
def test_experts_often_do_as_planned(tmp_path: Path) -> None:
    """More often than they take the nearest node."""
    options = {"expert": "pyvrp", "seconds": 0.3, "workers": 1, "limit": 2.0}
    generate("op", n=40, count=12, out=tmp_path, **options)
    problem, decisions = Trajectories(tmp_path).batch(np.arange(12))
    state = problem.start()
    config = PolicyConfig.for_state(state, problem="op", zoom=True)
    agreed, nearest = [], []
    for decided in torch.from_numpy(np.asarray(decisions)).unbind(1):
        seen = view(state, config)
        told, _ = insertion_features(seen)
        place = (state.node[:, 1:] == decided[:, None]).int().argmax(1) + 1
        under_way = (decided > 0) & (state.node[:, 0] != 0)
        next_one = told[:, 1:-1, 4] + 9 * (told[:, 1:-1, 3] == 0)
        agreed.append((next_one.argmin(1) + 1 == place)[under_way])
        away = (seen.xy - seen.xy[:, :1]).norm(dim=-1)[:, 1:-1]
        nearest.append((away.argmin(1) + 1 == place)[under_way])
        state = state.step(place)
    shares = [torch.cat(part).float().mean().item() for part in (nearest, agreed)]
    assert shares[0] + 0.1 < shares[1]
