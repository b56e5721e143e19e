"""Optimizer, schedule and averaged weights for training."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer


class Muon(Optimizer):
    """Momentum whose update is made orthogonal, for hidden weight matrices.

    After K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks"
    (2024). In float32: bfloat16 has no fast path on most CPUs. Matrices of one shape
    are orthogonalised together.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float
    ) -> None:
        """Takes matrices only."""
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Moves each matrix along its orthogonalised Nesterov momentum."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                buffer = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                ahead = p.grad.lerp(buffer, group["momentum"])
                by_shape.setdefault(p.shape, []).append((p, ahead))
            for shape, pairs in by_shape.items():
                update = orthogonal(torch.stack([ahead for _, ahead in pairs]))
                # Keeps the size of updates the same for tall and wide matrices.
                scale = group["lr"] * math.sqrt(max(1.0, shape[0] / shape[1]))
                for (p, _), direction in zip(pairs, update, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(direction, alpha=-scale)


def orthogonal(
    matrices: Float[Tensor, "matrix row column"], iterations: int = 5
) -> Float[Tensor, "matrix row column"]:
    """Pushes the singular values of each matrix towards one.

    Newton-Schulz iterations with the quintic coefficients of the Muon report, which
    are steep at zero and settle between 0.7 and 1.2.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = wide / (torch.linalg.matrix_norm(wide, keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


def optimizers(
    module: nn.Module, name: str, lr: float, decay: float
) -> list[Optimizer]:
    """Returns the optimizers of a module's trainable parameters.

    Args:
        module: What to train.
        name: `"adamw"`, or `"muon"` for the matrices of the blocks, with AdamW for
            the rest.
        lr: Peak learning rate of AdamW; Muon's is `MUON_RATE` times that.
        decay: Weight decay of matrices.
    """
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    if name == "muon":
        hidden = [
            p for n, p in named if p.ndim == 2 and "blocks" in n and "slope" not in n
        ]
    elif name == "adamw":
        hidden = []
    else:
        raise ValueError(f"optimizer must be adamw or muon, got {name!r}")
    taken = {id(p) for p in hidden}
    rest = [p for _, p in named if id(p) not in taken]
    groups = [
        {"params": [p for p in rest if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
    ]
    found: list[Optimizer] = [AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)]
    if hidden:
        found.append(Muon(hidden, lr * MUON_RATE, 0.95, decay))
    for optimizer in found:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return found


MUON_RATE = 10.0  # orthogonal updates are larger steps than Adam's


def set_rate(found: list[Optimizer], factor: float) -> None:
    """Sets each learning rate to its peak times `factor`."""
    for optimizer in found:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor


def schedule(progress: float, warmup: float, final: float = 0.02) -> float:
    """Returns the learning rate at a point of training, as a share of its peak.

    Rises linearly during `warmup`, then falls linearly to `final`.
    """
    if progress < warmup:
        return max(progress / warmup, 1e-3)
    return max(final, 1 - (1 - final) * (progress - warmup) / (1 - warmup))


class Average:
    """An exponential moving average of a module's parameters."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        """Starts at the current parameters."""
        self.decay = decay
        self.values = {n: p.detach().clone() for n, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Moves the average; early steps count more, or it would keep the start."""
        decay = min(self.decay, (1 + step) / (10 + step))
        values = [self.values[n] for n, _ in module.named_parameters()]
        torch._foreach_lerp_(values, [*module.parameters()], 1 - decay)

    @torch.no_grad()
    def swap(self, module: nn.Module) -> None:
        """Exchanges average and parameters; call again to undo."""
        for name, p in module.named_parameters():
            saved = p.detach().clone()
            p.copy_(self.values[name])
            self.values[name] = saved


def pack_state(found: list[Optimizer]) -> dict[str, Tensor]:
    """Returns the optimizers' states as named tensors."""
    packed = {}
    for i, optimizer in enumerate(found):
        for j, entries in optimizer.state_dict()["state"].items():
            for key, value in entries.items():
                packed[f"optimizer.{i}.{j}.{key}"] = torch.as_tensor(value)
    return packed


def unpack_state(found: list[Optimizer], packed: dict[str, Tensor]) -> None:
    """Restores what `pack_state` returned."""
    states: list[dict[int, dict[str, Any]]] = [{} for _ in found]
    for name, value in packed.items():
        _, i, j, key = name.split(".")
        states[int(i)].setdefault(int(j), {})[key] = value
    for optimizer, state in zip(found, states, strict=True):
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
