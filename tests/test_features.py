"""Features of nodes, against loops over nodes."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_policy

from renco import OP, TSP, features
from renco.checkpoints import save_policy
from renco.data import Trajectories
from renco.features import FAR, NEAREST, neighbor_count, neighbor_features
from renco.generate import generate
from renco.model import PolicyConfig, view
from renco.training import preset, train

SCALES = (6.0, 3.0, 1.5, 0.75)


@pytest.fixture(params=["compiled", "by PyTorch"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with and without `neighbors.c`."""
    if request.param == "by PyTorch":
        monkeypatch.setattr(features, "compiled", lambda: None)
    elif features.compiled() is None:
        pytest.skip("needs a C compiler")


def slow_neighbors(
    xy: np.ndarray,
    open_nodes: list[int],
    node: int,
    amount: np.ndarray | None = None,
) -> list[float]:
    """Returns the features of one node."""

    def far(a: int, b: int) -> float:
        return math.dist(xy[a], xy[b])

    ends = (0, len(xy) - 1)
    others = [other for other in open_nodes if other != node]
    near = sorted(far(node, other) for other in others)[:NEAREST]
    found = [math.log1p(min(d, FAR)) for d in near + [FAR] * (NEAREST - len(near))]
    for end in ends:
        nearer = sum(far(node, other) < far(node, end) for other in others)
        found.append(math.log1p(nearer) / 2)
    for end in ends:
        nearer = sum(far(end, other) < far(end, node) for other in open_nodes)
        found.append(math.log1p(nearer) / 2)
    for scale in SCALES:
        weights = [math.exp(-((far(node, other) / scale) ** 2)) for other in others]
        offsets = [xy[other] - xy[node] for other in others]
        mass = sum(weights)
        pairs = [*zip(weights, offsets, strict=True)]
        centre = sum((w * d for w, d in pairs), np.zeros(2)) / (mass + 0.1) / scale
        spread = sum(w * (d[0] ** 2 - d[1] ** 2) for w, d in pairs)
        slant = sum(w * 2 * d[0] * d[1] for w, d in pairs)
        axis = np.array([spread, slant]) / (mass + 0.1) / scale**2
        found += [math.log1p(mass), *centre, float(np.hypot(*centre)), *axis]
    for scale in SCALES if amount is not None else ():
        weights = [
            math.exp(-((far(node, other) / scale) ** 2)) * amount[other]
            for other in others
        ]
        pairs = [*zip(weights, [xy[other] - xy[node] for other in others], strict=True)]
        mass = sum(weights)
        centre = sum((w * d for w, d in pairs), np.zeros(2)) / (mass + 0.1) / scale
        found += [math.log1p(mass), *centre]
    return found


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 9])
def test_neighbors_are_counted(n: int) -> None:
    """On every state of a tour, down to the last node."""
    state = TSP.random(3, n=n, seed=n).start()
    config = PolicyConfig.for_state(state, zoom=True)
    while not state.done:
        seen = view(state, config)
        found = neighbor_features(seen)
        size = state.node.shape[1]
        assert found.shape == (3, size, neighbor_count(()))
        for row, xy in enumerate(seen.xy.double().numpy()):
            for node in range(size):
                expected = slow_neighbors(xy, [*range(1, size - 1)], node)
                assert found[row, node].tolist() == pytest.approx(expected, abs=1e-4)
        state = state.step(torch.ones(3, dtype=torch.long))


@pytest.mark.usefixtures("either_way")
def test_what_is_out_of_reach_is_no_neighbor() -> None:
    """Nodes that an orienteering tour cannot visit any more do not count."""
    rng = np.random.default_rng(0)
    prizes = np.concatenate([np.zeros((2, 1)), rng.random((2, 29)) + 0.1], axis=1)
    instances = OP(rng.random((2, 30, 2)), prizes, [0.7, 0.9])
    state = instances.start()
    seen = view(state, PolicyConfig.for_state(state, problem="op", reach=True))
    assert seen.mask is not None and not seen.mask.all()
    found = neighbor_features(seen, (2,))
    size = state.node.shape[1]
    for row, xy in enumerate(seen.xy.double().numpy()):
        amount = seen.s[row, :, 2].double().numpy()
        there = np.flatnonzero(seen.mask[row, 0, 0]).tolist()
        near = [node for node in there if 0 < node < size - 1]
        for node in there:
            expected = slow_neighbors(xy, near, node, amount)
            assert found[row, node].tolist() == pytest.approx(expected, abs=1e-4)


def test_a_model_can_be_taught_of_its_neighbors(tmp_path: Path) -> None:
    """It begins by deciding as before, and the new features are learnt from."""
    config = replace(preset("smoke"), steps=1, held_out=4, neighbors=False)
    generate("tsp", n=12, count=32, out=tmp_path / "data", expert="fast-tsp", workers=1)
    data = Trajectories(tmp_path / "data")
    before = make_policy("tsp", recurrent=False, zoom=True, relative=True)
    save_policy(before, tmp_path / "before")
    fits = {"base": before.config.base, "geometry": False, "reach": False}
    after = train(
        *("base", replace(config, **fits, neighbors=True, learning_rate=1e-9)),
        data=data,
        init=tmp_path / "before",
        out=tmp_path / "after",
    )
    assert after.config.neighbors and not before.config.neighbors
    state = TSP.random(4, n=12).start()
    with torch.no_grad():
        wanted = before.score(before.encode(state), state)
        found = after.score(after.encode(state), state)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    weight = after.base.init.linear.weight[:, -neighbor_count(()) :]
    assert weight.abs().max() > 0
