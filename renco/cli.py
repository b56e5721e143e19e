"""The command `renco`: parses, dispatches, and turns errors into exit codes.

0: done. 1: some input failed, the others were still solved. 2: wrong usage. Errors
are one line on standard error; set `RENCO_TRACEBACK=1` to see where they come from.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from renco import __version__
from renco.commands import (
    check,
    correct,
    evaluate,
    generate,
    models,
    plot,
    solve,
    train,
    versions,
    weigh,
)
from renco.commands.console import complain, say, write_text

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Typer's, whether it brings its own click or uses the installed one."""

EXPECTED = (OSError, ValueError, ImportError, RuntimeError, ExceptionGroup)
"""What commands raise with a message for users; all else is a fault of ours."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        write_text(f"renco {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Routing with recurrent state encoders: solve TSP, CVRP and OP instances.

    Try it: `renco solve berlin52.tsp`

    All at once: `renco solve *.vrp --time-limit 30 --sol-dir out --plot tour.png`

    In a pipeline: `cat instance.json | renco solve - --json -`
    """


COMMANDS = (
    *(solve, generate, train, correct, weigh, evaluate),
    *(models, check, plot, versions),
)
for command in COMMANDS:
    command.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given or ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(arguments: list[str]) -> int:
    try:
        code = app(args=arguments, prog_name="renco", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except UsageError as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "renco"
        message = getattr(error, "format_message", error.__str__)()
        say(f"{path}: {message}{_value(error, arguments)} (see {path} --help)")
        return 2
    except typer.Exit as error:
        return error.exit_code
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return 1
    except EXPECTED as error:
        _trace()
        complain(error)
        return 1
    except Exception as error:
        _trace()
        complain(f"internal error, please report: {type(error).__name__}: {error}")
        return 1


def _value(error: Exception, arguments: list[str]) -> str:
    """Returns what was given for the option at fault, which typer does not say."""
    names = getattr(getattr(error, "param", None), "opts", [])
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            given = value if equals else "".join(arguments[place + 1 : place + 2])
            return f", got {given!r}"
    return ""


def _trace() -> None:
    if os.environ.get("RENCO_TRACEBACK"):
        traceback.print_exc()
