"""Parts in C, against their twins in PyTorch."""

import copy
import ctypes
from pathlib import Path

import pytest
import torch
from torch import Tensor

from renco import compiled
from renco.compiled import block as compiled_block
from renco.features import squares
from renco.model import Block, EncoderConfig, Policy, PolicyConfig
from renco.optim import optimizers

needs_block = pytest.mark.skipif(
    compiled_block.functions() is None,
    reason="needs a C compiler and a processor with AVX-512",
)


def make_block(d: int, ff: int) -> Block:
    """Returns a block that does something, and whose ReLU lets nearly all through.

    Where rounding decides whether it does, gradients differ by more than rounding.
    """
    block = Block(EncoderConfig(1, d, d // compiled_block.DIM, ff), geometry=True)
    with torch.no_grad():
        for name, value in block.named_parameters():
            if name.startswith("norm"):
                value.normal_(1.0, 0.2)
            elif name.startswith("alpha"):
                value.fill_(0.5)
        block.up.bias.add_(3.0)
    return block


def outcome(
    block: Block, x: Tensor, where: Tensor, mask: Tensor | None
) -> dict[str, Tensor]:
    """Returns what a block adds to x, and all gradients of a weighted sum of it."""
    x = x.clone().requires_grad_()
    added = block(x, where, mask) - x
    weights = torch.linspace(-1, 1, added.numel()).view_as(added).sin()
    named = {"x": x, **dict(block.named_parameters())}
    found = torch.autograd.grad((added * weights).sum(), [*named.values()])
    return {"added": added.detach(), **dict(zip(named, found, strict=True))}


@needs_block
@pytest.mark.parametrize("flags", [(), ("-DNO_TILES",)])
@pytest.mark.parametrize(
    ("batch", "n", "d", "ff", "hidden"),
    [
        *((3, 37, 128, 256, False), (1, 2, 64, 64, False), (1, 7, 64, 128, True)),
        *((2, 16, 192, 512, False), (4, 100, 128, 256, True), (5, 25, 128, 64, True)),
    ],
)
def test_a_compiled_block_does_what_a_block_does(
    batch: int,
    n: int,
    d: int,
    ff: int,
    hidden: bool,
    flags: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forwards and backwards, but for the rounding of bfloat16, with AMX or without."""
    library = compiled.load("block", "-fopenmp", *flags)
    monkeypatch.setattr(compiled_block, "functions", lambda: library)
    torch.manual_seed(n)
    block, x = make_block(d, ff), torch.randn(batch, n, d)
    where = squares(torch.randn(batch, n, 2))
    mask = None
    if hidden:
        mask = torch.rand(batch, 1, 1, n) > 0.3
        mask[..., 0] = True
    exact = outcome(block, x, where, mask)
    block.products = torch.bfloat16
    rounded = outcome(block, x, where, mask)
    assert not torch.equal(rounded["added"], exact["added"])
    for name, wanted in exact.items():
        error = (rounded[name] - wanted).norm() / wanted.norm().clamp_min(1e-3)
        # Sums over many nodes cancel out, those of slopes most of all.
        assert error < (0.12 if name == "slopes" else 0.06), name


@needs_block
def test_it_learns_what_a_block_learns() -> None:
    """Steps of the optimizer of a training reach the compiled block."""
    torch.manual_seed(0)
    block, x = make_block(64, 64), torch.randn(2, 9, 64)
    where, wanted = squares(torch.randn(2, 9, 2)), torch.randn(2, 9, 64)
    losses = {}
    for products in (None, torch.bfloat16):
        learner = copy.deepcopy(block)
        learner.products = products
        (optimizer,) = optimizers(learner, "adamw", 1e-2, 0.0)
        for _ in range(30):
            loss = (learner(x, where) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[products] = loss.item()
        with torch.no_grad():  # PyTorch's part has learnt it too
            found = (learner(x, where) - wanted).square().mean().item()
        assert found == pytest.approx(losses[products], rel=0.1)
    assert losses[torch.bfloat16] == pytest.approx(losses[None], rel=0.02)
    start = (block(x, where) - wanted).square().mean().item()
    assert losses[None] < 0.6 * start


@needs_block
def test_only_some_sizes_are_compiled() -> None:
    """In other shapes or another precision of the weights, PyTorch does the work."""
    x = torch.zeros(1)
    assert compiled_block.suits(x, 64, 4, 64)
    assert not compiled_block.suits(x, 64, 8, 64)
    assert not compiled_block.suits(x, 96, 6, 64)
    assert not compiled_block.suits(x, 64, 4, 65)
    assert not compiled_block.suits(x.double(), 64, 4, 64)


@needs_block
def test_only_training_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradients, in float32 or without distances PyTorch does the work."""

    def refuse(*given: object) -> Tensor:
        raise AssertionError("compiled")

    monkeypatch.setattr(compiled_block, "block", refuse)
    block, x = make_block(64, 64), torch.zeros(1, 3, 64)
    where = squares(torch.zeros(1, 3, 2))
    block(x, where)
    block.products = torch.bfloat16
    block(x)
    with torch.no_grad():
        block(x, where)
    with pytest.raises(AssertionError, match="compiled"):
        block(x, where)


@needs_block
def test_auto_compiles_what_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the processor multiplies bfloat16."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    for geometry, d, heads in ((True, 64, 4), (True, 64, 8), (False, 64, 4)):
        size = EncoderConfig(1, d, heads, 64)
        policy = Policy(PolicyConfig(base=size, geometry=geometry)).mix("auto")
        compiles = geometry and heads == 4
        products = torch.bfloat16 if compiles else None
        assert policy.base.blocks[0].products == products


def test_without_a_compiler_there_is_no_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch then does the work."""
    monkeypatch.setenv("CC", "there-is-no-such-compiler")
    assert compiled.load.__wrapped__("neighbors") is None


def test_a_compiler_that_fails_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once, with what it said; and nothing is left behind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match="going on without neighbors.c: .*NEAREST"):
        assert compiled.load.__wrapped__("neighbors", "-UNEAREST") is None
    assert not [*(tmp_path / "renco").iterdir()]


def test_what_was_compiled_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Per processor and per flags."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flags = ["-DNEAREST=3", "-DSCALES=1", "-DFAR=2.0f", "-DWIDEST=1.0f"]
    for crowd in ("-DNO_CROWD=0.1f", "-DNO_CROWD=0.2f", "-DNO_CROWD=0.1f"):
        found = compiled.load.__wrapped__("neighbors", *flags, crowd)
        assert found is None or isinstance(found, ctypes.CDLL)
    assert found is None or len([*(tmp_path / "renco").iterdir()]) == 2
