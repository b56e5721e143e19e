"""The grammar shared by TSPLIB, VRPLIB and OPLIB: `KEY : VALUE` lines and sections.

Nothing here knows what a key means. Spelling is forgiving where the libraries are
inconsistent (blanks, tabs, upper and lower case, a missing colon or `EOF`, sections in
any order, data on the line of the section's name) and strict elsewhere.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from renco.formats.files import FormatError, failure, numbered_lines, shown

LARGEST = 1e15
"""Beyond it float64 no longer holds every integer, and costs lose their meaning."""

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*:\s*(.*)")
_SECTION = re.compile(r"([A-Z]\w*_SECTION)\s*(?::\s*)?((?:[-+.\d].*)?)", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Value:
    """What follows a key, and the line it stands on."""

    text: str
    line: int


@dataclass(frozen=True)
class Section:
    """The lines under a section's name, not yet split into values."""

    name: str
    line: int
    rows: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """A file of the TSPLIB family, in its parts."""

    source: str
    keys: dict[str, Value]
    sections: dict[str, Section]
    comment: str

    def error(self, what: str, line: int | None = None) -> FormatError:
        """Returns the error to raise for something in this file."""
        return failure(self.source, what, line)

    def required(self, key: str) -> Value:
        """Returns the value of a key that the file must have."""
        if key not in self.keys:
            raise self.error(f"{key} is missing")
        return self.keys[key]

    def word(self, key: str) -> str:
        """Returns the first word of a value, in capitals.

        The first, because TSPLIB writes things like `TYPE: TSP (M.~Hofmeister)`.
        """
        return self.required(key).text.split()[0].upper()

    def section(self, name: str) -> Section:
        """Returns a section that the file must have."""
        if name not in self.sections:
            raise self.error(f"{name} is missing")
        return self.sections[name]

    def integer(self, text: str, line: int, what: str) -> int:
        """Returns a token as a whole number."""
        if not _INTEGER.fullmatch(text):
            raise self.error(f"{what} must be a whole number, got {shown(text)}", line)
        return int(text)

    def number(self, text: str, line: int, what: str) -> float:
        """Returns a token as a finite number of sensible size."""
        if not _NUMBER.fullmatch(text):
            hint = " (a decimal comma?)" if "," in text else ""
            raise self.error(f"{what} must be a number, got {shown(text)}{hint}", line)
        value = float(text)
        if not math.isfinite(value) or abs(value) > LARGEST:
            limit = f"at most {LARGEST:g} in size"
            raise self.error(f"{what} must be {limit}, got {shown(text)}", line)
        return value

    def positive(self, key: str) -> float:
        """Returns the value of a key that must be a positive number."""
        value = self.required(key)
        number = self.number(value.text, value.line, key)
        if number <= 0:
            raise self.error(f"{key} must be positive, got {value.text}", value.line)
        return number


def parse(text: str, source: str) -> Document:
    """Splits a file of the TSPLIB family into keys and sections.

    Raises:
        FormatError: A line is neither, or a key or section comes twice.
    """
    document = Document(source, {}, {}, "")
    comments: list[str] = []
    current: Section | None = None
    for line, content in _until_eof(numbered_lines(text, source)):
        if content[0].isalpha():
            current = _heading(document, comments, line, content, current)
        elif current is not None:
            current.rows.append((line, content))
        else:
            what = f"expected KEY : VALUE or a section, got {shown(content)}"
            raise document.error(what, line)
    return Document(source, document.keys, document.sections, " ".join(comments))


def _until_eof(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for line, content in lines:
        if content.upper() == "EOF":
            return
        yield line, content


def _heading(
    document: Document,
    comments: list[str],
    line: int,
    content: str,
    current: Section | None,
) -> Section | None:
    """Files a key, or opens a section and returns it."""
    if found := _SECTION.fullmatch(content):
        name = found[1].upper()
        if name in document.sections:
            first = document.sections[name].line
            raise document.error(f"{name} comes again, first on line {first}", line)
        section = Section(name, line, [(line, found[2])] if found[2] else [])
        document.sections[name] = section
        return section
    if found := _KEY.fullmatch(content):
        key, value = found[1].upper(), found[2].strip()
    elif current is not None:
        what = f"expected a row of {current.name} or a key, got {shown(content)}"
        raise document.error(what, line)
    else:  # `DIMENSION 52`: no colon
        word, *rest = content.split(maxsplit=1)
        key, value = word.upper(), " ".join(rest)
        if not re.fullmatch(r"[A-Z_]+", key) or not value:
            what = f"expected KEY : VALUE or a section, got {shown(content)}"
            raise document.error(what, line)
    if key.endswith("_SECTION"):
        raise document.error(f"{key} is followed by {shown(value)}, not data", line)
    if key == "COMMENT":
        comments.append(value)
    elif key in document.keys:
        first = document.keys[key].line
        raise document.error(f"{key} comes again, first on line {first}", line)
    elif not value and key != "NAME":
        raise document.error(f"{key} has no value", line)
    else:
        document.keys[key] = Value(value, line)
    return None
