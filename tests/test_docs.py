"""The code in README and docs runs: each page from top to bottom, in an empty folder.

`python` blocks of a page share their names; `bash` blocks run in a shell that stops at
the first error. A comment `<!-- no-test: reason -->` above a block exempts it.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from renco.checkpoints import read_config, shipped
from renco.problems import PROBLEMS

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
LANGUAGES = ("python", "bash")
NEEDS_WEIGHTS = {"README.md"}
BLOCK = re.compile(
    r"(?P<exempt><!-- no-test: [^>]+ -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Code:
    """A block of code, and the line of the page where it begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Code]:
    """Returns the blocks of a page that are to be run."""
    content = page.read_text("utf-8")
    found = []
    for match in BLOCK.finditer(content):
        if match["language"] in LANGUAGES and not match["exempt"]:
            line = content[: match.start("code")].count("\n")
            found.append(Code(match["language"], match["code"], line))
    return found


def served() -> set[str]:
    """Returns the problems that shipped models can solve."""
    return {read_config(name)["policy"]["problem"] for name in shipped()}


def prepare(folder: Path) -> dict[str, str]:
    """Lets a folder look like the repository, and returns the environment for it."""
    commands = folder / ".bin"
    commands.mkdir()
    for name, arguments in (("python", ""), ("renco", " -m renco")):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        command.chmod(0o755)
    (folder / "renco").mkdir()
    (folder / "renco" / "instances").symlink_to(ROOT / "renco" / "instances")
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_shell(code: Code, environment: dict[str, str]) -> None:
    """Runs a block of shell commands and fails with what they wrote."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code.text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"line {code.line}: {done.stderr[-2000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unchecked: None
) -> None:
    """Top to bottom, as a reader would."""
    todo = blocks(page)
    if not todo:
        pytest.skip("no code")
    if page.name in NEEDS_WEIGHTS and (missing := PROBLEMS.keys() - served()):
        pytest.skip(f"no shipped model for {', '.join(sorted(missing))}")
    monkeypatch.chdir(tmp_path)
    environment = prepare(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in todo:
        if code.language == "bash":
            run_shell(code, environment)
        else:
            # Blank lines above: errors then show the line of the page.
            source = "\n" * code.line + code.text
            exec(compile(source, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_name_their_language(page: Path) -> None:
    """A block that is not run by mistake would be worse than none."""
    known = {"python", "bash", "text", "json", "toml", "bibtex"}
    for match in BLOCK.finditer(page.read_text("utf-8")):
        assert match["language"] in known, match["code"][:60]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """Relative links and pictures exist."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_the_file_tree_of_the_readme_is_complete() -> None:
    """Every module of the package has its line, and every line its file."""
    tree = (ROOT / "README.md").read_text("utf-8")
    tree = tree[tree.index("## Files") :]
    for path in sorted((ROOT / "renco").glob("*")):
        if path.suffix == ".py" and path.name not in ("__init__.py", "__main__.py"):
            assert f"  {path.name} " in tree, f"{path.name} is not in the README"
    for name in re.findall(r"^  (\w+\.py) ", tree, re.MULTILINE):
        assert (ROOT / "renco" / name).exists(), f"{name} is in the README only"
