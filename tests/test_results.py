"""The page of results says what the rows say, and no more than they allow."""

import re
from pathlib import Path

import numpy as np
import pytest
from intervals import ENOUGH, difference, mean, ratio
from pictures import FIGURES, digest, draw
from render import PAGE, RESULTS, main, page, read_quoted, sections, stale
from rows import COLUMNS, Row
from ship import measured
from verdicts import answer, on_negative_gaps, on_story, on_use
from views import Cell, Results, behind, current, read_results

from renco.checkpoints import read_config, shipped

REFERENCE = 10.0


def row(instance: int, cost: float | None, seconds: float, **what: str) -> Row:
    """Returns one made-up row."""
    common = {
        "date": "2026-01-01T00:00:01Z",
        "run": "2026-01-01T00:00:00Z",
        "commit": "abc",
        "hardware": "a machine",
        "threads": "1",
        "torch": "2",
        "peak": "50",
        "seed": "0",
        "dataset": "tsp100-test",
        "dataset_sha256": "d",
        "instance": str(instance),
        "reference": str(REFERENCE),
        "cost": "" if cost is None else str(cost),
        "seconds": str(seconds),
        "fault": "none found" if cost is None else "",
    }
    return dict.fromkeys(COLUMNS, "") | common | what


def rows_of(gap: float, seconds: float, count: int = 10, **what: str) -> list[Row]:
    """Returns rows with about that gap and time."""
    rng = np.random.default_rng([round(100 * abs(gap)), round(1000 * seconds)])
    return [
        row(
            i,
            REFERENCE * (1 + (gap + rng.normal() / 10) / 100),
            seconds * (1 + rng.random() / 10),
            **what,
        )
        for i in range(count)
    ]


REC = {"role": "recurrent", "model": "rec", "size": "L2-d8-h2", "model_sha256": "1"}
BASE = {"role": "base", "model": "base", "size": "L6-d8-h2", "model_sha256": "2"}
PLAIN = {"role": "plain", "model": "plain", "size": "L2-d8-h2", "model_sha256": "3"}
BEAM = {"search": "beam", "width": "16"}
CODE = {"inside": "0.09", "gflop": "2"}
PEER = {"role": "peer", "model": "fast-tsp", "version": "1"}


def everything(count: int = 10) -> list[Row]:
    """Returns rows of all kinds."""
    lns = {"search": "lns", "limit": "1", "history": "0.1:11 0.5:10.5"}
    curve = lns | {"search": "algorithm4"}
    return [
        *rows_of(5.0, 0.1, count, k="1000", **REC, **BEAM, **CODE),
        *rows_of(5.1, 0.12, count, k="10", **REC, **BEAM, **CODE),
        *rows_of(5.2, 0.3, count, k="1", **BASE, **BEAM, **CODE),
        *rows_of(9.0, 0.1, count, k="1", **PLAIN, **BEAM, **CODE),
        *rows_of(2.0, 1.0, count, k="1000", **REC, **lns),
        *rows_of(2.5, 1.0, count, k="1000", n_sub="100", **REC, **curve),
        *rows_of(3.5, 1.0, count, k="1", n_sub="100", **BASE, **curve),
        *rows_of(-0.5, 1.0, count, limit="1", **PEER),
    ]


def results(rows: list[Row]) -> list[Results]:
    """Returns made-up results."""
    return [Results("tsp100-test", rows)]


def test_the_page_agrees_with_the_rows() -> None:
    """Rendered again, page and figures stay as they are."""
    text, found = PAGE.read_text("utf-8"), read_results(RESULTS)
    assert page(text, sections(found, RESULTS)) == text, "run experiments/render.py"
    assert stale(found, PAGE.parent / "pictures") == []


def test_a_changed_digit_is_noticed() -> None:
    """In any number of any rendered part."""
    parts = sections(results(everything()), RESULTS)
    text = page(PAGE.read_text("utf-8"), parts)
    assert page(text, parts) == text
    inside = [
        match
        for part in re.finditer(r"<!-- begin [\w-]+ -->.*?<!-- end", text, re.DOTALL)
        for match in range(part.start(), part.end())
        if text[match].isdigit()
    ]
    assert len(inside) > 500
    for place in inside[::97]:
        digit = str((int(text[place]) + 1) % 10)
        changed = text[:place] + digit + text[place + 1 :]
        if "begin" in changed[changed.rfind("\n", 0, place) : place]:
            continue  # the name of a part
        assert page(changed, parts) != changed


def test_the_parts_of_the_page_are_known() -> None:
    """A part that is gone would never be rendered again."""
    text = PAGE.read_text("utf-8").replace("begin speed", "begin spede")
    with pytest.raises(ValueError, match="speed"):
        page(text, sections([], RESULTS))


@pytest.mark.parametrize("name", shipped())
def test_models_state_the_gaps_of_the_rows(name: str) -> None:
    """Those of the very weights that are shipped."""
    config = read_config(name)
    found = measured(config["sha256"], RESULTS)
    measure = "run experiments/run.py, then experiments/ship.py --measured"
    assert found and config.get("gaps") == found, measure


def test_no_number_is_typed_by_hand() -> None:
    """Outside the rendered parts there are no results."""
    text = PAGE.read_text("utf-8")
    text = re.sub(r"<!-- begin.*?<!-- end [\w-]+ -->", "", text, flags=re.DOTALL)
    text = text.replace("95 %", "").replace("k = 1", "")
    assert re.findall(r"\d+\.\d+|\d+ ?%|\d+(?:\.\d+)?x", text) == []


def test_figures_show_the_rows(tmp_path: Path) -> None:
    """A figure carries a hash of what it shows; another row makes it stale."""
    found = results(everything())
    for name, make in FIGURES.items():
        panels = make(found)
        assert panels, name
        draw(panels, tmp_path / f"results-{name}.svg")
        assert (tmp_path / f"results-{name}.svg").stat().st_size < 100_000
    assert stale(found, tmp_path) == []
    more = results([*everything(), row(11, 10.7, 0.1, k="1000", **REC, **BEAM)])
    assert "results-story.svg" in stale(more, tmp_path)
    assert stale([], tmp_path) == [f"results-{name}.svg" for name in FIGURES]
    assert digest(FIGURES["k"](found)) != digest(FIGURES["figure2"](found))


def test_curves_that_cross_are_told() -> None:
    """By how much one was above the other at most, and until when; ties are none."""
    curves = {
        "rec": ["0.1:11 2:10.6 3:10.1", "0.1:12 1:11"],
        "base": ["0.2:11 1.5:10.4", "0.1:12 5:11.5"],
    }
    rec, base = (
        Cell(
            {},
            [row(i, 10.1, 9.0, history=text) for i, text in enumerate(curves[name])],
        )
        for name in ("rec", "base")
    )
    # At 1.5 s 11 and 11 against 10.4 and 12: ahead. Never above together.
    assert behind(rec, base) == (0.0, 0.0)
    # From 1 s on the base is above, most at 3 s: 10.4 and 12 against 10.1 and 11.
    worst, until = behind(base, rec)
    assert worst == pytest.approx(100 * (0.3 + 1.0) / 2 / REFERENCE)
    assert until == 5.0


def test_intervals_are_those_of_the_mean() -> None:
    """Close to the normal approximation, and the same again."""
    values = np.random.default_rng(0).normal(3.0, 1.0, 400).tolist()
    found = mean(values)
    error = 1.96 * np.std(values, ddof=1) / 20
    assert found.low == pytest.approx(found.value - error, abs=0.02)
    assert found.high == pytest.approx(found.value + error, abs=0.02)
    assert mean(values) == found


def test_pairs_make_intervals_narrow() -> None:
    """What varies from instance to instance but not between methods cancels."""
    level = np.random.default_rng(0).normal(0, 10, 20)
    found = difference((level + 1).tolist(), level.tolist())
    assert found.low == pytest.approx(1.0) and found.above(0)
    times = np.exp(level / 10)
    assert ratio((3 * times).tolist(), times.tolist()).low == pytest.approx(3.0)


def test_few_instances_allow_no_claims() -> None:
    """However clear the difference is."""
    few, enough = mean([1.0] * (ENOUGH - 1)), mean([1.0] * ENOUGH)
    assert not few.above(0) and enough.above(0) and not enough.below(0)
    assert "too few" in answer(few) and answer(enough) == "No"
    assert mean([2.0]).show() == "2.00" and mean([1.0, 1.0]).show(1) == "1.0 [1.0, 1.0]"


def test_sentences_follow_from_the_intervals() -> None:
    """Faster, better than the control, worse than the classical solver."""
    found = results(everything())
    (line,) = on_story(found)
    assert "times as fast as the base model" in line
    assert "smaller than that of the base model" in line
    assert "smaller than that of the plain model" in line
    assert on_use(found)[0].startswith("**Should I use this instead of PyVRP today? No")
    assert "fast-tsp" in on_negative_gaps(found)[0]
    (line,) = on_story(results(everything(count=3)))
    assert "on 3 instances, too few to claim it" in line
    assert "too few instances (3) to claim anything" in line
    assert "cannot tell" in on_use(results(everything(count=3)))[0]
    assert "Undecided (too few" in "".join(on_use(results(everything(count=3))))


def test_yes_is_said_where_it_is_true() -> None:
    """The program takes no side."""
    lns = {"search": "lns", "limit": "1", "history": "0.1:10"}
    rows = rows_of(1.0, 1.0, k="1000", **REC, **lns)
    rows += rows_of(2.0, 1.0, limit="1", **PEER)
    assert "Yes: it is better" in on_use(results(rows))[0]


def test_failures_are_counted_not_hidden() -> None:
    """A solver without a solution has its row in the table."""
    failed = row(0, None, 1.0, limit="1", **(PEER | {"model": "ortools"}))
    rows = [*everything(), failed]
    text = "\n".join(sections(results(rows), RESULTS)["figure4"])
    assert "| OR-Tools |" in text and "0, 1 failed" in text


def test_replaced_models_and_other_machines_are_left_out() -> None:
    """Only what is current is shown; other roles keep their rows."""
    old = rows_of(5.0, 0.1, 2, **REC)
    base = rows_of(5.0, 0.1, 2, **BASE)
    new = [r | {"model": "new", "run": "2026-02", "date": "2026-02"} for r in old]
    kept = current([*old, *base, *new])
    assert {r["model"] for r in kept} == {"new", "base"}
    moved = [r | {"hardware": "another", "date": "2026-03"} for r in base]
    assert current([*old, *base, *moved]) == moved
    assert current([]) == []


def test_quoted_rows_are_marked() -> None:
    """Every row of the paper's table says so, and none of ours does."""
    lines = sections(results(everything()), RESULTS)["table1"]
    quoted = [line for line in lines if "| quoted |" in line]
    assert len(quoted) == len(read_quoted()) == 56
    assert sum("| measured |" in line for line in lines) == 2
    assert not any("ours L2" in line for line in quoted)


def test_the_command_checks_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which files are not what the rows say."""
    monkeypatch.setattr("sys.argv", ["render.py", "--check"])
    main()
    (tmp_path / "pictures").mkdir()
    copy = tmp_path / "results.md"
    text = PAGE.read_text("utf-8").replace("TSP100 | BQ", "TSP100 | QB")
    copy.write_text(text, encoding="utf-8")
    words = ["render.py", "--page", str(copy), "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*words, "--check"])
    with pytest.raises(SystemExit, match=r"results\.md"):
        main()
    assert copy.read_text("utf-8") == text
    monkeypatch.setattr("sys.argv", words)
    main()
    assert "QB" not in copy.read_text("utf-8")
