"""What holds for everything that classical methods tell the networks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import make_policy
from torch import Tensor

from renco.checkpoints import save_policy
from renco.construct import beam_search, greedy
from renco.data import Trajectories
from renco.features import View
from renco.generate import generate
from renco.insertions import insertion_features
from renco.model import PLANS, PolicyConfig, view
from renco.problems import PROBLEMS, Problem
from renco.savings import savings_features
from renco.training import preset, train
from renco.trees import tree_features

TELLERS: dict[str, Callable[[View], Tensor]] = {
    "trees": lambda seen: tree_features(seen.xy, None)[0],
    "savings": savings_features,
    "insertions": lambda seen: insertion_features(seen)[0],
}
EXPERTS = {"tsp": "fast-tsp", "cvrp": "hygese", "op": "pyvrp"}


def drawn(problem: str, batch: int, n: int) -> Problem:
    """Returns instances; of the CVRP with several routes."""
    options = {"capacity": 20} if problem == "cvrp" else {}
    return PROBLEMS[problem].random(batch, n=n, **options)


@pytest.mark.parametrize("plan", PLANS)
def test_open_nodes_may_come_in_any_order(plan: str) -> None:
    """A plan belongs to nodes, not to how they are listed."""
    state = drawn(PLANS[plan], 3, 25).start()
    config = PolicyConfig.for_state(state, problem=PLANS[plan], zoom=True)
    for _ in range(7):
        state = state.step(state.feasible().expand(3, -1).int().argmax(1))
    seen = view(state, config)
    n = seen.xy.shape[1]
    order = torch.randperm(n - 2, generator=torch.Generator().manual_seed(1)) + 1
    order = torch.cat([torch.tensor([0]), order, torch.tensor([n - 1])])
    other = seen._replace(xy=seen.xy[:, order], s=seen.s[:, order])
    expected = TELLERS[plan](seen)[:, order]
    torch.testing.assert_close(TELLERS[plan](other), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 30])
@pytest.mark.parametrize("plan", PLANS)
def test_all_searches_know_plans(plan: str, n: int) -> None:
    """Down to instances that leave nothing to decide."""
    policy = make_policy(PLANS[plan], zoom=True, neighbors=True, **{plan: True})
    problem = drawn(PLANS[plan], 2, n)
    for k in (1, 3, 1000):
        found = [
            greedy(policy, problem.start(), k=k),
            beam_search(policy, problem.start(), k=k, width=4, merge=True),
            greedy(policy, problem.start(), k=k, near=20),
        ]
        for solutions in found:
            problem.cost(problem.routes(solutions.decisions))


@pytest.mark.parametrize("plan", PLANS)
def test_plans_are_for_one_problem(plan: str) -> None:
    """Others are refused by name."""
    own = PLANS[plan]
    other = next(name for name in PROBLEMS if name != own)
    state = drawn(other, 1, 5).start()
    with pytest.raises(ValueError, match=f"{plan} are for the {own}, not for {other}"):
        PolicyConfig.for_state(state, problem=other, **{plan: True})


@pytest.mark.parametrize("knew", ["nothing", "neighbors", "the plan"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_model_can_be_taught_of_plans(tmp_path: Path, plan: str, knew: str) -> None:
    """It begins by deciding as before; presets give each problem what is for it."""
    config = replace(preset("smoke"), steps=1, held_out=4, learning_rate=1e-9)
    name = PLANS[plan]
    options = {"n": 12, "count": 32, "expert": EXPERTS[name], "workers": 1}
    generate(name, out=tmp_path / "data", seconds=0.05, **options)
    told = {"nothing": {}, "neighbors": {"neighbors": True}, "the plan": {plan: True}}
    before = make_policy(name, recurrent=False, zoom=True, relative=True, **told[knew])
    save_policy(before, tmp_path / "before")
    fits = {"base": before.config.base, "geometry": False, "reach": False}
    after = train(
        *("base", replace(config, **fits)),
        data=Trajectories(tmp_path / "data"),
        init=tmp_path / "before",
        out=tmp_path / "after",
    )
    assert [getattr(after.config, other) for other in PLANS] == [
        other == plan for other in PLANS
    ]
    state = drawn(name, 4, 12).start()
    with torch.no_grad():
        wanted = before.score(before.encode(state), state)
        found = after.score(after.encode(state), state)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    told_last = after.base.init.linear.weight[:, -after.config.told[-1] :]
    assert told_last.abs().max() > 0
