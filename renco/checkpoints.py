"""Policies on disk: a folder with `model.safetensors` and `config.json`.

Nothing here can execute code from a file, and a damaged file never loads silently.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from renco.files import sha256, write_atomic, write_json
from renco.model import Policy, PolicyConfig

SCHEMA = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
SHIPPED = Path(__file__).parent / "weights"
LARGEST_FILE = 500_000_000  # bytes; a 20 MB policy is large


class CheckpointError(ValueError):
    """A model cannot be loaded; the message names the file and what is wrong."""


def save_policy(policy: Policy, folder: Path | str, **info: Any) -> None:
    """Writes a policy; `info` (training settings, hashes, gaps) goes to the config.

    Each file is replaced atomically, the weights first; a reader that meets new
    weights beside an old config finds that their hash does not fit.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.detach().contiguous() for name, t in policy.state_dict().items()}
    data = save_tensors(tensors)
    write_atomic(folder / WEIGHTS, data)
    config = {
        "schema": SCHEMA,
        "name": folder.name,
        "policy": asdict(policy.config),
        "parameters": sum(t.numel() for t in policy.parameters()),
        "sha256": sha256(folder / WEIGHTS),
        **info,
    }
    write_json(folder / CONFIG, config)


def shipped() -> list[str]:
    """Returns the names of the models inside the package."""
    if not SHIPPED.is_dir():
        return []
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def locate(name: str | Path) -> Path:
    """Returns the folder of a shipped model's name or of a path."""
    if isinstance(name, str) and name in shipped():
        return SHIPPED / name
    folder = Path(name)
    if (folder / CONFIG).is_file():
        return folder
    known = ", ".join(shipped()) or "none"
    raise CheckpointError(
        f"{str(name)!r} is neither a folder with {CONFIG} nor a shipped model "
        f"(shipped: {known})"
    )


def read_config(name: str | Path) -> dict[str, Any]:
    """Returns the contents of a model's `config.json`, checked for its schema."""
    path = locate(name) / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(config, dict) or config.get("schema") != SCHEMA:
        found = config.get("schema") if isinstance(config, dict) else config
        raise CheckpointError(f"{path}: schema {found!r}, this version reads {SCHEMA}")
    return config


def load(
    name: str | Path,
    *,
    device: torch.device | str = "cpu",
    precision: str = "float32",
) -> Policy:
    """Loads a policy by the name of a shipped model or from a folder.

    Args:
        name: Shipped name or path.
        device: Where to put it.
        precision: `"float32"`, `"bfloat16"`, or `"auto"`: bfloat16 where it is fast.

    Raises:
        CheckpointError: The folder is missing, damaged, or not what it says.
    """
    config = read_config(name)
    folder = locate(name)
    try:
        policy = Policy(PolicyConfig.from_dict(config["policy"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / CONFIG}: bad policy: {error}") from None
    tensors = _read_tensors(folder / WEIGHTS, config.get("sha256"))
    _check_tensors(folder / WEIGHTS, tensors, policy.state_dict())
    policy.load_state_dict(tensors)
    policy.name = str(config.get("name", folder.name))
    return policy.to(device).cast(precision).eval().requires_grad_(False)


def _read_tensors(path: Path, digest: str | None) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"{path}: missing")
    if path.stat().st_size > LARGEST_FILE:
        raise CheckpointError(f"{path}: {path.stat().st_size} bytes is too large")
    found = sha256(path)
    if found != digest:
        raise CheckpointError(f"{path}: sha256 is {found}, config.json says {digest}")
    try:
        return load_tensors(path.read_bytes())
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged: {error}") from None


def _check_tensors(
    path: Path, tensors: dict[str, Tensor], expected: dict[str, Tensor]
) -> None:
    for name in expected.keys() ^ tensors.keys():
        fault = "missing" if name in expected else "unknown"
        raise CheckpointError(f"{path}: tensor {name} is {fault}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: tensor {name} has shape {tuple(tensor.shape)}, "
                f"the config asks for {tuple(expected[name].shape)}"
            )
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"{path}: tensor {name} has values that are not finite"
            )
