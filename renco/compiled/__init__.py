"""Parts in C, compiled on first use, for CPUs.

Each has its twin in PyTorch, which is taken on a GPU and where there is no C compiler,
to the same result but for rounding.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC")


class CompileError(RuntimeError):
    """The compiler is there but did not do it; the message is its own."""


@cache
def load(name: str, *flags: str) -> ctypes.CDLL | None:
    """Returns the functions of a C file; None where they cannot be had.

    Args:
        name: Of the file.
        flags: For the compiler, beside those that all files have.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    try:
        return ctypes.CDLL(str(_built(compiler, HERE / f"{name}.c", flags)))
    except (RuntimeError, OSError) as error:
        warnings.warn(f"going on without {name}.c: {error}", stacklevel=2)
        return None


def _built(compiler: str, source: Path, flags: Sequence[str]) -> Path:
    """Returns the library made of a C file, compiled unless it is there already.

    Raises:
        CompileError: The compiler failed.
        OSError: There is no room for it.
    """
    # A home may be shared by several kinds of processors.
    kind = repr(sorted(torch.cpu.get_capabilities().items()))
    told = "\n".join([compiler, *FLAGS, *flags, kind]).encode() + b"".join(
        path.read_bytes() for path in [source, *sorted(HERE.glob("*.h"))]
    )
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "renco"
    found = home / f"{source.stem}-{hashlib.sha256(told).hexdigest()[:16]}.so"
    if found.exists():
        return found
    home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home) as folder:
        made = Path(folder) / found.name
        call = [compiler, *FLAGS, *flags, str(source), "-o", str(made), "-lm"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"{' '.join(call)}: {done.stderr.strip()}")
        made.replace(found)  # whole or absent, also where two processes compile at once
    return found


Argument = Tensor | Sequence[Tensor | int] | int | None


def call(function: Callable[..., object], *arguments: Argument) -> None:
    """Calls a function of a library.

    Args:
        function: Of C.
        arguments: Arrays, structures of arrays and numbers, or single numbers.
    """
    function(*map(_given, arguments))


def _given(argument: Argument) -> Any:
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    words = [a if isinstance(a, int) else a.data_ptr() for a in argument]
    return (ctypes.c_long * len(words))(*words)
