"""Lower precision and compilation change the speed, not the answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import make_policy

from renco.checkpoints import load, shipped
from renco.construct import greedy
from renco.model import Policy
from renco.problems import PROBLEMS
from renco.state import State

AGREEMENT = 0.97  # of steps; most others are ties between near equal logits


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"amx_bf16": True, "avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": False, "avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": False, "avx512_bf16": False, "avx2": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_takes_bfloat16_only_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch,
    features: dict[str, bool],
    expected: torch.dtype,
) -> None:
    """Emulated bfloat16 is slower than float32, so it needs the instructions."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features)
    policy = make_policy("tsp").cast("auto")
    assert policy.base.blocks[0].qkv.weight.dtype == expected


def test_embedding_and_decoder_keep_their_precision() -> None:
    """Neighbouring nodes differ in bits that bfloat16 does not have."""
    policy = make_policy("cvrp").cast("bfloat16")
    assert policy.base.init.linear.weight.dtype == torch.float32
    assert policy.decoder.weight.dtype == torch.float32


def likeliest(policy: Policy, state: State, k: int) -> list[torch.Tensor]:
    """Returns the likeliest action at each step of a fixed path: always node 1."""
    t, h, found = 0, torch.empty(0), []
    while not state.done:
        h = policy.encode(state) if t % k == 0 else policy.update(h, state)
        found.append(policy.score(h, state).argmax(dim=-1))
        feasible = state.feasible().expand(len(found[-1]), -1)
        state = state.step(feasible.to(torch.uint8).argmax(dim=-1))
        t += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped())
@torch.inference_mode()
def test_trained_models_decide_alike_in_bfloat16(name: str) -> None:
    """On states that both see, a trained model takes the same decisions."""
    exact, rounded = load(name), load(name, precision="bfloat16")
    problem = PROBLEMS[exact.config.problem].random(32, 60, seed=5)
    k = 1000 if exact.recurrent is not None else 1
    a, b = (likeliest(p, problem.start(), k) for p in (exact, rounded))
    same = torch.stack([x == y for x, y in zip(a, b, strict=True)]).float().mean()
    assert same.item() >= AGREEMENT
    costs = [
        problem.cost(problem.routes(greedy(p, problem.start(), k=k).decisions)).mean()
        for p in (exact, rounded)
    ]
    assert costs[1] == pytest.approx(costs[0], rel=0.03)


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
def test_products_in_bfloat16_give_gradients_of_float32(problem: str) -> None:
    """Training rounds what is multiplied, not the weights and what they add up to."""
    state = PROBLEMS[problem].random(16, 30, seed=4).start()
    found = []
    for precision in ("float32", "bfloat16"):
        policy = make_policy(problem, geometry=True, relative=True).mix(precision)
        h = policy.encode(state)
        after = state.step(policy.score(h, state).argmax(dim=-1))
        policy.score(policy.update(h, after), after).amax(dim=-1).sum().backward()
        grads = {name: p.grad for name, p in policy.named_parameters()}
        assert all(g is not None and g.dtype == torch.float32 for g in grads.values())
        found.append(torch.cat([g.flatten() for g in grads.values()]))
    exact, rounded = found
    assert not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.99


def test_mixing_can_be_undone() -> None:
    """A trained policy leaves the training as precise as it would load."""
    policy, state = make_policy("tsp"), PROBLEMS["tsp"].random(2, 12, seed=1).start()
    exact = policy.encode(state)
    assert not torch.equal(policy.mix("bfloat16").encode(state), exact)
    assert torch.equal(policy.mix("float32").encode(state), exact)


COMPILED = """
import torch
from conftest import make_policy, small
from renco.construct import greedy

policy, state = make_policy("tsp", relative=True), small("tsp", n=12).start()
expected = greedy(policy, state, k=4).decisions
policy.base.compile(dynamic=True)
policy.recurrent.compile(dynamic=True)
assert torch.equal(greedy(policy, state, k=4).decisions, expected)
print("same")
"""


@pytest.mark.slow
def test_a_compiled_policy_gives_the_same_solutions() -> None:
    """`torch.compile` is applied from outside, to encoders of any policy.

    In a process of its own: the compiler cannot see through the shape checks.
    """
    done = subprocess.run(
        [sys.executable, "-c", COMPILED],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "same\n", done.stderr
