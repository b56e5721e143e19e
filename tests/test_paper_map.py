"""docs/paper.md promises where things are; every promise is kept."""

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "paper.md"
NAMES = sorted(set(re.findall(r"`(renco(?:\.\w+)+)`", PAGE.read_text("utf-8"))))


def resolve(name: str) -> Any:
    """Returns the object of a dotted name; for a field, its declaration."""
    words = name.split(".")
    for cut in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:cut]))
        except ModuleNotFoundError:
            continue
        for word in words[cut:]:
            fields = {}
            if dataclasses.is_dataclass(found):
                fields = {field.name: field for field in dataclasses.fields(found)}
            found = fields[word] if word in fields else getattr(found, word)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_map_exists(name: str) -> None:
    """Modules, classes, functions, constants and fields."""
    assert resolve(name) is not None


def test_the_map_covers_the_algorithms_and_equations() -> None:
    """All that the paper numbers is on the page."""
    text = PAGE.read_text("utf-8")
    for item in (*(f"Algorithm {i}" for i in range(1, 6)), "equation 1", "equation 2"):
        assert item in text
    assert len(NAMES) > 30


def test_a_missing_name_is_noticed() -> None:
    """The test above can fail."""
    with pytest.raises(AttributeError):
        resolve("renco.model.Policy.encodes")
