"""How the experiments measure: roles, rows, and what is measured again."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import equal
import labels
import numpy as np
import pytest
import regret
import torch
from average import average
from conftest import make_policy
from fold import fold
from methods import (
    Bench,
    Model,
    expected_seconds,
    lehd_method,
    local_method,
    models,
    reinforced_method,
)
from methods import peers as peers_of
from peers import lehd, reinforced, sgbs
from protocol import Answer, Meter, Method, Plan, Stamp, gflop
from rows import COLUMNS, gap, history, key, problem_and_size, read_table
from run import ITEMS, SCALES, Setting
from run import main as run_main
from standins import labelled as records
from standins import nearest
from standins import plan as manifest
from test_evaluate import labelled

from renco.checkpoints import save_policy
from renco.construct import beam_search, greedy
from renco.data import Trajectories
from renco.experts import ExpertFailed
from renco.generate import generate
from renco.model import EncoderConfig
from renco.problems import PROBLEMS, Infeasible, Problem, Routes
from renco.sampling import Sampler, Slices

STAMP = Stamp("2026-01-01T00:00:00Z", "abc", "a machine", 1, "2", 50.0)
FAST = Method(role="peer", model="fast", limit=0.1, version="1")
SLOW = Method(role="peer", model="slow", limit=0.1, version="1")


class Nearest:
    """Solves by going to the nearest node, and remembers what it was asked."""

    def __init__(self) -> None:
        """Has not been asked yet."""
        self.asked: list[str] = []
        self.warm: list[str] = []

    def __call__(self, method: Method, problem: Problem, seed: int) -> Answer:
        """Solves one instance."""
        self.asked.append(method.model)
        return Answer(routes=self.routes(problem), seconds=0.5)

    def routes(self, problem: Problem) -> Routes:
        """Returns the solution."""
        return nearest(problem, seconds=1.0, seed=0)

    def warm_up(self, method: Method, problem: Problem) -> None:
        """Notes that a method was warmed up."""
        self.warm.append(method.model)


def plan(folder: Path, *methods: Method, count: int = 2) -> Plan:
    """Returns a plan for a few small instances."""
    table = folder / "tsp10-test.csv"
    return Plan(labelled(count=4), "tsp10-test", count, methods, STAMP, table)


def run(todo: Plan, solve: Nearest) -> Nearest:
    """Carries a plan out."""
    todo.run(solve, lambda row: None)
    return solve


def test_methods_take_turns_instance_by_instance(tmp_path: Path) -> None:
    """Each instance begins with another method, and each method is warmed up once."""
    asked = run(plan(tmp_path, FAST, SLOW), Nearest())
    assert asked.asked == ["fast", "slow", "slow", "fast"]
    assert asked.warm == ["fast", "slow"]


def test_rows_say_what_was_measured_where(tmp_path: Path) -> None:
    """All columns that identify a measurement are filled in."""
    todo = plan(tmp_path, FAST, count=1)
    run(todo, Nearest())
    (row,) = read_table(todo.table)
    assert tuple(row) == COLUMNS
    assert row["model"] == "fast" and row["limit"] == "0.1" and row["threads"] == "1"
    assert row["commit"] == "abc" and row["dataset_sha256"] and row["date"]
    cost = todo.data.instances([0]).cost([Nearest().routes(todo.data.instances([0]))])
    assert float(row["cost"]) == pytest.approx(cost[0], rel=1e-6)
    assert float(row["reference"]) == pytest.approx(todo.data.costs[0], rel=1e-6)


def test_what_has_a_row_is_not_measured_again(tmp_path: Path) -> None:
    """More instances or other weights are; the rest is skipped."""
    run(plan(tmp_path, FAST, count=1), Nearest())
    assert run(plan(tmp_path, FAST, count=1), Nearest()).asked == []
    assert run(plan(tmp_path, FAST, count=3), Nearest()).asked == ["fast"] * 2
    other = replace(FAST, model_sha256="another")
    assert run(plan(tmp_path, other, count=1), Nearest()).asked == ["fast"]


def test_wrong_solutions_never_become_rows(tmp_path: Path) -> None:
    """The checker of the problem has the last word."""

    class Wrong(Nearest):
        def routes(self, problem: Problem) -> Routes:
            return [[0, 1, 2]]

    todo = plan(tmp_path, FAST)
    with pytest.raises(Infeasible):
        run(todo, Wrong())
    assert read_table(todo.table) == []


def test_failures_are_rows(tmp_path: Path) -> None:
    """A solver that finds nothing in its time is not left out."""

    class Failing(Nearest):
        def routes(self, problem: Problem) -> Routes:
            raise ExpertFailed("found nothing\nin 0.1 s")

    todo = plan(tmp_path, FAST, count=1)
    run(todo, Failing())
    (row,) = read_table(todo.table)
    assert row["cost"] == "" and row["fault"] == "found nothing in 0.1 s"


def test_other_tables_are_refused(tmp_path: Path) -> None:
    """A file with other columns is named."""
    path = tmp_path / "tsp10-test.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="tsp10-test"):
        read_table(path)


def test_gaps_and_histories_are_relative() -> None:
    """To the absolute value of the reference, as prizes are negative costs."""
    row = dict.fromkeys(COLUMNS, "") | {"cost": "-8", "reference": "-10"}
    assert gap(row) == pytest.approx(20.0)
    row["history"] = "0.5:-8 1:-10"
    assert history(row) == [(0.5, 20.0), (1.0, 0.0)]
    assert problem_and_size("cvrp1000-test") == ("cvrp", 1000)
    with pytest.raises(ValueError, match="tsp100-test"):
        problem_and_size("other")


def saved(folder: Path, name: str, recurrent: bool, **info: object) -> str:
    """Writes a small model and returns its folder."""
    save_policy(make_policy("tsp", recurrent=recurrent), folder / name, **info)
    return str(folder / name)


def test_roles_follow_from_the_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is the model that the recurrent one was trained on."""
    monkeypatch.setattr("methods.shipped", list)
    base = saved(tmp_path, "some-name", recurrent=False)
    digest = json.loads((tmp_path / "some-name" / "config.json").read_text())["sha256"]
    policy = make_policy("tsp", recurrent=False, seed=1)
    save_policy(policy, tmp_path / "control")
    control = str(tmp_path / "control")
    rec = saved(tmp_path, "rec", recurrent=True, base={"name": "x", "sha256": digest})
    found = {m.name: (m.role, m.k) for m in models("tsp", [base, control, rec])}
    assert {m.size for m in models("tsp", [base, rec])} == {"L2-d16-h4", "L1-d8-h2"}
    assert found == {rec: ("recurrent", 1000), base: ("base", 1), control: ("plain", 1)}
    assert models("cvrp", [base]) == []


def test_a_recurrent_model_contains_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the base is not shipped, k = 1 is the same network."""
    monkeypatch.setattr("methods.shipped", list)
    rec = saved(tmp_path, "rec", recurrent=True, base={"name": "x", "sha256": "y"})
    assert [(m.role, m.k) for m in models("tsp", [rec])] == [
        ("recurrent", 1000),
        ("base", 1),
    ]
    alone = saved(tmp_path, "alone", recurrent=False)
    assert [m.role for m in models("tsp", [alone])] == ["base"]
    # Trained together with U, a base has no model of its own: one of its size has.
    assert [(m.name, m.role) for m in models("tsp", [rec, alone])] == [
        (rec, "recurrent"),
        (alone, "base"),
    ]


@pytest.mark.parametrize("search", ["greedy", "beam", "lns", "algorithm4"])
def test_models_are_measured_through_the_searches(search: str, tmp_path: Path) -> None:
    """Time and work inside the encoders are part of the whole."""
    name = saved(tmp_path, "rec", recurrent=True)
    settings: dict[str, Any] = {"width": 2}
    improves = search in ("lns", "algorithm4")
    if improves:
        settings = {"limit": 0.2, "n_sub": 8}
    method = Model(name, "recurrent", "0" * 64, 1000, "L1-d8-h2").method(
        search, **settings
    )
    problem, bench = labelled(n=12).instances([0]), Bench(torch.device("cpu"))
    bench.warm_up(method, problem)
    answer = bench(method, problem, 0)
    problem.cost([answer.routes])
    assert answer.inside is not None and answer.gflop is not None
    assert 0 < answer.inside < answer.seconds and answer.gflop > 0
    assert bool(answer.history) == improves
    assert expected_seconds(method, "tsp", 12, 50.0) > 0


def test_installed_solvers_are_peers() -> None:
    """Those that keep to a time limit, with their versions."""
    found = peers_of("tsp")
    assert all(method.version for method in found)
    assert not {"concorde", "lkh"} & {method.model for method in found}
    for method in found[:1]:
        limited = replace(method, limit=0.05)
        problem = labelled(n=8).instances([0])
        answer = Bench(torch.device("cpu"))(limited, problem, 0)
        assert problem.cost([answer.routes])[0] > 0


def test_local_moves_are_measured_without_a_network() -> None:
    """The limit holds and the tour is good."""
    method = local_method()
    data = labelled(n=12)
    problem, bench = data.instances([0]), Bench(torch.device("cpu"))
    limited = replace(method, limit=0.2)
    bench.warm_up(limited, problem)
    answer = bench(limited, problem, 0)
    assert problem.cost([answer.routes])[0] <= 1.05 * data.costs[0]
    assert 0.2 < answer.seconds < 0.5


def test_work_is_that_of_the_matrix_products() -> None:
    """Of one layer on one node: qkv, out, up, down, and two products of attention."""
    size = EncoderConfig(layers=1, d=4, heads=1, ff=8)
    by_hand = 2 * (4 * 12 + 4 * 4 + 4 * 8 + 8 * 4) + 2 * 4 + 2 * 4
    assert gflop(size, 1, 1) == pytest.approx(by_hand / 1e9)
    policy = make_policy("tsp", recurrent=False)
    meter = Meter(policy)
    greedy(policy, labelled(n=6).instances([0]).start(), k=1)
    steps = sum(gflop(policy.config.base, 1, nodes) for nodes in range(7, 2, -1))
    assert meter.gflop == pytest.approx(steps)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("scale", SCALES)
def test_items_ask_for_each_method_once(item: str, scale: str) -> None:
    """And for limits where something goes on until it is stopped."""
    found = [
        Model("rec", "recurrent", "1" * 64, 1000, "L1-d8-h2"),
        Model("base", "base", "2" * 64, 1, "L2-d8-h2"),
        Model("control", "plain", "3" * 64, 1, "L1-d8-h2"),
    ]
    make, sizes = ITEMS[item]
    for n in sizes:
        methods = make(Setting("tsp", n, SCALES[scale], found))
        assert methods and len(methods) == len(set(methods))
        for method in methods:
            endless = method.search in ("lns", "algorithm4", "")
            assert (method.limit is not None) == endless
            assert len(key(dict.fromkeys(COLUMNS, "") | method.cells())) == 16


@pytest.mark.parametrize("problem", ["tsp", "cvrp", "op"])
def test_lehd_learns_saves_and_solves(problem: str, tmp_path: Path) -> None:
    """A moment of training gives a model that is measured like the others."""
    data = Trajectories.in_memory(made := manifest(problem), records(made))
    size = EncoderConfig(layers=1, d=16, heads=2, ff=16)
    lehd.train(
        data, tmp_path, minutes=0.005, layers=1, size=size, say=lambda line: None
    )
    bench, instance = Bench(torch.device("cpu")), data.instances([0])
    costs = []
    for search in ("greedy", "rrc3"):
        method = lehd_method(str(tmp_path), search)
        assert method.size == "L2-d16-h2" and method.model_sha256
        answer = bench(method, instance, 0)
        costs.append(instance.cost([answer.routes])[0])
        assert expected_seconds(method, problem, 8, 50.0) > 0
    assert costs[1] <= costs[0]


@pytest.mark.filterwarnings("ignore")  # those of lightning and tensordict
@pytest.mark.parametrize("name", reinforced.SEARCHES)
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_rl4co_learns_is_saved_and_solves(
    problem: str, name: str, tmp_path: Path
) -> None:
    """Its models are trained, stored without pickle, and checked by us."""
    pytest.importorskip("rl4co")
    small = {"embed_dim": 16, "num_heads": 2}
    reinforced.train(
        *(name, problem, tmp_path), n=8, minutes=0.01, batch=4, settings=small
    )
    instance = PROBLEMS[problem].random(1, 9, seed=1)
    costs = []
    for search in reinforced.SEARCHES[name]:
        method = reinforced_method(str(tmp_path), search)
        answer = Bench(torch.device("cpu"))(method, instance, 0)
        costs.append(instance.cost([answer.routes])[0])
        assert expected_seconds(method, problem, 9, 50.0) > 0
    assert costs[1:2] <= costs[:1]


def test_equal_minutes_are_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each method gets its model; what is there is not trained again."""
    monkeypatch.setattr(
        reinforced, "PROBLEMS", ()
    )  # it needs more than what CI installs
    data = labelled("tsp", 10, 16)
    first = equal.trained(data, 0.01, tmp_path / "models")
    assert [m.role for m in first] == [*["recurrent"] * 2, *["base"] * 2, *["lehd"] * 2]
    assert {m.model for m in first} == {
        f"{name}-0.01min" for name in ("recurrent", "base", "lehd")
    }
    monkeypatch.setattr(equal, "train", None)
    monkeypatch.setattr(lehd, "train", None)
    assert equal.trained(data, 0.01, tmp_path / "models") == first
    bench = Bench(torch.device("cpu"))
    for method in first:
        answer = bench(method, data.instances([0]), 0)
        data.instances([0]).cost([answer.routes])


def test_eight_views_are_the_symmetries_of_the_square() -> None:
    """All different, and all distances stay."""
    xy = torch.rand(1, 5, 2, generator=torch.Generator().manual_seed(0))
    views = torch.cat([reinforced.view(xy, number) for number in range(8)])
    assert len({tuple(v.flatten().tolist()) for v in views}) == 8
    for seen in views:
        torch.testing.assert_close(torch.cdist(seen, seen), torch.cdist(xy[0], xy[0]))


@pytest.mark.parametrize("problem", ["tsp", "cvrp", "op"])
def test_guided_beams_are_feasible_and_find_the_best_of_all(problem: str) -> None:
    """Wide enough, every path is simulated; as narrow as can be, it is greedy."""
    instance, policy = PROBLEMS[problem].random(1, 5, seed=2), make_policy(problem)
    costs = {}
    for width in (1, 1000):
        found = sgbs.simulation_guided(
            policy, instance.start(), k=3, width=width, expand=width
        )
        (costs[width],) = instance.cost(instance.routes(found.decisions))
        assert found.cost.item() == pytest.approx(costs[width], rel=1e-5)
    built = greedy(policy, instance.start(), k=3).decisions
    assert costs[1] == instance.cost(instance.routes(built))[0]
    everything = beam_search(policy, instance.start(), k=3, width=1000).decisions
    assert costs[1000] == instance.cost(instance.routes(everything))[0]


def test_lehd_embeds_an_instance_once() -> None:
    """Embeddings are only dropped and moved; the decoder does the rest."""
    data = labelled(n=6, count=2)
    config = make_policy("tsp", recurrent=False).config
    policy = lehd.LEHD(config, layers=1)
    calls: list[int] = []
    policy.base.register_forward_hook(lambda *args: calls.append(1))
    state = data.instances([0]).start()
    greedy(policy, state, k=1000)
    assert len(calls) == 1
    h = policy.encode(state)
    after = state.step(torch.tensor([2]))
    assert torch.equal(policy.update(h, after), h[:, [2, 1, 3, 4, 5, 6]])


def test_lehd_is_trained_on_the_steps_that_it_will_see() -> None:
    """The loss of all steps is that of walking along the labels."""
    data = labelled(n=6, count=4)
    policy = lehd.LEHD(make_policy("tsp", recurrent=False).config, layers=1)
    sampler = Sampler([(data, np.arange(4))], Slices(tokens=32, curriculum=0.0), 0)
    state, actions, _ = sampler.batch(0, 1.0, torch.device("cpu"))
    steps = actions.shape[1]
    found = lehd.loss(policy, state, actions, np.random.default_rng(0), steps)
    h, terms = policy.encode(state), []
    for t in range(steps):
        scores = policy.score(h, state)
        terms.append(-scores.gather(1, actions[:, t, None]).mean())
        state = state.step(actions[:, t])
        h = policy.update(h, state)
    assert found.item() == pytest.approx(torch.stack(terms).mean().item(), rel=1e-5)


def test_the_command_measures_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run only says how long; a second run has nothing left to do."""
    monkeypatch.setattr("protocol.peak", lambda device: 50.0)
    monkeypatch.setattr("run.Bench", lambda device: Nearest())
    words = ["run.py", "figure2", "--data", "tsp100-test", "--instances", "1"]
    words += ["--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*words, "--dry-run"])
    run_main()
    assert "min" in capsys.readouterr().out and not list(tmp_path.iterdir())
    monkeypatch.setattr("sys.argv", words)
    run_main()
    found = read_table(tmp_path / "tsp100-test.csv")
    assert {row["role"] for row in found} >= {"recurrent", "base"}
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(found)
    run_main()
    assert "0 of" in capsys.readouterr().out
    assert len(read_table(tmp_path / "tsp100-test.csv")) == len(found)


def test_a_folded_model_computes_the_same() -> None:
    """All ReZero factors are one afterwards."""
    policy = make_policy("tsp", recurrent=True)
    state = labelled(n=12).instances([0]).start()
    after = state.step(torch.tensor([3]))
    before = policy.update(policy.encode(state), after)
    fold(policy)
    assert all(block.alpha_ff == 1 for block in policy.base.blocks)
    torch.testing.assert_close(policy.update(policy.encode(state), after), before)


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
def test_regrets_of_all_decisions_are_the_gap(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is negative, and they add up, by step as by sureness."""
    pytest.importorskip("fast_tsp" if problem == "tsp" else "pyvrp")
    (data,) = generate(problem, tmp_path, n=12, count=2, seconds=0.1)
    policy = make_policy(problem)
    instances = data.instances(slice(None))
    found = greedy(policy, instances.start(), k=1000).decisions
    cost = instances.cost(instances.routes(found))
    monkeypatch.setattr(regret, "TABLE", tmp_path / "regret.csv")
    save_policy(policy, tmp_path / "model")
    monkeypatch.setattr(regret, "open_data", lambda name: data)
    given = ["--model", str(tmp_path / "model"), "--seconds", "0.02"]
    monkeypatch.setattr("sys.argv", ["regret.py", *given])
    regret.main()
    regret.main()
    text = (tmp_path / "regret.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 8 and min(float(row["regret"]) for row in rows) >= 0
    expected = (100 * (cost - data.costs) / abs(data.costs)).mean()
    for by in regret.BOUNDS:
        some = [row for row in rows if row["by"] == by]
        assert sum(float(row["decisions"]) for row in some) == pytest.approx(
            1, abs=1e-3
        )
        total = sum(float(row["regret"]) for row in some)
        assert total == pytest.approx(expected, abs=1e-2)


def test_a_packed_set_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that are kept are not made again, and the others are added."""
    plan = {"problem": "tsp", "n": 10, "seed": 4, "expert": "fast-tsp", "seconds": 0.01}
    made = generate(out=tmp_path / "some", count=9, chunk=4, **plan)[0]
    monkeypatch.setattr(labels, "PACKED", tmp_path)
    monkeypatch.setitem(labels.SETS, "kept", {**plan, "count": 14, "chunk": 4})
    labels.keep(made.folder, tmp_path / "kept.bin")
    labels.begin(tmp_path / "kept.bin", tmp_path / "begun")
    assert len([*(tmp_path / "begun" / "parts").iterdir()]) == 3
    labels.make("kept", tmp_path / "whole", 1)
    whole = Trajectories(tmp_path / "whole")
    whole.verify()
    assert len(whole) == 14
    assert (whole.records(slice(9)) == made.records(slice(None))).all()


def test_averages_lie_half_way() -> None:
    """Only models of one kind have any."""
    before, after = (make_policy("tsp") for _ in range(2))
    with torch.no_grad():
        for weight in after.parameters():
            weight += 1.0
    average(before, after)
    for old, new in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.5)
    with pytest.raises(ValueError, match="different settings"):
        average(before, make_policy("op"))
