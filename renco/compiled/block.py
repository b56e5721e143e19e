"""The block of an encoder for training on a CPU with AVX-512.

With small batches, PyTorch spends half of a training's time between the matrix
products, and its products in bfloat16 gain nothing, because weights are packed and
activations converted anew for each. `block.c` keeps both in the form that a processor
with bfloat16 multiplies, and the gradient of the whole block is written out by hand.
Other processors take the numbers apart again, which pays as well: less is moved.
"""

import ctypes
from functools import cache
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from renco.compiled import Argument, call, load

DIM = 16
"""Dimensions of a head that `block.c` is written for."""
QUERIES = 16
"""Queries that it takes together."""
MULTIPLE = 64
"""What widths must be a multiple of there."""


@cache
def functions() -> ctypes.CDLL | None:
    """Returns what is compiled; None where it cannot be, or would not pay."""
    if not torch.cpu.get_capabilities().get("avx512_f"):
        return None
    return load("block", "-fopenmp")


def suits(like: Tensor, d: int, heads: int, ff: int) -> bool:
    """Returns whether blocks of a size, whose weights are such, can be compiled."""
    return (
        like.device.type == "cpu"
        and like.dtype == torch.float32
        and d == heads * DIM
        and d % MULTIPLE == 0
        and ff % MULTIPLE == 0
        and functions() is not None
    )


class Parameters(NamedTuple):
    """The parameters of a block, as they are in `renco.model.Block`."""

    norm_attention: Float[Tensor, " d"]
    qkv: Float[Tensor, "qkv d"]
    qkv_bias: Float[Tensor, " qkv"]
    slopes: Float[Tensor, "qk 4"] | None
    out: Float[Tensor, "d d"]
    alpha_attention: Float[Tensor, ""]
    norm_ff: Float[Tensor, " d"]
    up: Float[Tensor, "ff d"]
    up_bias: Float[Tensor, " ff"]
    down: Float[Tensor, "d ff"]
    alpha_ff: Float[Tensor, ""]


class Packed(NamedTuple):
    """The weights of a block, gains and ReZero factors multiplied in, as C wants them.

    Each matrix is there twice, packed for its product and for that of the way back.
    """

    near: Float[Tensor, "4 qkv"]
    qkv: Tensor
    qkv_back: Tensor
    out: Tensor
    out_back: Tensor
    up: Tensor
    up_back: Tensor
    down: Tensor
    down_back: Tensor
    up_bias: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, given: Parameters) -> Self:
        """Packs the parameters of a block."""
        near = given.qkv.new_zeros(4, len(given.qkv))
        if given.slopes is not None:
            near[:, : len(given.slopes)] = given.slopes.t()
        near[3] += given.qkv_bias  # the last of the four positions is 1
        return cls(
            near,
            *_packed(given.qkv, given.norm_attention, None),
            *_packed(given.out, None, given.alpha_attention),
            *_packed(given.up, given.norm_ff, None),
            *_packed(given.down, None, given.alpha_ff),
            given.up_bias,
        )


def _packed(
    weight: Float[Tensor, "out in"],
    gain: Float[Tensor, " in"] | None,
    factor: Float[Tensor, ""] | None,
) -> tuple[Tensor, Tensor]:
    """Returns a weight in bfloat16, pairs of columns and pairs of rows interleaved."""
    forth, back = torch.empty(2, weight.numel(), dtype=torch.bfloat16)
    _run("pack", weight, gain, factor, *weight.shape, forth, back)
    return forth, back


class Memory(NamedTuple):
    """What the way back needs of the way forth."""

    normed: Tensor
    by: Tensor
    qkv: Tensor
    mixed: Tensor
    chances: Tensor
    inverse: Tensor
    normed_ff: Tensor
    by_ff: Tensor
    hidden: Tensor

    @classmethod
    def empty(cls, batch: int, n: int, d: int, ff: int) -> Self:
        """Returns room for a batch of states of n nodes."""
        rows, kind = batch * n, torch.bfloat16
        queries = (batch, d // DIM, _padded(n, QUERIES))
        return cls(
            torch.empty(rows, d, dtype=kind),
            torch.empty(rows),
            torch.empty(rows, 3 * d),
            torch.empty(rows, d, dtype=kind),
            torch.empty(*queries, _padded(n, DIM), dtype=kind),
            torch.empty(queries),
            torch.empty(rows, d, dtype=kind),
            torch.empty(rows),
            torch.empty(rows, ff, dtype=kind),
        )


def _padded(n: int, to: int) -> int:
    return -(-n // to) * to


def block(
    x: Float[Tensor, "batch node d"],
    where: Float[Tensor, "token 4"],
    mask: Bool[Tensor, "batch 1 1 node"] | None,
    parameters: Parameters,
) -> Float[Tensor, "batch node d"]:
    """Returns x plus attention plus feed-forward, as `renco.model.Block` does."""
    found: Tensor = _Block.apply(x, where, mask, *parameters)
    return found


def _run(name: str, *arguments: Argument) -> None:
    call(getattr(functions(), name), *arguments)


class _Block(torch.autograd.Function):
    """A block and its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        where: Tensor,
        mask: Tensor | None,
        *given: Any,
    ) -> Tensor:
        # Every time: nothing tells of a change by a fused optimizer, and it is cheap.
        packed = Packed.of(Parameters(*given))
        batch, n, d = x.shape
        sizes = (batch, n, d, len(packed.up_bias))
        memory, y = Memory.empty(*sizes), torch.empty(batch, n, d)
        x, where = x.contiguous(), where.contiguous()
        if mask is not None:
            mask = mask.reshape(batch, n).contiguous()
        _run("forth", sizes, packed, x, where, mask, memory, y)
        ctx.packed, ctx.sizes = packed, sizes
        ctx.save_for_backward(where, *memory, *given)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        where, *saved = ctx.saved_tensors
        many = len(Memory._fields)
        memory, given = saved[:many], Parameters(*saved[many:])
        # Not changed in place: autograd may hand the same tensor to others.
        dx = grad.clone(memory_format=torch.contiguous_format)
        near, qkv, out, up, up_bias, down = found = (
            torch.empty(4, len(given.qkv)),
            *(torch.empty_like(w) for w in (given.qkv, given.out, given.up)),
            torch.empty_like(given.up_bias),
            torch.empty_like(given.down),
        )
        _run("back", ctx.sizes, ctx.packed, where, memory, dx, found)
        slopes = given.slopes
        return (
            *(dx, None, None),
            *((qkv * given.qkv).sum(0), qkv.mul_(given.norm_attention), near[3]),
            None if slopes is None else near[:, : len(slopes)].t(),
            *_scaled(out, given.out, given.alpha_attention),
            *((up * given.up).sum(0), up.mul_(given.norm_ff), up_bias),
            *_scaled(down, given.down, given.alpha_ff),
        )


def _scaled(grad: Tensor, weight: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients of a weight and of the factor it was multiplied by."""
    total = torch.dot(grad.flatten(), weight.flatten())
    return grad.mul_(factor), total
