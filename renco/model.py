"""The policy of section 3.2: base encoder E, recurrent encoder U, decoder D."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from renco import features, insertions, savings, trees
from renco.compiled import block as compiled
from renco.features import (
    View,
    neighbor_count,
    neighbor_features,
    relative_features,
    squares,
)
from renco.insertions import insertion_features
from renco.savings import savings_features
from renco.state import State
from renco.trees import tree_features


@dataclass(frozen=True)
class EncoderConfig:
    """The size of one encoder."""

    layers: int = 9
    d: int = 192
    heads: int = 12
    ff: int = 512

    def __post_init__(self) -> None:
        """Raises ValueError unless the sizes fit together."""
        for name in ("layers", "d", "heads", "ff"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, got {value}")
        if self.d % self.heads:
            raise ValueError(f"d = {self.d} is not a multiple of {self.heads} heads")

    @property
    def name(self) -> str:
        """The size as it stands in names of models, e.g. `L9-d192-h12`."""
        return f"L{self.layers}-d{self.d}-h{self.heads}"


SIZES: dict[str, EncoderConfig] = {
    size.name: size
    for size in (
        EncoderConfig(9, 192, 12, 512),
        EncoderConfig(5, 192, 12, 512),
        EncoderConfig(4, 192, 12, 512),
        EncoderConfig(3, 192, 12, 512),
        EncoderConfig(4, 128, 8, 256),
    )
}
"""The sizes of the paper's figure 2, by name."""


PLANS = {"trees": "tsp", "savings": "cvrp", "insertions": "op"}
"""Features of `PolicyConfig` that are for one problem."""


@dataclass(frozen=True)
class PolicyConfig:
    """All that is needed to build a policy.

    Attributes:
        problem: Name of the problem it is for.
        features: Features per node, x and y first (`State.features`).
        choices: Actions per node (`State.choices`).
        base: Size of E.
        recurrent: Size of U; None for a policy without one.
        lengths: Which features are lengths and scale with the coordinates.
        amounts: Which features are amounts, of which neighbours have more or less.
        zoom: Maps the nodes of every single state to the unit square. Unlike the
            paper, where remaining nodes keep the coordinates of the instance.
        relative: Adds offset and distance to the current node and the destination, and
            the length that a detour would leave, to the features. Unlike the paper,
            where a network must learn to subtract.
        neighbors: Adds what the open nodes around each node look like, their distances
            and crowds, to the features. Unlike the paper, where a network must learn to
            compare distances.
        trees: Adds what the cheapest spanning tree of the open nodes looks like, after
            Held and Karp, to the features. For the TSP only. Unlike the paper, where a
            network must learn how nodes hang together.
        savings: Adds what a plan by Clarke and Wright's savings looks like, to the
            features. For the CVRP only. Unlike the paper, likewise.
        insertions: Adds what a plan by insertions looks like, to the features. For the
            OP only. Unlike the paper, likewise.
        geometry: Lets queries and keys see the squared distance between nodes.
            Unlike the paper, where attention knows position by embeddings alone.
        reach: Hides nodes that can no longer be reached. Unlike the paper, where all
            unvisited nodes remain in the state.
        links: Also predicts which node follows each node, for an auxiliary loss.
    """

    problem: str = "tsp"
    features: int = 2
    choices: int = 1
    lengths: tuple[int, ...] = ()
    amounts: tuple[int, ...] = ()
    base: EncoderConfig = field(default_factory=EncoderConfig)
    recurrent: EncoderConfig | None = None
    zoom: bool = False
    relative: bool = False
    neighbors: bool = False
    trees: bool = False
    savings: bool = False
    insertions: bool = False
    geometry: bool = False
    reach: bool = False
    links: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError where features do not fit the problem."""
        for name, problem in PLANS.items():
            if getattr(self, name) and self.problem != problem:
                raise ValueError(
                    f"{name} are for the {problem}, not for {self.problem}"
                )

    @property
    def hands_on(self) -> bool:
        """Whether a plan goes on from that of the state before."""
        return self.trees or self.insertions

    @property
    def told(self) -> list[int]:
        """How many features of each optional kind come last, neighbors first."""
        return [
            neighbor_count(self.amounts) * self.neighbors,
            trees.TOLD * self.trees
            + savings.TOLD * self.savings
            + insertions.TOLD * self.insertions,
        ]

    @classmethod
    def for_state(cls, state: State, **others: Any) -> Self:
        """Returns a config whose features and choices fit a state."""
        return cls(
            features=state.features().shape[-1],
            choices=state.choices,
            lengths=state.lengths,
            amounts=state.amounts,
            **others,
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Restores a config from `dataclasses.asdict`; unknown keys raise."""
        values = dict(values)
        for size in ("base", "recurrent"):
            if values.get(size) is not None:
                values[size] = EncoderConfig(**values[size])
        for name in ("lengths", "amounts"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


def view(state: State, config: PolicyConfig) -> View:
    """Returns a state as networks see it, mapped to its own unit square if asked for.

    n uniform points of the unit square lie about n^-1/2 apart.
    """
    s, present = state.features(), state.present() if config.reach else None
    xy = s[..., :2]
    if present is None:
        mask, n = None, xy.new_full((1, 1, 1), xy.shape[1])
    else:
        mask = present[:, None, None]
        n = present.sum(dim=1).to(xy.dtype)[:, None, None]
    unit = n.rsqrt()
    if not config.zoom:
        return View(s, (xy - 0.5) / unit, unit, unit, n, mask)
    low, high = _extremes(xy, present)
    extent = high - low
    side = extent.amax(dim=-1, keepdim=True)
    side = torch.where(side > 0, side, 1.0)
    xy = (xy - low) / side
    rest = s[..., 2:].clone()
    for feature in config.lengths:
        rest[..., feature - 2] /= side[..., 0]
    # Nodes along a line are closer together than nodes of a full square.
    aspect = extent.amin(dim=-1, keepdim=True) / side
    unit = (0.1 + 0.9 * aspect).sqrt() * unit
    s = torch.cat([xy, rest], dim=-1)
    return View(s, (xy - 0.5) / unit, unit, unit * side, n, mask)


def _extremes(
    xy: Float[Tensor, "batch node 2"], present: Bool[Tensor, "batch node"] | None
) -> tuple[Tensor, Tensor]:
    """Returns the lowest and highest coordinates of each state."""
    if present is None:
        low, high = xy.aminmax(dim=1, keepdim=True)
        return low, high
    away = ~present[..., None]
    return (
        xy.masked_fill(away, torch.inf).amin(dim=1, keepdim=True),
        xy.masked_fill(away, -torch.inf).amax(dim=1, keepdim=True),
    )


class Block(nn.Module):
    """RMSNorm, multi-head attention, ReZero residual; the same with ReLU FF.

    The gain of each norm and the ReZero factors multiply weights, not activations:
    the products are tiny there, and the residual sum comes free with the matrix
    product (`addmm`).
    """

    def __init__(self, config: EncoderConfig, geometry: bool) -> None:
        """Builds a block that starts as the identity."""
        super().__init__()
        d = config.d
        self.heads = config.heads
        self.norm_attention = nn.Parameter(torch.ones(d))
        self.norm_ff = nn.Parameter(torch.ones(d))
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d, bias=False)
        self.up = nn.Linear(d, config.ff)
        self.down = nn.Linear(config.ff, d, bias=False)
        # ReZero, one factor for attention and one for FF.
        self.alpha_attention = nn.Parameter(torch.zeros(()))
        self.alpha_ff = nn.Parameter(torch.zeros(()))
        self.slopes: nn.Parameter | None = None
        if geometry:
            self.slopes = nn.Parameter(_distance_slopes(config))
        # Precision of matrix products, where it is not that of the weights.
        self.products: torch.dtype | None = None

    def forward(
        self,
        x: Float[Tensor, "batch node d"],
        where: Float[Tensor, "token 4"] | None = None,
        mask: Bool[Tensor, "batch 1 1 node"] | None = None,
    ) -> Float[Tensor, "batch node d"]:
        """Returns x plus attention plus feed-forward."""
        batch, n, d = x.shape
        dtype = self.products or x.dtype
        wanted = dtype == torch.bfloat16 and torch.is_grad_enabled()
        if wanted and where is not None and self.compiles(x):
            return compiled.block(x, where, mask, self._given())
        x = x.reshape(batch * n, d)
        qkv = self._qkv(rms_normalized(x).to(dtype), where)
        q, k, v = qkv.view(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = attention(q, k, v, mask).transpose(1, 2).reshape(batch * n, d)
        x = plus_product(x, mixed, self.out.weight * self.alpha_attention)
        weight = (self.up.weight * self.norm_ff).to(dtype)
        hidden = F.linear(rms_normalized(x).to(dtype), weight, self.up.bias.to(dtype))
        x = plus_product(x, F.relu(hidden), self.down.weight * self.alpha_ff)
        return x.view(batch, n, d)

    def compiles(self, like: Tensor) -> bool:
        """Returns whether there is a compiled block of this size for such tensors."""
        return compiled.suits(like, len(self.norm_ff), self.heads, len(self.up.bias))

    def _given(self) -> compiled.Parameters:
        return compiled.Parameters(
            *(self.norm_attention, self.qkv.weight, self.qkv.bias, self.slopes),
            *(self.out.weight, self.alpha_attention),
            *(self.norm_ff, self.up.weight, self.up.bias),
            *(self.down.weight, self.alpha_ff),
        )

    def _qkv(self, x: Tensor, where: Tensor | None) -> Tensor:
        weight = (self.qkv.weight * self.norm_attention).to(x.dtype)
        bias = self.qkv.bias.to(x.dtype)
        if self.slopes is None or where is None:
            return F.linear(x, weight, bias)
        slopes = F.pad(self.slopes, (0, 0, 0, x.shape[1]))  # none for the values
        near = F.linear(where, slopes.to(where.dtype)).to(x.dtype) + bias
        return near.addmm_(x, weight.t())


def plus_product(
    x: Float[Tensor, "token d"],
    y: Float[Tensor, "token any"],
    weight: Float[Tensor, "d any"],
) -> Float[Tensor, "token d"]:
    """Returns x + y W^T, the product in the precision of y, the sum in that of x."""
    weight = weight.to(y.dtype).t()
    return torch.addmm(x, y, weight) if x.dtype == y.dtype else x + y @ weight


def rms_normalized(x: Float[Tensor, "*any d"]) -> Float[Tensor, "*any d"]:
    """Divides each row by its root mean square."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def attention(
    q: Float[Tensor, "batch head node dim"],
    k: Float[Tensor, "batch head node dim"],
    v: Float[Tensor, "batch head node dim"],
    mask: Bool[Tensor, "batch 1 1 node"] | None = None,
) -> Float[Tensor, "batch head node dim"]:
    """Scaled dot-product attention to the nodes that a mask leaves."""
    if q.requires_grad and q.device.type == "cpu" and q.dtype == torch.bfloat16:
        # Backwards, small heads in bfloat16 take three times as long on a CPU.
        mixed = F.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), attn_mask=mask
        )
        return mixed.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _distance_slopes(config: EncoderConfig) -> Float[Tensor, "qk 4"]:
    """Returns weights that add minus a slope times the squared distance.

    |a - b|^2 = |a|^2 - 2ab + |b|^2, and the softmax over b ignores |a|^2: with
    queries (2ax, 2ay, -1) and keys (bx, by, |b|^2) in three dimensions of each head
    the bias needs no n x n memory. Slopes grow geometrically over the heads; all
    weights are learned from there.
    """
    dim = config.d // config.heads
    if dim < 4:
        raise ValueError(f"geometry needs 4 dimensions per head, got {dim}")
    weight = torch.zeros(2, config.heads, dim, 4)  # of (x, y, x^2 + y^2, 1)
    slope = 2.0 ** torch.linspace(-5, 1, config.heads)
    scale = (slope * math.sqrt(dim)).sqrt()
    for axis in (0, 1):
        weight[0, :, axis, axis] = 2 * scale
        weight[1, :, axis, axis] = scale
    weight[0, :, 2, 3] = -scale
    weight[1, :, 2, 2] = scale
    return weight.view(2 * config.d, 4)


class InitEmbedding(nn.Module):
    """Equation 1: a linear layer, plus marks on the first and the last node."""

    def __init__(self, config: PolicyConfig, d: int) -> None:
        """Builds the embedding in d dimensions."""
        super().__init__()
        self.relative, self.lengths = config.relative, config.lengths
        self.neighbors, self.amounts = config.neighbors, config.amounts
        more = (7 + len(config.lengths)) * config.relative
        more += sum(config.told)
        self.linear = nn.Linear(config.features + more, d)
        self.start = nn.Parameter(torch.randn(d) * d**-0.5)
        self.end = nn.Parameter(torch.randn(d) * d**-0.5)

    def forward(
        self, seen: View, plan: Float[Tensor, "batch node plan"] | None = None
    ) -> Float[Tensor, "batch node d"]:
        """Returns h^0, with what a plan has told of each node."""
        s = seen.s
        if self.relative:
            s = torch.cat([s, relative_features(seen, self.lengths)], dim=-1)
        if self.neighbors:
            s = torch.cat([s, neighbor_features(seen, self.amounts)], dim=-1)
        if plan is not None:
            s = torch.cat([s, plan], dim=-1)
        middle = self.start.new_zeros(s.shape[1] - 2, self.start.shape[0])
        return self.linear(s) + torch.cat([self.start[None], middle, self.end[None]])


def run(
    blocks: Sequence[Block],
    h: Float[Tensor, "batch node d"],
    seen: View,
    geometry: bool,
) -> Float[Tensor, "batch node d"]:
    """Applies blocks in their own precision, whatever that of the input."""
    dtype, where = h.dtype, squares(seen.xy) if geometry else None
    h = h.to(blocks[0].qkv.weight.dtype)
    for block in blocks:
        h = block(h, where, seen.mask)
    return h.to(dtype)


class BaseEncoder(nn.Module):
    """E: embeds a state from scratch."""

    def __init__(self, config: PolicyConfig) -> None:
        """Builds the encoder."""
        super().__init__()
        size = config.base
        self.geometry = config.geometry
        self.init = InitEmbedding(config, size.d)
        self.blocks = nn.ModuleList(
            Block(size, config.geometry) for _ in range(size.layers)
        )
        # Blocks in use: a training may begin with some, the others are the identity.
        self.depth = size.layers

    def forward(
        self, seen: View, plan: Float[Tensor, "batch node plan"] | None = None
    ) -> Float[Tensor, "batch node d"]:
        """Returns h_t = E(s_t)."""
        blocks = [*self.blocks][: self.depth]
        return run(blocks, self.init(seen, plan), seen, self.geometry)


class RecurrentEncoder(nn.Module):
    """U: updates the embeddings of the previous state (figure 1)."""

    def __init__(self, config: PolicyConfig, size: EncoderConfig) -> None:
        """Builds the encoder."""
        super().__init__()
        d_e = config.base.d
        self.geometry = config.geometry
        self.init = InitEmbedding(config, size.d)
        self.norm = nn.Parameter(torch.ones(d_e))
        self.merge = nn.Linear(d_e + size.d, size.d)
        self.blocks = nn.ModuleList(
            Block(size, config.geometry) for _ in range(size.layers)
        )
        self.out = nn.Linear(size.d, d_e)

    def forward(
        self,
        aligned: Float[Tensor, "batch node d_e"],
        seen: View,
        plan: Float[Tensor, "batch node plan"] | None = None,
    ) -> Float[Tensor, "batch node d_e"]:
        """Returns h_t = U(h~_t, s_t): equations 1 and 2, blocks, projection."""
        h0 = self.init(seen, plan)
        previous = rms_normalized(aligned) * self.norm
        h = F.relu(self.merge(torch.cat([previous, h0], dim=-1))) + h0
        return self.out(run([*self.blocks], h, seen, self.geometry))


LINK_SIZE = 64
"""Dimensions in which the links between nodes are scored."""

PRECISIONS = ("auto", "float32", "bfloat16")


def fast_bfloat16(like: Tensor) -> bool:
    """Returns whether the tensor's device multiplies bfloat16 matrices in hardware."""
    if like.is_cuda:
        return torch.cuda.is_bf16_supported(including_emulation=False)
    features = torch.cpu.get_capabilities() if like.device.type == "cpu" else {}
    return bool(features.get("amx_bf16") or features.get("avx512_bf16"))


def chosen_precision(name: str, like: Tensor) -> torch.dtype:
    """Returns a precision by its name, `auto` for the fastest on a tensor's device."""
    if name not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise ValueError(f"precision must be one of {known}, got {name!r}")
    if name == "auto":
        name = "bfloat16" if fast_bfloat16(like) else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


class Policy(nn.Module):
    """Encoders and decoder: everything that greedy and beam search ask for."""

    def __init__(self, config: PolicyConfig) -> None:
        """Builds an untrained policy."""
        super().__init__()
        if config.neighbors:
            features.compiled()  # now, and not within somebody's time limit
        if config.trees:
            trees.compiled()
        if config.savings:
            savings.compiled()
        if config.insertions:
            insertions.compiled()
        self.config = config
        self.name = "untrained"
        self.base = BaseEncoder(config)
        self.recurrent = (
            RecurrentEncoder(config, config.recurrent) if config.recurrent else None
        )
        self.decoder = nn.Linear(config.base.d, config.choices)
        self.links = nn.Linear(config.base.d, 2 * LINK_SIZE) if config.links else None

    def cast(self, precision: str) -> Self:
        """Sets the precision of the blocks, where almost all of the time is spent.

        Embedding, squared distances, decoder and softmax stay in float32: eight bits
        of mantissa would merge neighbouring nodes.
        """
        dtype = chosen_precision(precision, self.decoder.weight)
        for block in self._blocks():
            block.to(dtype)
        return self

    def mix(self, precision: str) -> Self:
        """Sets the precision of the blocks' matrix products alone, for training.

        Weights, residual sums and norms keep theirs: small changes add up in them.
        `auto` takes bfloat16 also where blocks are compiled.
        """
        dtype = chosen_precision(precision, self.decoder.weight)
        for block in self._blocks():
            weight, own = block.qkv.weight, dtype
            if precision == "auto" and self.config.geometry and block.compiles(weight):
                own = torch.bfloat16
            block.products = None if own == weight.dtype else own
        return self

    def _blocks(self) -> Iterator[Block]:
        """Yields the blocks of all encoders."""
        return (module for module in self.modules() if isinstance(module, Block))

    def visible(self, state: State) -> State:
        """Returns a state without what this policy does not look at."""
        return state.trimmed() if self.config.reach else state

    def encode(self, state: State) -> Float[Tensor, "batch node known"]:
        """Returns E(s_t); behind it stands what a plan hands on, see `_planned`."""
        seen = view(state, self.config)
        plan, handed_on = self._planned(seen, None)
        return _with(handed_on, self.base(seen, plan))

    def update(
        self, h: Float[Tensor, "batch previous known"], state: State
    ) -> Float[Tensor, "batch node known"]:
        """Returns U(h_{t-1}, s_t), with h realigned by `state.origin`."""
        if self.recurrent is None:
            raise ValueError("this policy has no recurrent encoder: use k = 1")
        gone = h.shape[1] - state.node.shape[1]
        if gone < 1 or (gone > 1 and not self.config.reach):
            raise ValueError(
                f"embeddings of {h.shape[1]} nodes cannot be those before a state "
                f"of {state.node.shape[1]}"
            )
        seen, aligned = view(state, self.config), align(h, state.origin)
        before = aligned[..., -1] if self.config.hands_on else None
        plan, handed_on = self._planned(seen, before)
        return _with(handed_on, self.recurrent(self.embedding(aligned), seen, plan))

    def _planned(
        self, seen: View, before: Float[Tensor, "batch node"] | None
    ) -> tuple[
        Float[Tensor, "batch node plan"] | None, Float[Tensor, "batch node"] | None
    ]:
        """Returns what classical methods say about a state, and what they hand on.

        The next state begins with it: prices of trees, in units that all states share,
        or places in a plan by insertions.
        """
        if self.config.trees:
            unit = seen.scale[..., 0]
            told, price = tree_features(
                seen.xy, None if before is None else before / unit
            )
            return told, price * unit
        if self.config.insertions:
            return insertion_features(seen, before)
        return (savings_features(seen) if self.config.savings else None), None

    def embedding(
        self, h: Float[Tensor, "batch node known"]
    ) -> Float[Tensor, "batch node d"]:
        """Returns what encoders have said, without what a plan hands on."""
        return h[..., :-1] if self.config.hands_on else h

    def score(
        self, h: Float[Tensor, "batch node known"], state: State
    ) -> Float[Tensor, "batch action"]:
        """Returns the log-probability of each action, -inf where infeasible."""
        logits = self.decoder(self.embedding(h)).float().flatten(1)
        return logits.masked_fill(~state.feasible(), -torch.inf).log_softmax(dim=-1)


def _with(
    handed_on: Float[Tensor, "batch node"] | None, h: Float[Tensor, "batch node d"]
) -> Float[Tensor, "batch node known"]:
    """Returns embeddings with what a plan hands on behind them."""
    return h if handed_on is None else torch.cat([h, handed_on[..., None]], dim=-1)


def link_scores(
    policy: Policy, h: Float[Tensor, "batch node known"]
) -> Float[Tensor, "batch node node"]:
    """Returns the log-probability that node j follows node i on the path.

    A node that is not on the path follows itself.
    """
    if policy.links is None:
        raise ValueError("this policy does not predict links")
    before, after = policy.links(policy.embedding(h)).chunk(2, dim=-1)
    return (before @ after.mT * LINK_SIZE**-0.5).log_softmax(dim=-1)


def align(
    h: Float[Tensor, "batch previous d"], origin: Tensor
) -> Float[Tensor, "batch node d"]:
    """Reorders embeddings: h~_t holds at i what h_{t-1} held at `origin[i]`."""
    batch, previous, d = h.shape
    row = torch.arange(batch, device=h.device)[:, None] * previous
    return h.reshape(-1, d)[row + origin]
