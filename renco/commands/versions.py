"""`renco versions`: what a bug report should contain."""

import os
import platform
from importlib import metadata
from typing import Annotated, Any

import typer

from renco.commands.console import write_json_to, write_text

PACKAGES = (
    *("torch", "numpy", "safetensors", "jaxtyping", "typer", "rich", "matplotlib"),
    *("fast-tsp", "hygese", "pyvrp", "ortools", "elkai", "ray"),
)


def versions(
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON instead.")
    ] = None,
) -> None:
    """Print versions, processor features, device, threads and weights with hashes.

    `renco versions`, and paste it into the report.
    """
    found = describe()
    if json is not None:
        write_json_to(json, found)
        return
    lines = []
    for key, value in found.items():
        if isinstance(value, dict):
            lines += [
                f"{key}:",
                *(f"  {name:<12} {item}" for name, item in value.items()),
            ]
        else:
            lines.append(f"{key:<14} {value}")
    write_text("\n".join(lines))


def describe() -> dict[str, Any]:
    """Returns everything about this installation and machine that matters."""
    import torch

    from renco import __version__, features, insertions, savings, trees
    from renco.checkpoints import read_config, shipped
    from renco.compiled import block
    from renco.evaluate import processor

    cuda = torch.cuda.is_available()
    abilities = torch.cpu.get_capabilities()
    parts = {
        "neighbors": features.compiled(),
        "trees": trees.compiled(),
        "savings": savings.compiled(),
        "insertions": insertions.compiled(),
        "block": block.functions(),
    }
    return {
        "renco": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "features": " ".join(sorted(k for k, v in abilities.items() if v is True)),
        "compiled": " ".join(k for k, v in parts.items() if v) or "nothing",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "packages": {name: _version(name) for name in PACKAGES},
        "weights": {name: str(read_config(name).get("sha256")) for name in shipped()},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(versions)
