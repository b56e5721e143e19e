"""Corrections: an expert finishes what a policy began, and training mixes them in."""

import contextlib
import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import make_policy
from labels import keep, restore

from renco.cli import main
from renco.construct import greedy
from renco.dagger import LEAST_LEFT, OWN, Corrections, RollOut, correct
from renco.data import Trajectories
from renco.experts import EXPERTS, fasttsp, find
from renco.experts.fasttsp import FastTSP
from renco.generate import generate
from renco.problems import CVRP, OP, TSP, Infeasible
from renco.progress import Progress
from renco.sampling import Sampler, Slices
from renco.storage import DamagedData
from renco.training import recurrent_losses

SIZES = {"tsp": 12, "cvrp": 10, "op": 20}


@pytest.fixture(scope="module", params=SIZES)
def fresh(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Trajectories:
    """Instances without labels."""
    folder = tmp_path_factory.mktemp("fresh")
    n = SIZES[request.param]
    return generate(request.param, folder, n=n, count=40, seed=5, expert="none")[0]


@pytest.fixture(scope="module")
def made(
    fresh: Trajectories, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Corrections]:
    """Corrections of an untrained policy, which is wrong nearly everywhere."""
    folder = tmp_path_factory.mktemp("corrected") / "set"
    policy = make_policy(fresh.manifest.problem)
    made = correct(policy, fresh, folder, k=1, stops=2, seconds=0.02)
    assert made == [folder / "stop-0", folder / "stop-1"]
    return made[1], Corrections.read_all(folder)[1]


def test_corrections_are_kept_in_few_bytes(
    made: tuple[Path, Corrections], tmp_path: Path
) -> None:
    """Packed and unpacked, all files are what they were."""
    folder = made[0].parent
    keep(folder, tmp_path / "kept")
    restore(tmp_path / "kept", tmp_path / "again")
    files = [path.relative_to(folder) for path in folder.glob("*/*.npy")]
    assert len(files) == 4
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (folder / file).read_bytes()


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


@pytest.mark.parametrize("size", [15, 18])
def test_fast_tsp_need_not_be_exact_where_that_takes_long(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home stands there several times, and the way there is as short as can be."""
    problem, expert, sizes = TSP.random(4, size, seed=3), FastTSP(), []
    solve = expert._tour
    monkeypatch.setattr(
        expert, "_tour", lambda m, seconds: sizes.append(len(m)) or solve(m, seconds)
    )

    def lengths() -> list[float]:
        whole = [expert.complete(problem[i], [2], seconds=0.01) for i in range(4)]
        assert all(sorted(tour) == list(range(1, size)) for tour in whole)
        return [path_length(problem.coords[i], [*whole[i], 0]) for i in range(4)]

    found = lengths()
    monkeypatch.setattr(fasttsp, "EXACT", range(0))
    assert found == pytest.approx(lengths(), rel=2e-4)
    assert sizes == 4 * [21] + 4 * [size]


@pytest.mark.parametrize("name", ["pyvrp", "hygese"])
def test_experts_finish_routes_as_well_as_enumeration(name: str) -> None:
    """The vehicle that is under way may go on, within what it has left to load."""
    problem, expert = CVRP.random(6, 6, seed=3, capacity=12), find(name, "cvrp")
    assert expert is not None
    for index in range(len(problem)):
        one = problem[index]
        own = [2 * 4 + 1, 2 * 2 + 1]  # customer 4 alone, then 2 and on
        whole = expert.complete(one, own, seconds=0.1)
        assert whole[:2] == own
        found = one.cost(one.routes(torch.tensor([whole])))[0]
        costs = []
        for order in itertools.permutations([1, 3, 5, 6]):
            for via in itertools.product((0, 1), repeat=4):
                rest = [2 * c + v for c, v in zip(order, via, strict=True)]
                with contextlib.suppress(Infeasible):
                    costs += [*one.cost(one.routes(torch.tensor([own + rest])))]
        assert found == pytest.approx(min(costs), rel=1e-5)


@pytest.mark.parametrize("left", [1, 2])
def test_hygese_finishes_routes_of_which_hardly_anything_is_left(left: int) -> None:
    """A vehicle that is full, and one or two customers that are left."""
    one, expert = CVRP.random(1, 6, seed=4, capacity=12), find("hygese", "cvrp")
    assert expert is not None
    own = [2 * node + 1 for node in range(1, 7 - left)]
    whole = expert.complete(one, own, seconds=0.1)
    assert whole[: len(own)] == own
    assert sorted(d // 2 for d in whole) == [*range(1, 7)]
    assert one.cost(one.routes(torch.tensor([whole]))) > 0


def test_pyvrp_finishes_tours_as_well_as_enumeration() -> None:
    """The most prize on the way home with the length that is left."""
    problem, expert = OP.random(6, 8, seed=3, limit=2.0), find("pyvrp", "op")
    assert expert is not None
    for index in range(len(problem)):
        one = problem[index]
        own = [int(one.coords[0, 1:].sum(1).argmin()) + 1]
        if one.limit[0] < 2 * np.linalg.norm(one.coords[0, own[0]] - one.coords[0, 0]):
            continue
        whole = expert.complete(one, own, seconds=0.1)
        assert whole[:1] == own
        left = [node for node in range(1, 9) if node not in own]
        costs = []
        for count in range(len(left) + 1):
            for rest in itertools.permutations(left, count):
                with contextlib.suppress(Infeasible):
                    costs += [*one.cost([[[*own, *rest]]])]
        assert one.cost([[whole]])[0] == pytest.approx(min(costs))


def test_an_expert_that_cannot_finish_solutions_says_so(
    fresh: Trajectories, tmp_path: Path
) -> None:
    """And nothing is written."""
    problem = fresh.manifest.problem
    with pytest.raises(ValueError, match=f"partial solutions of {problem}"):
        EXPERTS["ortools"].complete(fresh.instances([0]), [1], seconds=1.0)
    with pytest.raises(ValueError, match="none cannot finish"):
        correct(make_policy(problem), fresh, tmp_path / "x", expert="none")
    assert not (tmp_path / "x").exists()


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Finished sets are kept, the others are as if nothing had happened."""
    fresh = generate("tsp", tmp_path / "fresh", n=9, count=12, seed=5, expert="none")[0]
    policy, out = make_policy("tsp"), tmp_path / "own"

    def die(progress: Progress) -> None:
        if progress.done == 20:
            raise KeyboardInterrupt

    def run(folder: Path, **more: Any) -> list[bytes]:
        made = correct(policy, fresh, folder, k=1, stops=3, seconds=0.01, **more)
        files = [file for stop in made for file in sorted(stop.glob("*.npy"))]
        return [file.read_bytes() for file in files]

    with pytest.raises(KeyboardInterrupt):
        run(out, progress=die)
    kept = out / "stop-0" / "manifest.json"
    written = kept.stat().st_mtime_ns
    assert run(out) == run(tmp_path / "whole")
    assert kept.stat().st_mtime_ns == written
    with pytest.raises(ValueError, match=r"stop-0 holds another set: begun by"):
        run(out, seed=1)


def test_corrections_begin_with_the_policys_own_decisions(
    fresh: Trajectories, made: tuple[Path, Corrections]
) -> None:
    """What follows is better than what the policy would have done."""
    _, corrections = made
    corrections.data.verify()
    problem, decisions = corrections.data.batch(slice(None))
    policy = make_policy(problem.name)
    rolled = greedy(policy, problem.start(), k=1).decisions.numpy()
    for row, own in enumerate(corrections.own):
        assert (decisions[row, :own] == rolled[row, :own]).all()
    assert corrections.own.min() >= 1
    finished = problem.cost(problem.routes(torch.from_numpy(decisions)))
    alone = problem.cost(problem.routes(torch.from_numpy(rolled)))
    assert finished.mean() < alone.mean() - 0.04 * abs(alone.mean())
    np.testing.assert_allclose(finished, corrections.data.costs)


def test_batches_hold_only_what_the_expert_decided(
    made: tuple[Path, Corrections],
) -> None:
    """Steps before the expert took over are never labels."""
    corrections = made[1]
    everything = corrections.data.instances(slice(None)).coords
    for seed in range(50):
        rng = np.random.default_rng(seed)
        length, step = corrections.place(rng)
        assert corrections.own.min() <= step <= length - 2
        problem, decisions = corrections.batch(length, step, 8, rng)
        state, actions = problem.after(decisions, step)
        choices = state.choices
        assert (state.node[:, 1].numpy() == decisions[:, step] // choices).all()
        assert actions.shape == (8, length - step)
        assert (state.decision(actions[:, 0]).numpy() == decisions[:, step]).all()
        rows = (problem.coords[:, None] == everything).all((2, 3)).argmax(1)
        assert (corrections.own[rows] <= step).all()
        assert (corrections.data.lengths[rows] == length).all()


def test_sampler_mixes_corrections_in(made: tuple[Path, Corrections]) -> None:
    """As often as asked, and each batch can be learnt from."""
    corrections = made[1]
    policy = make_policy(corrections.data.manifest.problem)
    for share in (0.0, 1.0):
        sampler = Sampler(
            [(corrections.data, np.arange(len(corrections.data)))],
            Slices(tokens=64, corrected=share),
            0,
            [corrections],
        )
        place = mock.patch.object(
            Corrections, "place", autospec=True, side_effect=Corrections.place
        )
        with place as counted:
            for step in range(30):
                state, actions, _ = sampler.batch(step, 1.0, torch.device("cpu"))
                loss = next(recurrent_losses(policy, state, actions, 3))
                assert loss.isfinite()
        assert counted.call_count == 30 * share


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


def test_the_policy_is_stopped_before_its_doubts() -> None:
    """As often as the power of the doubts in the next ten decisions says."""
    doubt = np.zeros(60)
    doubt[30] = 0.6
    one, rng = RollOut([*range(1, 61)], doubt), np.random.default_rng(0)
    stops = np.array([len(one.stopped(2.0, rng)) for _ in range(500)])
    assert (np.abs(stops - 25.5) < 5).mean() > 0.95
    anywhere = np.array([len(one.stopped(0.0, rng)) for _ in range(500)])
    assert set(anywhere) == set(range(1, 60 - LEAST_LEFT + 1))
    assert RollOut([], np.zeros(0)).stopped(2.0, rng) == []
    assert RollOut([7], np.ones(1)).stopped(2.0, rng) == [7]


def test_greedy_decisions_come_with_their_probabilities() -> None:
    """Those that the policy gives to what it chose."""
    policy, state = make_policy("tsp"), TSP.random(3, 9, seed=4).start()
    found = greedy(policy, state, k=1)
    first = policy.score(policy.encode(state), state).exp().max(-1).values
    torch.testing.assert_close(found.sure[:, 0], first)
    assert found.sure.shape == found.decisions.shape
    assert (found.sure > 0).all()
    assert (found.sure[:, -1] == 1).all()
