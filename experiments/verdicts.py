"""Sentences that follow from intervals; none claims more than its interval does."""

from collections.abc import Sequence

from intervals import ENOUGH, Interval
from rows import gap
from views import Cell, Results, gap_difference, time_ratio

QUESTION = "Should I use this instead of PyVRP today?"
NAMES = {
    "pyvrp": "PyVRP",
    "hygese": "HGS-CVRP",
    "ortools": "OR-Tools",
    "elkai": "LKH (elkai)",
    "local-moves": "renco without a network: local moves, kicks",
}


def name_of(solver: str) -> str:
    """Returns a solver's name as its authors write it."""
    return NAMES.get(solver, solver)


def faster(ratio: Interval) -> str:
    """Says what a ratio of times allows to say."""
    if ratio.count < ENOUGH:
        few = f"on {ratio.count} instances, too few to claim it"
        return f"{ratio.show()} times as fast as the base model ({few})"
    if ratio.above(1):
        return f"{ratio.show()} times as fast as the base model"
    if ratio.below(1):
        return f"slower than the base model ({ratio.show()} times its speed)"
    return f"not measurably faster than the base model ({ratio.show()} times its speed)"


def better(difference: Interval, than: str) -> str:
    """Says what a difference of gaps, in points, allows to say."""
    shown = difference.show(sign=True)
    if difference.count < ENOUGH:
        return (
            f"its gap differs from that of {than} by {shown} points, on too few "
            f"instances ({difference.count}) to claim anything"
        )
    if difference.below(0):
        return f"its gap is smaller than that of {than} ({shown} points)"
    if difference.above(0):
        return f"its gap is larger than that of {than} ({shown} points)"
    return f"its gap does not differ measurably from that of {than} ({shown} points)"


def base_of(results: Results, cell: Cell) -> Cell | None:
    """Returns the base model with the same search as a recurrent one."""
    what = {name: cell.what[name] for name in ("search", "width")}
    found = [c for c in results.pick(roles=["base"], **what) if c.what["k"] == "1"]
    return found[0] if found else None


def on_story(found: Sequence[Results]) -> list[str]:
    """Says for each set how the recurrent models compare with their base."""
    lines = []
    for results in found:
        for cell in results.widest(("recurrent", "base")):
            base = base_of(results, cell)
            if cell.what["role"] != "recurrent" or base is None:
                continue
            speed, gaps = time_ratio(base, cell), gap_difference(cell, base)
            assert speed is not None and gaps is not None
            words = f"{faster(speed)}, and {better(gaps, 'the base model')}"
            lines.append(
                f"- {results.title}, {cell.variant}: the recurrent model {cell.size} "
                f"is {words}." + _control(results, cell)
            )
    return lines


def _control(results: Results, cell: Cell) -> str:
    """Compares with the plain models of the same size, the paper's controls."""
    what = {name: cell.what[name] for name in ("search", "width")}
    same = [c for c in results.pick(roles=["plain"], **what) if c.size == cell.size]
    words = [gap_difference(cell, control) for control in same]
    return "".join(
        f" Against the plain model of its size, {better(w, 'the plain model')}."
        for w in words
        if w is not None
    )


def ours(results: Results, limit: str) -> Cell | None:
    """Returns our search under a time limit: the recurrent one, or the base's."""
    for role in ("recurrent", "base"):
        found = results.pick(roles=[role], search="lns", n_sub="", limit=limit)
        if found:
            return found[0]
    return None


def best_peer(results: Results, limit: str) -> Cell | None:
    """Returns the classical solver with the smallest mean gap under a limit."""
    found = results.pick(roles=["peer"], limit=limit)
    found = [cell for cell in found if cell.values(gap) and not cell.failures]
    return min(found, key=lambda cell: cell.mean(gap).value, default=None)


def on_use(found: Sequence[Results]) -> list[str]:
    """Answers the question for each problem, and gives the reasons."""
    lines, answers = [], []
    for results in found:
        for limit in results.limits():
            mine, peer = ours(results, limit), best_peer(results, limit)
            if mine is None or peer is None:
                continue
            points = gap_difference(mine, peer)
            if points is None:
                continue
            answers.append((results.problem, answer(points)))
            lines.append(
                f"- {results.title}, {limit} s per instance: **{answer(points)}.** "
                f"The best classical solver is {name_of(peer.what['model'])} with a "
                f"gap of {peer.mean(gap).show()} %; ours is at "
                f"{mine.mean(gap).show()} %, {points.show(sign=True)} points apart."
            )
    if not lines:
        return []
    return [f"**{QUESTION} {summary(answers)}**", "", *lines]


def answer(points: Interval) -> str:
    """Returns yes or no where an interval allows it."""
    if points.above(0):
        return "No"
    if points.below(0):
        return "Yes"
    few = " (too few instances)" if points.count < ENOUGH else ""
    return f"Undecided{few}"


def summary(answers: Sequence[tuple[str, str]]) -> str:
    """Returns one sentence for all problems and time limits."""
    kinds = {word for _, word in answers}
    if kinds == {"No"}:
        return "No: a classical solver is better on every set, at every time limit."
    if kinds == {"Yes"}:
        return "Yes: it is better on every set, at every time limit."
    yes = sorted({problem.upper() for problem, word in answers if word == "Yes"})
    if not yes and "No" not in kinds:
        return "The measurements cannot tell."
    if not yes:
        return "No: a classical solver is better, or nothing can be told apart."
    return f"Only where the list below says so ({', '.join(yes)})."


def on_negative_gaps(found: Sequence[Results]) -> list[str]:
    """Names methods that are better than the references."""
    named = [
        f"{results.title} {name_of(cell.what['model'])} {cell.variant}".strip()
        for results in found
        for cell in results.cells
        if cell.values(gap) and cell.mean(gap).below(0)
    ]
    if not named:
        return ["No method is measurably better than the references."]
    return [
        "Gaps below zero are no mistake: a reference is the best that one solver found "
        "in a stated time, not an optimum, and these methods found better solutions: "
        + "; ".join(dict.fromkeys(named))
        + "."
    ]
