"""Costs to compare with: one number, or a file of names and costs."""

import json
import math
import re
from pathlib import Path
from typing import Any

from renco.commands.console import usage

_LINE = re.compile(r"(?P<name>.+?)[\s:,;=]+(?P<cost>[-+0-9.eE]+)")


def read_references(text: str) -> dict[str, float]:
    """Returns costs by the names of instances; under "" one for all.

    A file is JSON, `{"berlin52": 7542}`, or has a line per instance, `berlin52 7542`,
    with blanks, a colon or a comma between. Lines that begin with # are comments.

    Raises:
        typer.BadParameter: It is neither a number nor such a file.
    """
    try:
        return {"": _cost(text)}
    except ValueError:
        pass
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = f"{text!r} is neither a number nor a file"
        raise usage(what, "--reference") from None
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{text}: cannot be read: {error}", "--reference") from None
    return _json(content, path) if path.suffix == ".json" else _lines(content, path)


def _json(content: str, path: Path) -> dict[str, float]:
    try:
        values = json.loads(content)
        return {str(name): _cost(cost) for name, cost in values.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        form = '{"name": cost, ...}'
        raise usage(f"{path}: expected {form}", "--reference") from None


def _lines(content: str, path: Path) -> dict[str, float]:
    found = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        try:
            if match is None:
                raise ValueError
            found[match["name"]] = _cost(match["cost"])
        except ValueError:
            what = f"{path}:{number}: expected 'name cost', got {line.strip()[:60]!r}"
            raise usage(what, "--reference") from None
    return found


def _cost(value: Any) -> float:
    cost = float(value)
    if not math.isfinite(cost):
        raise ValueError(f"cost must be finite, got {cost}")
    return cost
