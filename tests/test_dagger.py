"""Corrections: an expert finishes what a policy began, and training mixes them in."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_policy

from renco.cli import main
from renco.dagger import LEAST_LEFT, OWN, Corrections, correct
from renco.data import Trajectories
from renco.experts import find
from renco.generate import generate
from renco.problems import TSP
from renco.sampling import Sampler, Slices
from renco.storage import DamagedData


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Trajectories:
    """Instances without labels."""
    folder = tmp_path_factory.mktemp("fresh")
    return generate("tsp", folder, n=12, count=40, seed=5, expert="none")[0]


@pytest.fixture(scope="module")
def made(
    fresh: Trajectories, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Corrections]:
    """Corrections of an untrained policy, which is wrong nearly everywhere."""
    folder = tmp_path_factory.mktemp("corrected") / "set"
    policy = make_policy("tsp")
    made = correct(policy, fresh, folder, k=1, stops=2, seconds=0.01)
    assert made == [folder / "stop-0", folder / "stop-1"]
    return made[1], Corrections.read_all(folder)[1]


def path_length(coords: np.ndarray, nodes: list[int]) -> float:
    """Returns the length of an open path."""
    return float(np.linalg.norm(np.diff(coords[nodes], axis=0), axis=1).sum())


def test_fast_tsp_finishes_a_tour_as_well_as_enumeration() -> None:
    """Against all orders of the nodes that are left."""
    problem, expert = TSP.random(6, 11, seed=2), find("fast-tsp", "tsp")
    assert expert is not None
    for index in range(len(problem)):
        own = [3, 7, 1, 9]
        whole = expert.complete(problem[index], own, seconds=0.01)
        assert whole[:4] == own
        assert sorted(whole) == list(range(1, 11))
        coords, left = problem.coords[index], sorted(set(range(1, 11)) - set(own))
        best = min(
            path_length(coords, [9, *order, 0])
            for order in itertools.permutations(left)
        )
        found = path_length(coords, [9, *whole[4:], 0])
        # Its distances have 16 bits, a third of them for the path.
        assert found == pytest.approx(best, rel=2e-4)


def test_an_expert_that_cannot_finish_solutions_says_so(
    fresh: Trajectories, tmp_path: Path
) -> None:
    """And nothing is written."""
    with pytest.raises(ValueError, match="cannot finish partial solutions of tsp"):
        find("ortools", "tsp").complete(fresh.instances([0]), [1], seconds=1.0)
    policy = make_policy("tsp")
    with pytest.raises(ValueError, match="none cannot finish"):
        correct(policy, fresh, tmp_path / "x", expert="none")
    assert not (tmp_path / "x").exists()


def test_corrections_begin_with_the_policys_own_decisions(
    fresh: Trajectories, made: tuple[Path, Corrections]
) -> None:
    """What follows is better than what the policy would have done."""
    from renco.construct import greedy

    _, corrections = made
    corrections.data.verify()
    problem, decisions = corrections.data.batch(slice(None))
    policy = make_policy("tsp")
    rolled = greedy(policy, problem.start(), k=1).decisions.numpy()
    steps = np.arange(decisions.shape[1])
    begun = steps < corrections.own[:, None]
    assert (decisions == rolled)[begun].all()
    assert corrections.own.min() >= 1
    assert corrections.own.max() <= 11 - LEAST_LEFT
    # An untrained policy leaves much to correct.
    finished = problem.cost(problem.routes(torch.from_numpy(decisions)))
    alone = problem.cost(problem.routes(torch.from_numpy(rolled)))
    assert finished.mean() < 0.95 * alone.mean()
    np.testing.assert_allclose(finished, corrections.data.costs)


def test_batches_hold_only_what_the_expert_decided(
    made: tuple[Path, Corrections],
) -> None:
    """Steps before the expert took over are never labels."""
    corrections = made[1]
    last = corrections.data.n - 2
    for seed in range(50):
        rng = np.random.default_rng(seed)
        step = corrections.step(rng)
        assert corrections.own.min() <= step <= last
        problem, decisions = corrections.batch(step, 8, rng)
        state, actions = problem.after(decisions, step)
        assert state.node[:, 1].tolist() == decisions[:, step].tolist()
        assert actions.shape == (8, last + 1 - step) and (actions == 1).all()
        same = problem.coords[:, None] == corrections.data.instances(slice(None)).coords
        rows = same.all((2, 3)).argmax(1)
        assert (corrections.own[rows] <= step).all()


def test_sampler_mixes_corrections_in(made: tuple[Path, Corrections]) -> None:
    """As often as asked: a correction ends at the depot."""
    corrections = made[1]
    everything = np.arange(len(corrections.data))
    for share, expected in ((0.0, 0), (1.0, 60)):
        sampler = Sampler(
            corrections.data,
            everything,
            Slices(tokens=64, corrected=share),
            0,
            [corrections],
        )
        at_home = 0
        for step in range(60):
            state, _ = sampler.batch(step, 1.0, torch.device("cpu"))
            at_home += bool((state.node[:, -1] == 0).all())
        assert at_home == expected or (share == 0.0 and at_home < 10)


def test_damaged_corrections_are_refused(made: tuple[Path, Corrections]) -> None:
    """Rows without their number of own decisions would be trained on wrongly."""
    folder = made[0]
    assert len(Corrections.read(folder).own) == 40
    kept = (folder / OWN).read_bytes()
    try:
        np.save(folder / OWN, np.ones(3, dtype=np.int64))
        with pytest.raises(DamagedData, match="3 of 40 rows"):
            Corrections.read(folder)
    finally:
        (folder / OWN).write_bytes(kept)


def test_command_line_from_model_to_training(tmp_path: Path) -> None:
    """The three commands of a round, and resuming its training."""
    data, fresh = tmp_path / "data", tmp_path / "fresh"
    generate("tsp", data, n=10, count=40, seed=1, seconds=0.01, workers=1)
    generate("tsp", fresh, n=10, count=20, seed=2, expert="none")
    train = ["train", "base", "--preset", "smoke", "--steps", "3", "--data", str(data)]
    assert main([*train, "--out", str(tmp_path / "base")]) == 0
    model = ["--model", str(tmp_path / "base"), "--data", str(fresh)]
    assert main(["correct", *model, "--out", str(tmp_path / "own")]) == 0
    more = ["--init", str(tmp_path / "base"), "--corrections", str(tmp_path / "own")]
    assert main([*train, *more, "--out", str(tmp_path / "better")]) == 0
    assert main([*train, *more, "--out", str(tmp_path / "better"), "--resume"]) == 0
