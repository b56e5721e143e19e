"""The package read as text: imports go one way, and dangerous calls are absent."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import renco

ROOT = Path(renco.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

ALLOWED = {
    "renco.state": set(),
    "renco.metrics": set(),
    "renco.stop": set(),
    "renco.local": set(),
    "renco.tours": {"renco.local"},
    "renco.fleet": {"renco.local"},
    "renco.outing": {"renco.local"},
    "renco.problems": {"renco.state", "renco.metrics", "renco.problems"},
    "renco.compiled": {"renco.compiled"},
    "renco.features": {"renco.compiled"},
    "renco.trees": {"renco.compiled"},
    "renco.savings": {
        "renco.compiled",
        "renco.features",
        "renco.routes",
        "renco.squeezed",
    },
    "renco.insertions": {"renco.compiled", "renco.features", "renco.squeezed"},
    "renco.model": {
        "renco.state",
        "renco.features",
        "renco.trees",
        "renco.savings",
        "renco.insertions",
        "renco.compiled",
    },
    "renco.sight": {"renco.state"},
    "renco.construct": {"renco.state", "renco.model", "renco.sight"},
    "renco.segments": {
        "renco.local",
        "renco.state",
        "renco.metrics",
        "renco.problems",
        "renco.segments",
        "renco.fleet",
        "renco.outing",
        "renco.tours",
    },
    "renco.experts": {
        "renco.local",
        "renco.metrics",
        "renco.problems",
        "renco.experts",
    },
    "renco.formats": {
        "renco.files",
        "renco.metrics",
        "renco.problems",
        "renco.formats",
    },
}
"""What the lower parts may import, wherever in a file. A reader goes up, never down."""

TOP = ("renco.cli", "renco.commands", "renco.server")
"""What nothing else may import."""


def module_name(file: Path) -> str:
    """Returns the dotted name of a file of the package."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(file) for file in FILES}


def within(name: str, part: str) -> bool:
    """Returns whether a module is a part or lies inside it."""
    return name == part or name.startswith(f"{part}.")


def imported(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Yields the modules of the package that a piece of code imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in names:
                    yield inner
                elif node.module in names:
                    yield node.module


def at_load_time(tree: ast.Module) -> ast.Module:
    """Drops what an import does not run: functions and type-checking blocks."""

    class Prune(ast.NodeTransformer):
        def drop(self, node: ast.AST) -> None:
            return None

        visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = drop

        def visit_If(self, node: ast.If) -> ast.AST | None:
            if "TYPE_CHECKING" in ast.dump(node.test):
                return None
            return self.generic_visit(node)

    return Prune().visit(tree)


def cycle(sources: dict[str, str]) -> list[str] | None:
    """Returns a cycle of imports at load time, if there is one."""
    graph = {
        name: set(imported(at_load_time(ast.parse(source)), set(sources))) - {name}
        for name, source in sources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return None


def read(file: Path) -> str:
    """Returns the text of a file."""
    return file.read_text(encoding="utf-8")


def test_imports_have_no_cycle() -> None:
    """Modules can be read, and loaded, in one order."""
    assert cycle({module_name(file): read(file) for file in FILES}) is None


def test_cycles_are_noticed() -> None:
    """The search for cycles finds one, but not in functions or for types alone."""
    a = {"p.a": "from p import b", "p.b": "import p.a"}
    assert cycle(a) is not None
    assert cycle(a | {"p.b": "def f():\n    import p.a"}) is None
    assert cycle(a | {"p.b": "if TYPE_CHECKING:\n    import p.a"}) is None


@pytest.mark.parametrize("part", list(ALLOWED))
def test_lower_parts_import_only_what_lies_below(part: str) -> None:
    """State, problems, model and search know nothing of what is built on them."""
    files = [file for file in FILES if within(module_name(file), part)]
    assert files, f"{part} is gone"
    for file in files:
        for name in imported(ast.parse(read(file)), NAMES):
            assert any(within(name, other) for other in ALLOWED[part]), (
                f"{module_name(file)} imports {name}"
            )


def test_nothing_imports_the_command_line() -> None:
    """The library works without its command line and server."""
    for file in FILES:
        name = module_name(file)
        if any(within(name, top) for top in TOP) or name == "renco.__main__":
            continue
        for other in imported(ast.parse(read(file)), NAMES):
            assert not any(within(other, top) for top in TOP), f"{name}: {other}"


# Dangerous calls

PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve"}
PICKLES |= {"marshal"}
CALLS = {
    "eval": "eval",
    "exec": "exec",
    "__import__": "__import__",
    "torch.load": "torch.load",
    "yaml.load": "yaml.load",
    "yaml.unsafe_load": "yaml.unsafe_load",
    "os.system": "os.system",
    "os.popen": "os.popen",
    "numpy.fromregex": "numpy.fromregex",
    "tempfile.mktemp": "tempfile.mktemp",
}


def dotted(node: ast.AST) -> str:
    """Returns the name that a call is made by, as far as it is a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def aliases(tree: ast.Module) -> dict[str, str]:
    """Returns the full names behind `import ... as` and `from ... import`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def dangers(source: str) -> list[str]:
    """Returns what a piece of code does that the package must never do."""
    tree = ast.parse(source)
    known = aliases(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names]
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            found += [m for m in modules if m.split(".")[0] in PICKLES]
        if not isinstance(node, ast.Call):
            continue
        head, _, rest = dotted(node.func).partition(".")
        name = ".".join(filter(None, [known.get(head, head), rest]))
        if name in CALLS:
            found.append(CALLS[name])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            found.append(".cuda()")
        for keyword in node.keywords:
            value = keyword.value
            safe = isinstance(value, ast.Constant) and not value.value
            if keyword.arg in ("allow_pickle", "shell") and not safe:
                found.append(f"{keyword.arg} is not False")
    return found


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_no_dangerous_calls(file: Path) -> None:
    """Nothing unpickles, evaluates text, opens a shell or assumes a GPU."""
    assert dangers(read(file)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import dill as d",
        "from joblib import load",
        "from multiprocessing.x import y\nimport marshal",
        "import torch\ntorch.load('x')",
        "from torch import load\nload('x')",
        "import torch as t\nt.load('x', weights_only=True)",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', allow_pickle=flag)",
        "eval('1')",
        "exec('1')",
        "__import__('os')",
        "import yaml\nyaml.load('x')",
        "from yaml import load\nload('x')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
        "from os import system\nsystem('ls')",
        "x.cuda()",
        "model.to(x).cuda(0)",
    ],
)
def test_dangerous_calls_are_noticed(source: str) -> None:
    """The search for dangerous calls sees through aliases."""
    assert dangers(source)


@pytest.mark.parametrize(
    "source",
    [
        "policy.eval()",
        "make(policy).eval()",
        "import torch\ntorch.cuda.is_available()",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "import numpy as np\nnp.load('x')",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "from renco.checkpoints import load\nload('x')",
        "import json\njson.load(f)",
    ],
)
def test_harmless_calls_are_allowed(source: str) -> None:
    """Methods of the same names are no danger."""
    assert dangers(source) == []
