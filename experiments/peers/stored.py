"""How models of other methods are kept: weights, and JSON that says what they are."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from renco.files import sha256, write_atomic, write_json


def write(
    model: nn.Module, weights: Path, settings: Path, about: dict[str, Any]
) -> None:
    """Writes the weights, and what is known about them with their hash."""
    weights.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.detach().contiguous() for name, t in model.state_dict().items()}
    write_atomic(weights, save_tensors(tensors))
    write_json(settings, about | {"sha256": sha256(weights)})


def read_about(settings: Path) -> dict[str, Any]:
    """Returns what is known about a model."""
    return dict(json.loads(settings.read_text(encoding="utf-8")))


def read_weights(weights: Path, about: dict[str, Any]) -> dict[str, Tensor]:
    """Returns the weights.

    Raises:
        ValueError: They are not those of the settings.
    """
    if sha256(weights) != about["sha256"]:
        raise ValueError(f"{weights}: sha256 is not {about['sha256']}")
    return dict(load_tensors(weights.read_bytes()))
