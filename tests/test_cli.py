"""The command line: exit codes, errors on one line, and what it writes where."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_policy, small

from renco import checkpoints, cli
from renco.checkpoints import save_policy
from renco.commands.limits import Limits
from renco.commands.references import read_references
from renco.commands.watching import Watcher
from renco.data import write_set
from renco.formats import read, read_solution, write
from renco.manifest import Manifest
from renco.problems import CVRP, OP, TSP, Infeasible
from renco.violations import violations

SUFFIXES = {"tsp": ".tsp", "cvrp": ".vrp", "op": ".oplib"}
KEYS = {
    *("instance", "problem", "n", "cost", "routes", "feasible", "metric", "search"),
    *("model", "k", "beam", "seed", "seconds", "iterations", "history"),
}


@dataclass(frozen=True)
class Outcome:
    """What a run of the command line gave."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs `renco` with some arguments, in this process."""

    def call(*arguments: object, stdin: str = "") -> Outcome:
        source = SimpleNamespace(buffer=io.BytesIO(stdin.encode()))
        monkeypatch.setattr(sys, "stdin", source)
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns a folder with a small model for each problem."""
    folder = tmp_path_factory.mktemp("models")
    for name in SUFFIXES:
        save_policy(make_policy(name), folder / f"{name}-tiny")
    return {name: folder / f"{name}-tiny" for name in SUFFIXES}


@pytest.fixture
def tsp(tmp_path: Path) -> Path:
    """Returns an instance file."""
    return instance(tmp_path / "a.tsp")


def instance(path: Path, problem: str = "tsp", seed: int = 0, n: int = 9) -> Path:
    """Writes a small instance named like its file."""
    found = small(problem, batch=1, n=n, seed=seed)
    values = {name: getattr(found, name) for name in found.arrays}
    numbers = range(1, found.coords.shape[1] + 1)
    write(path, type(found)(**values, title=path.stem, numbers=numbers))
    return path


def subprocess_run(*arguments: str, **options: object) -> subprocess.Popen[str]:
    """Starts `renco` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "renco", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


# --- help and usage ---------------------------------------------------------------


def test_version_is_one_line(run: Run) -> None:
    """Name and version on standard output."""
    found = run("--version")
    assert found.code == 0 and found.out.startswith("renco ") and found.err == ""


@pytest.mark.parametrize(
    "command",
    [
        "",
        "solve",
        "generate",
        "train",
        "evaluate",
        "models",
        "check",
        "plot",
        "versions",
    ],
)
def test_help_teaches_by_example(run: Run, command: str) -> None:
    """Every help text shows a command to copy."""
    found = run(*command.split(), "--help")
    assert found.code == 0 and found.err == ""
    assert "`renco " in found.out and "--help" in found.out


def test_no_arguments_show_the_help(run: Run) -> None:
    """Someone who types `renco` learns what it can do."""
    found = run()
    assert found.code == 0 and "solve" in found.out


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_is_quick_and_loads_no_torch(option: str) -> None:
    """Half a second of processor time, in a fresh process."""
    code = (
        "import sys, renco.cli; code = renco.cli.main(sys.argv[1:]);"
        "sys.exit(code or 7 * bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, option], capture_output=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    # Processor time, not the clock: other tests run meanwhile.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam", "0"], "'0'"),
        (["--beam", "wide"], "'wide'"),
        (["--k", "0"], "'0'"),
        (["--n-sub=3"], "'3'"),
        (["--time-limit", "-1"], "-1"),
        (["--time-limit", "nan"], "nan"),
        (["--time-limit", "inf"], "inf"),
        (["--iterations", "-1"], "'-1'"),
        (["--threads", "0"], "'0'"),
        (["--seed", "-3"], "'-3'"),
        (["--search", "magic"], "magic"),
        (["--device", "tpu"], "tpu"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--precision", "float8"], "float8"),
        (["--model", "no-such-model"], "no-such-model"),
        (["--plot", "x.gif"], "x.gif"),
        (["--json", "no/such/folder/x.json"], "no/such/folder"),
        (["--reference", "no-such-file"], "no-such-file"),
        (["--no-such-option"], "--no-such-option"),
        (["--search", "beam", "--start", "x.sol"], "--start"),
        (["--search", "beam", "--n-sub", "50"], "--n-sub"),
        (["b.tsp", "--start", "x.sol"], "--start"),
        (["-", "-"], "once"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    run: Run, tsp: Path, arguments: list[str], message: str
) -> None:
    """The line names the option and the value."""
    found = run("solve", tsp, *arguments)
    assert found.code == 2 and found.out == ""
    assert message in found.err.splitlines()[-1] and "--help" in found.err


@pytest.mark.parametrize(
    "arguments", [["solve"], ["dance"], ["check", "a"], ["train", "base"], ["--foo"]]
)
def test_missing_words_are_wrong_usage(run: Run, arguments: list[str]) -> None:
    """Missing arguments and unknown commands, too."""
    found = run(*arguments)
    assert found.code == 2 and len(found.err.splitlines()) == 1


def test_unexpected_errors_are_one_line(
    run: Run, tsp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours says so, and shows where only when asked."""

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("renco.formats.read", broken)
    found = run("plot", tsp, "--out", tsp.with_suffix(".png"))
    assert found.code == 1
    assert found.err == "renco: internal error, please report: ZeroDivisionError: oh\n"
    monkeypatch.setenv("RENCO_TRACEBACK", "1")
    assert cli.main(["plot", str(tsp), "--out", str(tsp.with_suffix(".png"))]) == 1


# --- solve ------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["greedy", "beam", "lns"])
@pytest.mark.parametrize("problem", SUFFIXES)
def test_solve_prints_a_table(
    run: Run, models: dict[str, Path], tmp_path: Path, problem: str, search: str
) -> None:
    """Instance, problem, size and verdict, for every problem and search."""
    file = instance(tmp_path / f"here{SUFFIXES[problem]}", problem)
    limits = ["--iterations", 1] if search == "lns" else []
    found = run("solve", file, "--model", models[problem], "--search", search, *limits)
    assert found.code == 0
    heading, row, footer = found.out.splitlines()
    assert heading.split() == [
        "instance",
        "problem",
        "n",
        "cost",
        "gap",
        "feasible",
        "seconds",
    ]
    assert row.split()[:3] == ["here", problem, "9"] and "yes" in row
    assert search in footer and "seed 0" in footer


def test_json_follows_the_interface(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """One input gives an object with exactly the documented keys."""
    file = instance(tmp_path / "here.oplib", "op")
    options = ["--model", models["op"], "--iterations", 2, "--seed", 5, "--json", "-"]
    found = run("solve", file, *options)
    value = json.loads(found.out)
    assert set(value) == KEYS | {"prize", "length"}
    assert value["seed"] == 5 and value["iterations"] == 2 and value["feasible"] is True
    assert value["cost"] == -value["prize"] and value["instance"] == "here"
    assert all(len(point) == 2 for point in value["history"])
    problem = read(file)
    ids = [[number - 1 for number in route] for route in value["routes"]]
    assert problem.cost([ids])[0] == value["cost"]


def test_several_inputs_give_a_list(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """In the order of the files, also where one fails."""
    files = [instance(tmp_path / f"{name}.tsp", seed=i) for i, name in enumerate("xyz")]
    files[1].write_text("NAME : y\nTYPE : TSP\nDIMENSION : two\n")
    options = ["--model", models["tsp"], "--search", "greedy", "--json", "-"]
    found = run("solve", *files, *options)
    assert found.code == 1
    assert [value["instance"] for value in json.loads(found.out)] == ["x", "z"]
    assert found.err.count("\n") == 1 and "y.tsp:3" in found.err and "two" in found.err


@pytest.mark.parametrize("name", ["missing.tsp", ".", "bad.tsp"])
def test_unreadable_files_are_named(
    run: Run, models: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Missing, a directory, not text: one line, exit code 1, nothing on stdout."""
    (tmp_path / "bad.tsp").write_bytes(b"\x00\x01")
    found = run("solve", tmp_path / name, "--model", models["tsp"])
    assert found.code == 1 and found.out == ""
    assert str(tmp_path / name) in found.err and found.err.count("\n") == 1


def test_instances_come_from_standard_input(run: Run, models: dict[str, Path]) -> None:
    """A pipeline needs no files; a list is a list again."""
    value = {"problem": "tsp", "coords": [[0, 0], [0, 3], [4, 0]]}
    options = ["--model", models["tsp"], "--search", "greedy", "--json", "-"]
    found = run("solve", "-", *options, stdin=json.dumps(value))
    assert json.loads(found.out)["cost"] == 12.0
    found = run("solve", "-", *options, stdin=json.dumps([value, value]))
    assert [v["instance"] for v in json.loads(found.out)] == ["stdin-0", "stdin-1"]
    found = run("solve", "-", *options, stdin="{not json")
    assert found.code == 1 and found.err.startswith("renco: <stdin>:1")


def test_json_can_go_to_a_file(
    run: Run, models: dict[str, Path], tsp: Path, tmp_path: Path
) -> None:
    """Then the table is still printed, unless it shall be quiet."""
    target = tmp_path / "result.json"
    options = ["--model", models["tsp"], "--search", "greedy", "--json", target]
    assert "feasible" in run("solve", tsp, *options).out
    assert set(json.loads(target.read_text())) == KEYS
    found = run("solve", tsp, *options, "--quiet")
    assert found.out == found.err == ""


def test_inputs_are_never_overwritten(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """A typo must not cost the instance."""
    file = tmp_path / "a.json"
    file.write_text('{"problem": "tsp", "coords": [[0, 0], [0, 3]]}')
    found = run("solve", file, "--model", models["tsp"], "--json", file)
    assert found.code == 2 and "overwritten" in found.err
    assert file.read_text().startswith('{"problem"')


@pytest.mark.parametrize("problem", SUFFIXES)
def test_solutions_pass_the_check(
    run: Run, models: dict[str, Path], tmp_path: Path, problem: str
) -> None:
    """What `--sol-dir` writes, `renco check` accepts, with names of any kind."""
    folder = tmp_path / "Lösungen 1"
    file = instance(tmp_path / f"größe 9{SUFFIXES[problem]}", problem)
    options = ["--model", models[problem], "--search", "beam", "--sol-dir", folder]
    assert run("solve", file, *options).code == 0
    (solution,) = folder.iterdir()
    assert solution.suffix == (".tour" if problem == "tsp" else ".sol")
    found = run("check", file, solution)
    assert found.code == 0 and found.out.startswith("feasible, ")
    assert read(file).cost([read_solution(solution, read(file))])


def test_equal_names_do_not_overwrite_each_other(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """Files of one name in two folders give two solutions and two pictures."""
    files = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        files.append(instance(tmp_path / folder / "same.tsp"))
    options = ["--model", models["tsp"], "--search", "greedy", "--sol-dir", tmp_path]
    assert run("solve", *files, *options, "--plot", tmp_path / "p.svg").code == 0
    written = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert written == {"same.tour", "same-2.tour", "p-same.svg", "p-same-2.svg"}


def test_an_unwritable_folder_is_wrong_usage(
    run: Run, models: dict[str, Path], tsp: Path
) -> None:
    """It is noticed before the search, not after."""
    found = run("solve", tsp, "--model", models["tsp"], "--sol-dir", tsp / "inside")
    assert found.code == 2 and "--sol-dir" in found.err


def test_pictures_are_drawn(
    run: Run, models: dict[str, Path], tsp: Path, tmp_path: Path
) -> None:
    """`--plot` with one instance writes exactly that file."""
    picture = tmp_path / "tour.png"
    options = ["--model", models["tsp"], "--search", "greedy", "--plot", picture]
    assert run("solve", tsp, *options).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_warm_start_is_never_made_worse(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """`--start` with no iterations gives the start back, with some no worse."""
    file = instance(tmp_path / "a.vrp", "cvrp", n=14)
    options = ["--model", models["cvrp"], "--json", "-"]
    first = run("solve", file, *options, "--iterations", 2, "--sol-dir", tmp_path)
    cost = json.loads(first.out)["cost"]
    options += ["--start", tmp_path / "a.sol"]
    same = json.loads(run("solve", file, *options, "--iterations", 0).out)
    better = json.loads(run("solve", file, *options, "--iterations", 3).out)
    assert same["cost"] == cost and better["cost"] <= cost


def test_a_wrong_start_is_an_error(
    run: Run, models: dict[str, Path], tsp: Path, tmp_path: Path
) -> None:
    """A start of another instance is named, not ignored."""
    (tmp_path / "start.json").write_text('{"routes": [[1, 2, 3]]}')
    found = run(
        "solve", tsp, "--model", models["tsp"], "--start", tmp_path / "start.json"
    )
    assert found.code == 1 and "start.json: not visited: nodes 4, 5" in found.err


def test_limits_without_lns_are_explained(
    run: Run, models: dict[str, Path], tsp: Path
) -> None:
    """A construction takes the time it takes; the note says so."""
    options = ["--model", models["tsp"], "--search", "greedy", "--time-limit", 1]
    found = run("solve", tsp, *options)
    assert found.code == 0 and found.err.startswith("note: ")


def test_time_limits_are_kept(run: Run, models: dict[str, Path], tsp: Path) -> None:
    """Zero seconds still give a feasible solution."""
    options = ["--model", models["tsp"], "--time-limit", 0, "--json", "-"]
    value = json.loads(run("solve", tsp, *options).out)
    assert value["feasible"] and value["seconds"] < 5


def test_batches_give_the_same_solutions(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """Files of two sizes and names, solved together or one by one."""
    sizes = [8, 9, 8]
    files = [instance(tmp_path / f"{i}.tsp", seed=i, n=n) for i, n in enumerate(sizes)]
    options = ["--model", models["tsp"], "--search", "beam", "--json", "-"]
    single = json.loads(run("solve", *files, *options).out)
    together = json.loads(run("solve", *files, *options, "--batch").out)
    assert [v["routes"] for v in single] == [v["routes"] for v in together]
    assert [v["instance"] for v in together] == ["0", "1", "2"]


def test_a_time_limit_is_per_instance_also_in_a_batch() -> None:
    """Together they have the time of all."""
    limits = Limits.of("lns", 2.0, None)
    assert str(limits) == "2 s" and limits.times(3).seconds == 6.0
    assert Limits.of("lns", None, 5).times(3) == Limits(None, 5)
    assert Limits.of("lns", None, None).seconds == 10.0
    assert Limits.of("beam", 2.0, 5).rule is None
    assert str(Limits.of("lns", 2.5, 5)) == "2.5 s or 5 iterations"


def test_a_model_of_another_problem_fails_that_input(
    run: Run, models: dict[str, Path], tsp: Path, tmp_path: Path
) -> None:
    """The others are still solved."""
    other = instance(tmp_path / "b.vrp", "cvrp")
    options = ["--model", models["tsp"], "--search", "greedy"]
    found = run("solve", other, tsp, *options)
    assert found.code == 1 and "for tsp, not for cvrp" in found.err
    assert "a " in found.out


def test_without_a_shipped_model_the_error_says_so(
    run: Run, tsp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without weights explains itself."""
    monkeypatch.setattr(checkpoints, "SHIPPED", tmp_path / "none")
    found = run("solve", tsp)
    assert found.code == 1 and "no model for tsp is shipped" in found.err


def test_gaps_use_the_reference(
    run: Run, models: dict[str, Path], tsp: Path, tmp_path: Path
) -> None:
    """A number, or a file of names and costs; without either, no gap."""
    options = ["--model", models["tsp"], "--search", "greedy"]
    cost = json.loads(run("solve", tsp, *options, "--json", "-").out)["cost"]
    assert "%" not in run("solve", tsp, *options).out
    assert " 100.00 %" in run("solve", tsp, *options, "--reference", cost / 2).out
    references = tmp_path / "best.txt"
    references.write_text(f"# best known\nother 3\na : {cost}\n")
    found = run("solve", tsp, tsp, *options, "--reference", references)
    assert found.out.count(" 0.00 %") == 3  # two rows and their mean


def test_references_of_an_op_are_prizes(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """People write the prize, which is minus the cost."""
    file = instance(tmp_path / "a.oplib", "op")
    options = ["--model", models["op"], "--search", "greedy"]
    prize = json.loads(run("solve", file, *options, "--json", "-").out)["prize"]
    assert " 50.00 %" in run("solve", file, *options, "--reference", 2 * prize).out


def test_reference_files_are_read_strictly(tmp_path: Path) -> None:
    """JSON, or lines with a blank, colon or comma; anything else is named."""
    path = tmp_path / "best.txt"
    path.write_text("a 1\nb: 2.5\nc,-3\n\nd e 4e2\n")
    assert read_references(str(path)) == {"a": 1, "b": 2.5, "c": -3, "d e": 400}
    (tmp_path / "best.json").write_text('{"a": 1}')
    assert read_references(str(tmp_path / "best.json")) == {"a": 1}
    for text in ("a 1\nb nothing\n", "a 1\nb\n", "a 1\nb nan\n"):
        path.write_text(text)
        with pytest.raises(Exception, match=r"best\.txt:2"):
            read_references(str(path))
    (tmp_path / "best.json").write_text('["a"]')
    with pytest.raises(Exception, match="expected"):
        read_references(str(tmp_path / "best.json"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_the_best_so_far(
    run: Run,
    models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """The search under way ends in order; those not begun count as failed."""
    show = Watcher.__call__

    def interrupting(self: Watcher, progress: object) -> None:
        show(self, progress)  # type: ignore[arg-type]
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Watcher, "__call__", interrupting)
    files = [instance(tmp_path / f"{i}.tsp", seed=i) for i in range(2)]
    options = ["--model", models["tsp"], "--time-limit", 600, "--json", "-"]
    before = signal.getsignal(number)
    found = run("solve", files[0], *options)
    assert found.code == 0 and json.loads(found.out)["feasible"]
    found = run("solve", *files, *options)
    assert found.code == 1 and len(json.loads(found.out)) == 1
    assert "1 of 2 instances" in found.err
    assert signal.getsignal(number) is before


def test_progress_without_a_terminal_is_sparse(
    run: Run, models: dict[str, Path], tsp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain lines on standard error, none of them on standard output."""
    options = ["--model", models["tsp"], "--iterations", 2]
    assert run("solve", tsp, *options).err == ""
    monkeypatch.setattr("renco.commands.watching.EVERY", 0.0)
    found = run("solve", tsp, *options)
    assert "a: " in found.err and "cost" in found.err and "\x1b" not in found.err
    assert "iterations" not in found.out


def test_a_closed_pipe_is_no_traceback(models: dict[str, Path], tsp: Path) -> None:
    """`renco ... | head -0` ends quietly."""
    options = ("--model", str(models["tsp"]), "--search", "greedy", "--json", "-")
    process = subprocess_run("solve", str(tsp), *options)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1


# --- check ------------------------------------------------------------------------


def test_check_lists_all_violations_in_the_file_s_numbers(
    run: Run, tmp_path: Path
) -> None:
    """Every broken rule, with nodes as the files number them."""
    problem = CVRP(
        [[0, 0], [1, 0], [0, 1], [2, 2]], [0, 3, 3, 1], 5, numbers=[1, 2, 3, 4]
    )
    write(tmp_path / "a.vrp", problem)
    (tmp_path / "a.sol").write_text("Route #1: 1 2\nRoute #2: 1\nCost 9\n")
    found = run("check", tmp_path / "a.vrp", tmp_path / "a.sol")
    assert found.code == 1 and found.out.startswith("infeasible, length ")
    assert "visited more than once: node 2 (customer 1)" in found.out
    assert "not visited: node 4 (customer 3)" in found.out
    assert "route 1 loads 6, 1 above capacity 5" in found.out


def test_check_can_answer_in_json(run: Run, tmp_path: Path) -> None:
    """Verdict, cost and violations for programs."""
    problem = OP([[0, 0], [3, 4], [0, 1]], [0, 7, 1], 10, best_known=-14.0)
    write(tmp_path / "a.json", problem)
    (tmp_path / "s.json").write_text('{"routes": [[1]]}')
    found = run("check", tmp_path / "a.json", tmp_path / "s.json", "--json", "-")
    value = json.loads(found.out)
    assert value["feasible"] and value["cost"] == -7 and value["gap"] == 50
    (tmp_path / "s.json").write_text('{"routes": [[1, 2]]}')
    found = run("check", tmp_path / "a.json", tmp_path / "s.json", "--json", "-")
    assert (
        found.code == 1 and "above limit 10" in json.loads(found.out)["violations"][0]
    )


@pytest.mark.parametrize("name", SUFFIXES)
def test_violations_agree_with_the_verdict_of_the_problem(name: str) -> None:
    """Lists faults exactly where `Problem.cost` raises."""
    problem = small(name, batch=1, n=4)
    rng = np.random.default_rng(0)
    for _ in range(200):
        nodes = rng.integers(
            0, problem.coords.shape[1] + 1, rng.integers(1, 7)
        ).tolist()
        cut = int(rng.integers(0, len(nodes) + 1))
        routes = [nodes[:cut], nodes[cut:]] if rng.random() < 0.3 else [nodes]
        try:
            problem.cost([routes])
        except Infeasible:
            assert violations(problem, routes), routes
        else:
            assert not violations(problem, routes), routes


# --- the others -------------------------------------------------------------------


def test_plot_draws_instances_solutions_and_logs(
    run: Run, models: dict[str, Path], tsp: Path, tmp_path: Path
) -> None:
    """With and without a solution; an infeasible one is refused."""
    options = ["--model", models["tsp"], "--search", "greedy", "--sol-dir", tmp_path]
    run("solve", tsp, *options)
    out = tmp_path / "x.svg"
    assert run("plot", tsp, "--out", out).code == 0
    bare = out.read_text()
    assert run("plot", tsp, tmp_path / "a.tour", "--out", out).code == 0
    assert len(out.read_text()) > len(bare)
    (tmp_path / "bad.json").write_text('{"routes": [[1, 1]]}')
    found = run("plot", tsp, tmp_path / "bad.json", "--out", out)
    assert found.code == 1 and "visited more than once: node 1;" in found.err
    assert run("plot", tsp, "--out", tmp_path / "x.bmp").code == 2
    (tmp_path / "log.jsonl").write_text('{"seconds": 1, "loss": 2}\n')
    for log in (tmp_path / "log.jsonl", tmp_path):
        out.unlink()
        assert run("plot", log, "--out", out).code == 0 and out.exists()
    found = run("plot", tmp_path / "none", "--out", out)
    assert found.code == 1 and "none" in found.err
    (tmp_path / "empty").mkdir()
    found = run("plot", tmp_path / "empty", "--out", out)
    assert found.code == 1 and "log.jsonl" in found.err


def test_models_are_listed_with_the_default(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name, problem, sizes, training and gaps; a star for the default."""
    monkeypatch.setattr(checkpoints, "SHIPPED", tmp_path / "weights")
    found = run("models")
    assert found.code == 0 and "train one" in found.err
    for name, recurrent in (("tsp9-base", False), ("tsp9-rec", True)):
        policy = make_policy("tsp", recurrent=recurrent)
        gaps = {"tsp100-test": {"greedy": 1.25}}
        save_policy(
            policy, tmp_path / "weights" / name, gaps=gaps, trained_on="1M tsp9"
        )
    found = run("models")
    assert "tsp9-rec *" in found.out and "tsp9-base *" not in found.out
    assert "L2-d16-h4 + L1-d8-h2" in found.out and "1M tsp9" in found.out
    assert "tsp100-test greedy 1.25" in found.out
    one, two = ({"count": c, "problem": "tsp", "n": n} for c, n in ((9, 5), (8, 7)))
    for data, words in (
        (one, "9 x tsp5 "),
        ([one, two, one], "9 x tsp5, 8 x tsp7"),
        ([one, two, {**one, "first": 9}], "18 x tsp5, 8 x tsp7"),
    ):
        details = {"training": {"data": data}, "validation": {"val_gap": 2.5}}
        save_policy(make_policy("tsp"), tmp_path / "weights" / "tsp5-rec", **details)
        found = run("models")
        assert words in found.out and "validation 2.50" in found.out
    listed = json.loads(run("models", "--json", "-").out)
    assert [model["name"] for model in listed] == [
        *("tsp5-rec", "tsp9-base", "tsp9-rec")
    ]


def test_shipped_models_say_what_they_learnt_and_were_measured_at(run: Run) -> None:
    """All of them, with gaps on a test set."""
    lines = run("models").out.splitlines()
    for name in checkpoints.shipped():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert " x " in line and "-test " in line


def test_versions_are_what_a_report_needs(run: Run) -> None:
    """Python, torch, processor and threads."""
    found = run("versions")
    for word in ("renco", "python", "torch", "threads", "processor", "pyvrp"):
        assert word in found.out
    assert json.loads(run("versions", "--json", "-").out)["packages"]["numpy"]


def test_generate_draws_instances(run: Run, tmp_path: Path) -> None:
    """A set without labels; the same command again changes nothing."""
    arguments = ["generate", "cvrp", "--n", 6, "--count", 4, "--expert", "none"]
    arguments += ["--capacity", "20:30", "--demand", "1:5", "--out", tmp_path / "set"]
    for _ in range(2):
        found = run(*arguments, "--seed", 3)
        assert found.code == 0 and "4 x cvrp6, seed 3, expert none" in found.out
    found = run(*arguments, "--seed", 4)
    assert found.code == 1 and "seed" in found.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["tsp"],
        ["knapsack", "--out", "x"],
        ["--out", "x"],
        ["tsp", "cvrp", "--out", "x"],
        ["tsp", "--shard", "3/2", "--out", "x"],
        ["tsp", "--shard", "half", "--out", "x"],
        ["cvrp", "--demand", "5", "--out", "x"],
        ["cvrp", "--capacity", "big", "--out", "x"],
        ["tsp", "--seconds", "0", "--out", "x"],
        ["tsp", "--count", "0", "--out", "x"],
    ],
)
def test_generate_names_wrong_options(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """Exit code 2, and no folder is made."""
    monkeypatch.chdir(tmp_path)
    found = run("generate", *arguments)
    assert found.code == 2 and found.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_generate_takes_files_as_a_shell_expands_them(run: Run, tmp_path: Path) -> None:
    """`--from a.tsp b.tsp` and `--from FOLDER` mean the same."""
    folder = tmp_path / "in"
    folder.mkdir()
    files = [instance(folder / f"{name}.tsp", seed=i) for i, name in enumerate("ab")]
    (folder / "notes.txt").write_text("not an instance")
    for place, given in enumerate(([*files], ["tsp", *files], [folder])):
        words, sources = (given[:1], given[1:]) if "tsp" in given else ([], given)
        out = tmp_path / f"out{place}"
        options = ["--expert", "none", "--out", out]
        found = run("generate", *words, "--from", *sources, *options)
        assert found.code == 0 and "2 x tsp9" in found.out


def labelled_folder(folder: Path, count: int = 4) -> Path:
    """Writes a set whose labels visit the nodes in the order of their ids."""
    folder.mkdir()
    manifest = Manifest(
        problem="tsp", n=7, count=count, seed=1, expert="in-order", seconds=0.1
    )
    instances = manifest.draw(0, count)
    rows = manifest.rows(np.arange(count), instances)
    rows["decisions"] = np.arange(1, 7)
    rows["cost"] = instances.cost([[list(range(7))]] * count)
    write_set(folder, manifest, [rows])
    return folder


def test_evaluate_appends_rows(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """A table for people, rows for the record, gaps of single instances."""
    data = labelled_folder(tmp_path / "set")
    table, gaps = tmp_path / "rows.csv", tmp_path / "gaps.json"
    options = ["--model", models["tsp"], "--data", data, "--csv", table]
    found = run("evaluate", *options, "--gaps", gaps, "--limit", 3)
    assert found.code == 0 and "tsp-tiny" in found.out and "greedy" in found.out
    found = run("evaluate", *options, "--search", "beam", "--batch", 4, "--json", "-")
    (row,) = json.loads(found.out)
    assert row["width"] == 16 and row["seconds_per_instance"] is None
    assert row["dataset"] == "set" and len(table.read_text().splitlines()) == 3
    assert len(json.loads(gaps.read_text())["tsp-tiny"]) == 3
    options += ["--search", "lns", "--iterations", 1, "--limit", 1, "--json", "-"]
    (row,) = json.loads(run("evaluate", *options).out)
    assert row["stop"] == "1 iterations"


def test_evaluate_names_what_is_wrong(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """Unknown sets and searches."""
    found = run("evaluate", "--model", models["tsp"], "--data", "no-such-set")
    assert found.code == 1 and "no-such-set" in found.err
    options = ["--data", labelled_folder(tmp_path / "set"), "--search", "magic"]
    found = run("evaluate", "--model", models["tsp"], *options)
    assert found.code == 2 and "magic" in found.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["base", "--preset", "huge"], 2),
        (["recurrent"], 2),
        (["base", "--minutes", "1", "--steps", "5"], 2),
        (["base", "--preset", "cpu", "--config", "x.toml"], 2),
        (["base", "--minutes", "0"], 2),
        (["sideways"], 2),
        (["base", "--config", "missing.toml"], 1),
    ],
)
def test_train_names_what_is_wrong(
    run: Run, tmp_path: Path, arguments: list[str], code: int
) -> None:
    """Before anything is trained."""
    data = labelled_folder(tmp_path / "set")
    found = run("train", *arguments, "--data", data, "--out", tmp_path / "run")
    assert found.code == code and found.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_commands_run_as_a_module() -> None:
    """`python -m renco` is the command."""
    process = subprocess_run("--version")
    out, err = process.communicate()
    assert process.returncode == 0 and out.startswith("renco ") and err == ""


def test_instances_without_a_name_get_that_of_their_file(
    run: Run, models: dict[str, Path], tmp_path: Path
) -> None:
    """The table must tell them apart."""
    file = tmp_path / "nameless.json"
    write(file, TSP([[0, 0], [0, 1], [1, 1]]))
    found = run("solve", file, "--model", models["tsp"], "--search", "greedy")
    assert "nameless" in found.out
