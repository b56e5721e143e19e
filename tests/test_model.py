"""The networks against the paper's equations, written out node by node."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from conftest import make_policy, rollout, small
from numpy import ndarray
from torch import Tensor, nn

from renco.model import (
    SIZES,
    Block,
    EncoderConfig,
    InitEmbedding,
    Policy,
    PolicyConfig,
    align,
    attention,
    view,
)
from renco.problems import PROBLEMS

every_problem = pytest.mark.parametrize("name", list(PROBLEMS))
TINY = EncoderConfig(layers=1, d=8, heads=2, ff=12)


def array(tensor: Tensor) -> ndarray:
    """Returns a tensor as float64 numbers."""
    return tensor.detach().double().numpy()


def naive_norm(x: ndarray, gain: ndarray) -> ndarray:
    """RMSNorm of one embedding."""
    return x / math.sqrt(sum(v * v for v in x) / len(x) + 1e-6) * gain


def naive_linear(layer: nn.Linear, x: ndarray) -> ndarray:
    """A linear layer on one embedding."""
    weight = array(layer.weight)
    y = np.array([sum(w * v for w, v in zip(row, x, strict=True)) for row in weight])
    return y if layer.bias is None else y + array(layer.bias)


def naive_block(block: Block, x: list[ndarray]) -> list[ndarray]:
    """One encoder block, node by node and head by head."""
    d, heads = len(x[0]), block.heads
    dim = d // heads
    qkv = [
        naive_linear(block.qkv, naive_norm(v, array(block.norm_attention))) for v in x
    ]
    mixed = []
    for i in range(len(x)):
        out = np.zeros(d)
        for head in range(heads):
            at = slice(head * dim, (head + 1) * dim)
            q = qkv[i][:d][at]
            keys = [row[d : 2 * d][at] for row in qkv]
            weights = np.exp([q @ key / math.sqrt(dim) for key in keys])
            weights /= weights.sum()
            for weight, row in zip(weights, qkv, strict=True):
                out[at] += weight * row[2 * d :][at]
        mixed.append(naive_linear(block.out, out))
    x = [v + block.alpha_attention.item() * m for v, m in zip(x, mixed, strict=True)]
    result = []
    for v in x:
        hidden = naive_linear(block.up, naive_norm(v, array(block.norm_ff)))
        result.append(
            v + block.alpha_ff.item() * naive_linear(block.down, hidden.clip(min=0))
        )
    return result


def naive_init(init: InitEmbedding, s: ndarray) -> list[ndarray]:
    """Equation 1."""
    h = [naive_linear(init.linear, row) for row in s]
    h[0] = h[0] + array(init.start)
    h[-1] = h[-1] + array(init.end)
    return h


def naive_encode(policy: Policy, s: ndarray) -> list[ndarray]:
    """E(s)."""
    h = naive_init(policy.base.init, s)
    for block in policy.base.blocks:
        h = naive_block(block, h)
    return h


def naive_update(policy: Policy, aligned: list[ndarray], s: ndarray) -> list[ndarray]:
    """U(h~, s): equations 1 and 2, the blocks and the projection."""
    u = policy.recurrent
    h0 = naive_init(u.init, s)
    h = []
    for previous, embedding in zip(aligned, h0, strict=True):
        normed = naive_norm(previous, array(u.norm))
        merged = naive_linear(u.merge, np.concatenate([normed, embedding]))
        h.append(merged.clip(min=0) + embedding)
    for block in u.blocks:
        h = naive_block(block, h)
    return [naive_linear(u.out, v) for v in h]


@every_problem
def test_equation_1(name: str) -> None:
    """A linear layer, the start added to the first node and the end to the last."""
    policy = make_policy(name)
    state = small(name, batch=2, n=5).start()
    s = state.features()
    seen = policy.base.init(view(state, policy.config))
    for row in range(2):
        expected = naive_init(policy.base.init, array(s[row]))
        np.testing.assert_allclose(array(seen[row]), expected, rtol=1e-4, atol=1e-5)


@every_problem
def test_base_encoder_equals_a_naive_loop(name: str) -> None:
    """E is what the paper says, node by node in float64."""
    policy = make_policy(name)
    state = rollout(small(name, batch=2, n=5).start(), steps=1)[0][-1]
    h = policy.encode(state)
    for row, s in enumerate(state.features()):
        expected = naive_encode(policy, array(s))
        np.testing.assert_allclose(array(h[row]), expected, rtol=1e-3, atol=1e-4)


@every_problem
def test_equation_2_and_the_recurrent_encoder_equal_a_naive_loop(name: str) -> None:
    """U drops the old node, moves the chosen one to the front, merges and encodes."""
    policy = make_policy(name)
    before = small(name, batch=2, n=5).start()
    position = 3
    after = before.step(torch.full((2,), position * before.choices))
    previous = policy.encode(before)
    h = policy.update(previous, after)
    for row, s in enumerate(after.features()):
        rows = [*array(previous[row])]
        chosen = rows.pop(position)
        aligned = [chosen, *rows[1:]]
        expected = naive_update(policy, aligned, array(s))
        np.testing.assert_allclose(array(h[row]), expected, rtol=1e-3, atol=1e-4)


@every_problem
def test_the_decoder_is_a_masked_softmax(name: str) -> None:
    """Scores are log-probabilities of the feasible actions by one linear layer."""
    policy = make_policy(name)
    state = rollout(small(name).start(), steps=2)[0][-1]
    h = policy.encode(state)
    scores = policy.score(h, state).detach()
    mask = state.feasible().expand(len(state.node), -1)
    for row in range(len(state.node)):
        logits = np.concatenate(
            [naive_linear(policy.decoder, array(v)) for v in h[row]]
        )
        odds = np.exp(logits) * mask[row].numpy()
        np.testing.assert_allclose(
            scores[row].exp(), odds / odds.sum(), rtol=1e-4, atol=1e-6
        )
    assert scores[~mask].isneginf().all()
    assert scores[mask].isfinite().all()


def test_a_single_action_is_certain() -> None:
    """A finished row's one action has log-probability zero, exactly."""
    policy, problem = make_policy("op"), PROBLEMS["op"].random(1, 5, limit=0.0)
    state = problem.start()
    scores = policy.score(policy.encode(state), state)[0]
    assert scores[-1] == 0
    assert scores[:-1].isneginf().all()


def test_align_equals_a_loop() -> None:
    """Row i of the result is the row that `origin` names."""
    h, origin = torch.randn(3, 6, 4), torch.randint(0, 6, (3, 5))
    expected = torch.stack(
        [torch.stack([h[b, i] for i in origin[b]]) for b in range(3)]
    )
    assert torch.equal(align(h, origin), expected)


def test_attention_equals_a_loop() -> None:
    """Each query mixes the values by the softmax of scaled products."""
    q, k, v = torch.randn(3, 2, 3, 5, 4, dtype=torch.float64)
    mixed = attention(q, k, v)
    for b, head, i in np.ndindex(2, 3, 5):
        weights = np.exp([float(q[b, head, i] @ k[b, head, j]) / 2 for j in range(5)])
        expected = sum(w * v[b, head, j] for j, w in enumerate(weights / weights.sum()))
        torch.testing.assert_close(mixed[b, head, i], expected)


def test_blocks_start_as_the_identity() -> None:
    """ReZero: an untrained encoder returns its initial embedding."""
    policy = Policy(PolicyConfig(base=TINY, recurrent=TINY))
    state = small("tsp", n=6).start()
    expected = policy.base.init(view(state, policy.config))
    assert torch.equal(policy.encode(state), expected)


def test_every_parameter_of_a_policy_matters() -> None:
    """Both encoders and the decoder receive gradients everywhere."""
    ours = {"relative": True, "neighbors": True, "geometry": True, "zoom": True}
    for options in ({}, ours):
        policy = make_policy("cvrp", **options)
        before = small("cvrp").start()
        h = policy.encode(before)
        after = before.step(torch.full((4,), 4))
        h = policy.update(h, after)
        policy.score(h, after)[:, 4:-4:2].sum().backward()
        for name, parameter in policy.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            # The softmax ignores what is common to all nodes.
            common = name in ("decoder.bias", "recurrent.out.bias")
            assert common or parameter.grad.abs().max() > 0, name


def test_geometry_weighs_by_squared_distance() -> None:
    """With blank queries and keys, attention falls with the squared distance."""
    config = PolicyConfig(base=EncoderConfig(1, 16, 4, 8), geometry=True)
    block = Policy(config).base.blocks[0]
    nn.init.zeros_(block.qkv.weight[:32])
    nn.init.zeros_(block.qkv.bias[:32])
    nn.init.eye_(block.out.weight)
    nn.init.ones_(block.alpha_attention)
    x, xy = torch.randn(1, 6, 16), torch.randn(1, 6, 2) * 2
    where = torch.cat([xy, xy.square().sum(-1, keepdim=True), torch.ones(1, 6, 1)], -1)
    mixed = array(block(x, where[0]) - x)[0]
    normed = np.stack([naive_norm(v, np.ones(16)) for v in array(x[0])])
    values = normed @ array(block.qkv.weight[32:]).T + array(block.qkv.bias[32:])
    squares = ((array(xy[0])[:, None] - array(xy[0])) ** 2).sum(-1)
    # Keys hold (x, y, x^2 + y^2) times a factor whose square is slope * sqrt(dim).
    slopes = array(block.slopes.view(2, 4, 4, 4)[1, :, 0, 0]) ** 2 / 2
    assert (np.diff(slopes) > 0).all()
    for head, slope in enumerate(slopes):
        at = slice(head * 4, head * 4 + 4)
        weights = np.exp(-slope * squares)
        weights /= weights.sum(1, keepdims=True)
        np.testing.assert_allclose(mixed[:, at], weights @ values[:, at], atol=1e-4)


def test_geometry_needs_room_in_each_head() -> None:
    """Heads too small to hold a squared distance are refused."""
    with pytest.raises(ValueError, match="4 dimensions per head, got 2"):
        Policy(PolicyConfig(base=EncoderConfig(1, 8, 4, 8), geometry=True))


def test_zoom_makes_every_part_of_a_square_look_alike() -> None:
    """Scores of a state do not depend on where in the frame its nodes lie."""
    policy = make_policy("op", zoom=True, relative=True, geometry=True)
    state = small("op", n=6).start()
    h = policy.encode(state)
    shrunk = dataclasses.replace(
        state, xy=state.xy / 8 + 0.25, remaining=state.remaining / 8
    )
    torch.testing.assert_close(policy.encode(shrunk), h, rtol=1e-3, atol=1e-4)


# Sizes


def count(module: nn.Module) -> int:
    """Returns the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def expected_block(size: EncoderConfig) -> int:
    """Returns the parameters of a block: biases at qkv and up, gains, two alphas."""
    attention = 4 * size.d**2 + 3 * size.d
    feed_forward = 2 * size.d * size.ff + size.ff
    return attention + feed_forward + 2 * size.d + 2


def test_parameter_counts_of_the_paper() -> None:
    """The base model L9-d192 has about 3.1 million parameters."""
    policy = Policy(PolicyConfig(recurrent=SIZES["L4-d192-h12"]))
    assert 3.05e6 < count(policy.base) + count(policy.decoder) < 3.15e6
    assert count(policy.base) == 9 * expected_block(SIZES["L9-d192-h12"]) + 5 * 192
    merge, out = (384 + 1) * 192, (192 + 1) * 192
    expected = 4 * expected_block(SIZES["L4-d192-h12"]) + 5 * 192 + 192 + merge + out
    assert count(policy.recurrent) == expected


@every_problem
def test_sizes_follow_the_problem(name: str) -> None:
    """Features and choices of the state set the first and the last layer."""
    state = PROBLEMS[name].random(1, 3).start()
    policy = Policy(PolicyConfig.for_state(state, base=TINY))
    features = {"tsp": 2}.get(name, 4)
    assert policy.base.init.linear.weight.shape == (8, features)
    assert policy.decoder.weight.shape == (2 if name == "cvrp" else 1, 8)


def test_named_sizes() -> None:
    """The paper's sizes go by their names."""
    assert sorted(SIZES) == [
        "L3-d192-h12",
        "L4-d128-h8",
        "L4-d192-h12",
        "L5-d192-h12",
        "L9-d192-h12",
    ]
    assert SIZES["L4-d128-h8"] == EncoderConfig(4, 128, 8, 256)
    assert all(size.name == name for name, size in SIZES.items())


@pytest.mark.parametrize("field", ["layers", "d", "heads", "ff"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", None])
def test_impossible_sizes_are_refused(
    field: str, value: object, unchecked: None
) -> None:
    """Sizes must be positive whole numbers; the error names field and value."""
    with pytest.raises(ValueError, match=f"{field} must be .* got {value}"):
        EncoderConfig(**{field: value})


def test_width_must_be_a_multiple_of_the_heads() -> None:
    """Heads share the width evenly."""
    with pytest.raises(ValueError, match="d = 10 is not a multiple of 4 heads"):
        EncoderConfig(d=10, heads=4)


def test_configs_survive_a_dictionary() -> None:
    """A config restored from its dictionary is the same; unknown keys raise."""
    config = make_policy("op", relative=True, zoom=True).config
    values = dataclasses.asdict(config)
    assert PolicyConfig.from_dict(values) == config
    assert PolicyConfig.from_dict(values | {"recurrent": None}).recurrent is None
    with pytest.raises(TypeError, match="colour"):
        PolicyConfig.from_dict(values | {"colour": 1})


# Wrong use


def test_update_needs_a_recurrent_encoder() -> None:
    """A policy without U says so."""
    policy, state = make_policy("tsp", recurrent=False), small("tsp").start()
    h = policy.encode(state)
    with pytest.raises(ValueError, match="no recurrent encoder"):
        policy.update(h, state.step(torch.ones(4, dtype=torch.long)))


def test_update_needs_the_embeddings_of_the_state_before() -> None:
    """Embeddings of any other size are refused with both sizes."""
    policy, state = make_policy("tsp"), small("tsp", n=8).start()
    h = policy.encode(state)
    later = rollout(state, steps=2)[0][-1]
    with pytest.raises(ValueError, match=r"of 9 nodes .* state of 7"):
        policy.update(h, later)
    with pytest.raises(ValueError, match=r"of 9 nodes .* state of 9"):
        policy.update(h, state)


def test_unknown_precisions_are_refused() -> None:
    """The error names the precision and the known ones."""
    with pytest.raises(ValueError, match="bfloat16, got 'float8'"):
        make_policy("tsp").cast("float8")


@every_problem
def test_bfloat16_scores_are_close(name: str) -> None:
    """Lower precision in the blocks changes scores by little."""
    state = small(name).start()
    with torch.inference_mode():
        policy = make_policy(name)
        exact = policy.score(policy.encode(state), state)
        policy.cast("bfloat16")
        assert policy.base.blocks[0].qkv.weight.dtype == torch.bfloat16
        assert policy.decoder.weight.dtype == torch.float32
        rough = policy.score(policy.encode(state), state)
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, exact)
    assert torch.equal(rough.isneginf(), exact.isneginf())
    finite = exact.isfinite()
    torch.testing.assert_close(rough[finite], exact[finite], rtol=0.1, atol=0.1)
    assert make_policy(name).cast("auto") is not None


@every_problem
def test_scoring_changes_neither_state_nor_embeddings(name: str) -> None:
    """Encoders and decoder return new values."""
    policy, state = make_policy(name), small(name).start()
    kept = {f: getattr(state, f).clone() for f in state.row_fields}
    with torch.inference_mode():
        h = policy.encode(state)
        copy = h.clone()
        policy.score(h, state)
        policy.update(h, rollout(state, steps=1)[0][-1])
    assert torch.equal(h, copy)
    for field, value in kept.items():
        assert torch.equal(getattr(state, field), value), field
