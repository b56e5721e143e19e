"""What rivals of a policy's decisions cost, and learning from it."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import make_policy

from renco import regrets
from renco.cli import main
from renco.construct import greedy
from renco.dagger import AHEAD
from renco.data import Trajectories
from renco.generate import generate
from renco.problems import TSP
from renco.progress import Progress
from renco.regrets import WEIGHED, Regrets, weigh
from renco.sampling import Sampler, Slices, Weighed
from renco.storage import DamagedData
from renco.training import (
    expected_regret,
    preset,
    recurrent_losses,
    tempered_cross_entropy,
    train,
)

SIZES = {"tsp": 9, "cvrp": 9, "op": 20}
CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=SIZES)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Regrets]:
    """Regrets of an untrained policy, which doubts everything."""
    problem, folder = request.param, tmp_path_factory.mktemp(request.param)
    sizes = {"n": SIZES[problem], "count": 12}
    fresh = generate(problem, folder / "fresh", **sizes, seed=5, expert="none")[0]
    policy = make_policy(problem)
    (found,) = weigh(policy, fresh, folder / "out", k=1, doubt=0.0, seconds=0.03)
    assert found == folder / "out" / "part-000"
    return found, Regrets.read_all(folder / "out")[0]


def test_greedy_construction_names_rivals() -> None:
    """The likeliest first, with their probabilities, as many as there are."""
    policy, state = make_policy("tsp"), TSP.random(3, 6, seed=4).start()
    found = greedy(policy, state, k=1, rivals=3)
    assert found.rivals is not None and found.chances is not None
    assert torch.equal(found.rivals[..., 0], found.decisions)
    torch.testing.assert_close(found.chances[..., 0], found.sure)
    score = policy.score(policy.encode(state), state).exp()
    best = score.sort(descending=True)
    torch.testing.assert_close(found.chances[:, 0], best.values[:, :3])
    assert torch.equal(found.rivals[:, 0], best.indices[:, :3])
    # At the last step there is one node to choose.
    assert found.chances[:, -1].tolist() == [[1, 0, 0]] * 3
    assert greedy(policy, state, k=1).rivals is None


def test_a_decision_is_weighed_against_its_rivals() -> None:
    """The policy's own first, each once, after what the policy had decided before."""
    policy, problem = make_policy("tsp"), TSP.random(4, 9, seed=5)
    found = greedy(policy, problem.start(), k=1, rivals=3)
    begun = [*regrets._rivals(found, 0.0)]
    assert all(len(some) > 6 for some in begun)
    for row, some in enumerate(begun):
        own = found.decisions[row].tolist()
        steps = {len(one) - 1 for one in some}
        assert steps == {0, 1, 2}  # five decisions are left at least
        for step in steps:
            options = [one[-1] for one in some if len(one) == step + 1]
            assert own[step] == options[0] and len({*options}) == len(options) == 3
            assert all(one[:-1] == own[:step] for one in some if len(one) == step + 1)


def best_tour(problem: TSP, begun: list[int]) -> float:
    """Returns the length of the shortest tour that begins with some nodes."""
    left = sorted(set(range(1, problem.n)) - set(begun))
    tours = [[[[0, *begun, *rest]]] for rest in itertools.permutations(left)]
    return min(float(problem.cost(tour)[0]) for tour in tours)


def test_weighed_decisions_cost_what_enumeration_says(
    made: tuple[Path, Regrets],
) -> None:
    """The expert's answers stand in the right place."""
    given = made[1]
    if given.data.manifest.problem != "tsp":
        pytest.skip("enumeration is for tours")
    problem, decisions = given.data.batch(slice(None))
    for record in given.weighed[::5]:
        row, step = int(record["row"]), int(record["step"])
        begun = [*decisions[row, :step].tolist(), int(record["decision"])]
        assert record["cost"] == pytest.approx(best_tour(problem[row], begun), rel=1e-3)


def test_regrets_are_what_the_best_option_would_save(
    made: tuple[Path, Regrets],
) -> None:
    """In percent of what the policy's solution costs, zero for the best."""
    given = made[1]
    problem, decisions = given.data.batch(slice(None))
    costs = problem.cost(problem.routes(torch.from_numpy(decisions)))
    np.testing.assert_allclose(given.data.costs, costs)
    options, table = given.table
    assert np.isfinite(table).sum() == len(given.weighed)
    known = np.isfinite(table).any(2)
    assert known.sum() > 20
    assert (np.nanmin(table[known], axis=1) == 0).all()
    assert np.nanmax(table) > 0
    for row, step in np.argwhere(known):
        here = (given.weighed["row"] == row) & (given.weighed["step"] == step)
        some = given.weighed[here]
        regret = 100 * (some["cost"] - some["cost"].min()) / abs(costs[row])
        place = np.isfinite(table[row, step])
        found = dict(
            zip(options[row, step][place], table[row, step][place], strict=True)
        )
        assert set(found) == set(some["decision"])
        assert decisions[row, step] in found
        expected = dict(zip(some["decision"], regret, strict=True))
        assert found == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def test_expected_regret_is_the_mean_over_the_policy(
    made: tuple[Path, Regrets],
) -> None:
    """Against a loop over decisions; what was not weighed is as bad as the worst."""
    given = made[1]
    policy = make_policy(given.data.manifest.problem, reach=True)
    sampler = batches(given)
    for step in range(10):
        state, _, weighed = sampler.batch(step, 1.0, CPU)
        assert weighed is not None
        state = policy.visible(state)
        h = policy.encode(state)
        found = expected_regret(policy, h, state, weighed, 0)
        chances = policy.score(h, state).exp()
        total = 0.0
        for row in range(len(chances)):
            regret = weighed.regrets[row, 0]
            known = dict(
                zip(weighed.options[row, 0].tolist(), regret.tolist(), strict=True)
            )
            known = {d: r for d, r in known.items() if np.isfinite(r)}
            for action, chance in enumerate(chances[row]):
                one = torch.full((len(chances),), action)
                decision = int(state.decision(one)[row])
                worst = max(known.values(), default=0.0)
                total += float(chance) * known.get(decision, worst)
        assert float(found) == pytest.approx(total / len(chances), abs=1e-4)


def batches(given: Regrets, **how: Any) -> Sampler:
    """Returns a sampler of regrets alone."""
    how = {"tokens": 64, "weighed": 1.0} | how
    rows = [(given.data, np.arange(len(given.data)))]
    return Sampler(rows, Slices(**how), 0, [], [given])


def test_batches_follow_the_policy_past_what_was_weighed(
    made: tuple[Path, Regrets],
) -> None:
    """Actions are its own, options are feasible, and every window has a regret."""
    given = made[1]
    sampler = batches(given)
    for number in range(30):
        state, actions, weighed = sampler.batch(number, 1.0, CPU)
        assert weighed is not None
        regret = weighed.regrets[:, : AHEAD + 1]
        assert regret.isfinite().flatten(1).any(1).all()
        assert weighed.options.shape[:2] == actions.shape
        for step in range(actions.shape[1] - 1):
            feasible = state.feasible().expand(len(actions), -1)
            options = {
                int(state.decision(torch.full((len(actions),), action))[row])
                for row, action in feasible.nonzero().tolist()
                if row == 0
            }
            known = weighed.regrets[0, step].isfinite()
            assert set(weighed.options[0, step][known].tolist()) <= options
            state = state.step(actions[:, step])


def test_weighed_batches_come_as_often_as_asked(made: tuple[Path, Regrets]) -> None:
    """And the loss on them is the expected regret, step by step."""
    given = made[1]
    none = batches(given, weighed=0.0)
    assert all(none.batch(step, 1.0, CPU).weighed is None for step in range(10))
    policy = make_policy(given.data.manifest.problem)
    state, actions, weighed = batches(given).batch(0, 1.0, CPU)
    assert weighed is not None
    options = {"weighed": weighed, "regret": 2.0, "through_base": True}
    loss = next(recurrent_losses(policy, state, actions, 3, **options))
    s, h = state, policy.encode(state)
    terms = [expected_regret(policy, h, s, weighed, 0)]
    for i in range(1, min(3, actions.shape[1] - 1) + 1):
        s = s.step(actions[:, i - 1])
        h = policy.update(h, s)
        terms.append(expected_regret(policy, h, s, weighed, i))
    torch.testing.assert_close(loss, 2 * torch.stack(terms).mean())
    tempered = next(recurrent_losses(policy, state, actions, 3, **options, temper=0.5))
    h = policy.encode(state)
    first = tempered_cross_entropy(policy, h, state, weighed, 0, temper=0.5)
    alone = next(
        recurrent_losses(policy, state, actions[:, :1], 3, **options, temper=0.5)
    )
    torch.testing.assert_close(alone, 2 * first)
    assert not torch.isclose(tempered, loss)


def test_the_gradient_leads_to_the_best_option() -> None:
    """A policy that follows it decides for what costs least."""
    policy, state = make_policy("tsp").requires_grad_(True), TSP.random(1, 6).start()
    options = torch.tensor([[[2, 4, 3]]])
    regret = torch.tensor([[[1.0, 0.0, float("nan")]]])
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        h = policy.encode(state)
        expected_regret(policy, h, state, Weighed(options, regret), 0).backward()
        optimizer.step()
    assert policy.score(policy.encode(state), state).argmax() == 4


def test_an_interrupted_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that are finished are kept; other settings are refused."""
    monkeypatch.setattr(regrets, "TOGETHER", 4)
    fresh = generate("tsp", tmp_path / "fresh", n=9, count=10, seed=5, expert="none")[0]
    policy, seen = make_policy("tsp"), []

    def die(progress: Progress) -> None:
        seen.append(progress)
        if progress.done == 60:
            raise KeyboardInterrupt

    def run(out: Path, **more: Any) -> list[np.ndarray]:
        weigh(policy, fresh, out, k=1, seconds=0.01, **more)
        return [given.weighed for given in Regrets.read_all(out)]

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(out, doubt=0.0, progress=die)
    assert seen[-1].total == 90  # three options at three steps of ten instances
    kept = out / "part-000" / WEIGHED
    written = kept.stat().st_mtime_ns
    again, whole = run(out, doubt=0.0), run(tmp_path / "whole", doubt=0.0)
    assert [len(Trajectories(out / f"part-{i:03d}")) for i in range(3)] == [4, 4, 2]
    assert kept.stat().st_mtime_ns == written
    for a, b in zip(again, whole, strict=True):
        assert (a == b).all()
    with pytest.raises(ValueError, match="part-000 holds another set: decided by"):
        run(out, doubt=0.5)
    with pytest.raises(ValueError, match="2 rivals or more"):
        run(out, rivals=1)


def test_damaged_regrets_are_refused(made: tuple[Path, Regrets]) -> None:
    """Rows that are not there would be trained on wrongly."""
    folder, given = made
    kept = (folder / WEIGHED).read_bytes()
    wrong = given.weighed.copy()
    wrong["row"] += 1
    try:
        np.save(folder / WEIGHED, wrong)
        with pytest.raises(DamagedData, match="does not fit 12 solutions"):
            Regrets.read(folder)
    finally:
        (folder / WEIGHED).write_bytes(kept)
    with pytest.raises(FileNotFoundError, match="holds no regrets"):
        Regrets.read_all(folder)


def test_command_line_from_model_to_training(tmp_path: Path) -> None:
    """A round of training with regrets; a policy without U has no use for them."""
    data, fresh = tmp_path / "data", tmp_path / "fresh"
    generate("tsp", data, n=10, count=40, seed=1, seconds=0.01, workers=1)
    generate("tsp", fresh, n=10, count=8, seed=2, expert="none")
    known = ["--preset", "smoke", "--steps", "3", "--data", str(data)]
    base, rec = str(tmp_path / "base"), str(tmp_path / "rec")
    assert main(["train", "base", *known, "--out", base]) == 0
    assert main(["train", "recurrent", *known, "--base", base, "--out", rec]) == 0
    out = str(tmp_path / "weighed")
    weighing = ["--model", rec, "--data", str(fresh), "--doubt", "0", "--out", out]
    assert main(["weigh", *weighing]) == 0
    more = ["--base", base, "--init", rec, "--regrets", out]
    with mock.patch("renco.training.expected_regret", wraps=expected_regret) as counted:
        trained = str(tmp_path / "better")
        assert main(["train", "recurrent", *known, *more, "--out", trained]) == 0
    assert counted.call_count > 0
    with pytest.raises(ValueError, match="regrets are for training U"):
        train(
            "base",
            replace(preset("smoke"), steps=1),
            data=data,
            out=tmp_path / "x",
            regrets=[out],
        )


def test_tempered_regrets_teach_probabilities() -> None:
    """A policy that follows them has exp(-regret / temper)."""
    policy = make_policy("tsp").requires_grad_(True)
    state = TSP.random(2, 6).start()
    none = float("nan")
    weighed = Weighed(
        torch.tensor([[[2, 4, 3]], [[0, 0, 0]]]),
        torch.tensor([[[0.5, 0.0, none]], [[none, none, none]]]),
    )
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        h = policy.encode(state)
        loss = tempered_cross_entropy(policy, h, state, weighed, 0, temper=0.5)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = policy.score(policy.encode(state), state).exp()[0]
    assert float(found[2] / found[4]) == pytest.approx(np.exp(-1.0), rel=0.05)
    assert float(found[2] + found[4]) > 0.95
    p = float(found[4] / (found[2] + found[4]))
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    assert loss.item() == pytest.approx(entropy / 2, abs=0.05)  # of two rows
