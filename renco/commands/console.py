"""What all commands share: plain words in, tables and errors out."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer


def say(text: str) -> None:
    """Writes a line for people to standard error, whatever is in it on one line."""
    sys.stderr.write(" ".join(text.split()) + "\n")
    sys.stderr.flush()


def complain(error: BaseException | str) -> None:
    """Writes one line about something that went wrong."""
    if isinstance(error, OSError) and error.filename is not None:
        error = f"{error.filename}: {error.strerror}"
    if isinstance(error, BaseExceptionGroup):
        error = "; ".join(map(str, error.exceptions))
    say(f"renco: {error}")


def write_text(text: str) -> None:
    """Writes results to standard output."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def write_json_to(target: str, value: Any) -> None:
    """Writes JSON to a file, or to standard output if the target is `-`."""
    from renco.files import write_json

    if target == "-":
        write_text(json.dumps(value, allow_nan=False))
    else:
        write_json(Path(target), value)


def write_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1
) -> None:
    """Writes an aligned table; the first `left` columns are text, the rest numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right")
    for row in rows:
        table.add_row(*row)
    # A pipe or a file has no width: nothing may be cut off there.
    width = None if sys.stdout.isatty() else 10_000
    Console(file=sys.stdout, width=width, highlight=False, markup=False).print(table)


def usage(message: str, option: str | None = None) -> typer.BadParameter:
    """Returns the error for wrong usage: one line, exit code 2."""
    return typer.BadParameter(message, param_hint=f"'{option}'" if option else None)


def parsed(option: str, parse: Callable[[str], Any], text: str, form: str) -> Any:
    """Returns the value of an option, or raises a usage error that states the form."""
    try:
        return parse(text)
    except ValueError:
        raise usage(f"expected {form}, got {text!r}", option) from None


Near = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Look at the N nearest nodes, 0 for all; by default beyond 300 nodes.",
    ),
]
"""The option of all commands that construct solutions."""


def finite(option: str, value: float | None, *, positive: bool = False) -> None:
    """Raises a usage error unless a number of seconds makes sense."""
    if value is None:
        return
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        rule = "positive and finite" if positive else "zero or more, and finite"
        raise usage(f"must be {rule}, got {value:g}", option)


def check_writable(option: str, target: str | Path | None, *inputs: str) -> None:
    """Raises a usage error where a result could not be written in the end.

    Better to find out before ten minutes of search than after them. An input is
    never overwritten.
    """
    if target is None or str(target) == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise usage(f"{str(path)!r} is a directory", option)
    if not path.parent.is_dir():
        raise usage(f"there is no folder {str(path.parent)!r}", option)
    if path.exists() and any(_same(path, other) for other in inputs):
        raise usage(f"{str(path)!r} is an input and would be overwritten", option)


def _same(path: Path, other: str) -> bool:
    return other != "-" and Path(other).exists() and path.samefile(other)
