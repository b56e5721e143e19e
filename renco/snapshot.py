"""A training run on disk: everything that a resumed run needs, in one file.

One file is replaced atomically or not at all; two could disagree after a crash.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from renco.files import write_atomic
from renco.optim import pack_state, unpack_state

if TYPE_CHECKING:
    from renco.training import Run

COUNTERS = ("step", "seconds", "samples", "nodes")


def write_snapshot(path: Path, run: "Run", settings: dict[str, Any]) -> None:
    """Writes parameters, averages, optimizer states and counters."""
    tensors = {f"policy.{n}": p.detach() for n, p in run.policy.named_parameters()}
    tensors |= {f"average.{n}": t for n, t in run.average.values.items()}
    tensors |= pack_state(run.optimizers)
    notes = {name: getattr(run, name) for name in COUNTERS} | {"settings": settings}
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    data = save(contiguous, metadata={"run": json.dumps(notes)})
    write_atomic(path, data)


def read_snapshot(path: Path, run: "Run", settings: dict[str, Any]) -> None:
    """Restores a run in place.

    Raises:
        ValueError: There is no snapshot, it is damaged, or of another run.
    """
    if not path.is_file():
        raise ValueError(f"nothing to resume: {path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {})["run"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
    saved, wanted = notes.pop("settings"), json.loads(json.dumps(settings))
    if saved != wanted:
        raise ValueError(f"{path}: {_difference(saved, wanted)}")
    for name, p in run.policy.named_parameters():
        p.data.copy_(tensors[f"policy.{name}"])
        run.average.values[name] = tensors[f"average.{name}"].to(p.device)
    optimizer = {n: t for n, t in tensors.items() if n.startswith("optimizer.")}
    unpack_state(run.optimizers, optimizer)
    for name in COUNTERS:
        setattr(run, name, notes[name])


def _difference(saved: dict[str, Any], wanted: dict[str, Any], at: str = "") -> str:
    for key in saved.keys() | wanted.keys():
        old, new = saved.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict) and old != new:
            return _difference(old, new, f"{at}{key}.")
        if old != new:
            return f"the run has {at}{key} = {old}, asked for {new}"
    return "the settings differ"
