"""Text out of files: bounded and decoded; and the readers' one error."""

import re
from pathlib import Path

MAX_BYTES = 200 * 2**20
"""Largest file that is read; a bigger one is refused before it fills the memory."""

MAX_LINE = 16 * 2**20
"""Longest line that is split into values."""

# Control characters that no text file contains; tab, newlines and form feeds may.
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_NEWLINE = re.compile(r"\r\n|\r|\n")


class FormatError(ValueError):
    """A file is not what it should be; one line, `file:line: what, with the value`."""


def failure(source: str, what: str, line: int | None = None) -> FormatError:
    """Returns the error to raise, its message on one line whatever the input."""
    where = source if line is None else f"{source}:{line}"
    return FormatError(" ".join(f"{where}: {what}".split()))


def shown(value: object) -> str:
    """Returns a value as an error message shows it: quoted, escaped, cut short."""
    if isinstance(value, int) and abs(value) > 10**100:  # may be too long to print
        return "a number of more than 100 digits"
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_text(path: str | Path) -> str:
    """Returns the contents of a text file.

    UTF-8 with or without a byte order mark; Latin-1 where it is not UTF-8, because
    old files have accents in their comments.

    Raises:
        FormatError: The file is missing, a directory, empty, too big or not text.
    """
    source = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise failure(source, "is a directory, not a file") from None
    except FileNotFoundError:
        raise failure(source, "no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise failure(source, f"cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise failure(source, f"is larger than {MAX_BYTES // 2**20} MB")
    return decoded(data, source)


def decoded(data: bytes, source: str) -> str:
    """Returns bytes as text, or raises `FormatError` where they are none."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    text = text.rstrip("\x1a")  # how DOS editors end a file
    if found := _BINARY.search(text):
        line = len(_NEWLINE.findall(text[: found.start()])) + 1
        what = f"is not a text file: contains byte {ord(found[0]):#04x}"
        raise failure(source, what, line)
    if not text.strip():
        raise failure(source, "is empty")
    return text


def numbered_lines(text: str, source: str) -> list[tuple[int, str]]:
    """Returns the stripped lines that are not blank, with their numbers from 1."""
    lines = []
    for number, line in enumerate(_NEWLINE.split(text), start=1):
        if len(line) > MAX_LINE:
            what = f"the line has {len(line)} characters, at most {MAX_LINE} are read"
            raise failure(source, what, number)
        if stripped := line.strip():
            lines.append((number, stripped))
    return lines
