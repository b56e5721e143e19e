"""Local search on closed tours: what moves promise is what they do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renco.local import shorten
from renco.tours import MOVES, SMALLEST, Tour, nearest


def tour_of(n: int, seed: int, near: int | None = None) -> Tour:
    """Returns a random tour of random points."""
    rng = np.random.default_rng(seed)
    xy = rng.random((n, 2))
    matrix = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
    return Tour(rng.permutation(n), matrix, nearest(matrix, near or n - 1))


def legs(tour: Tour) -> set[frozenset[int]]:
    """Returns the legs of a tour, as pairs of nodes."""
    ends = zip(tour.order.tolist(), np.roll(tour.order, -1).tolist(), strict=True)
    return {frozenset(pair) for pair in ends}


@settings(max_examples=30, deadline=None)
@given(st.integers(SMALLEST, 14), st.integers(0, 2**32))
def test_every_move_changes_the_length_by_what_it_promises(n: int, seed: int) -> None:
    """Each finite change is the difference of two lengths, its legs are all named."""
    tour = tour_of(n, seed, near=4)
    active = tour.order.copy()
    changes = tour._changes(active)
    assert len(changes) == len(MOVES)
    for kind, row, near in np.argwhere(np.isfinite(changes)).tolist():
        moved, a = tour.copy(), int(active[row])
        touched = moved._apply(MOVES[kind], a, int(tour.around.node[a, near]))
        assert sorted(moved.order.tolist()) == list(range(n))
        assert moved.order[moved.place].tolist() == list(range(n))
        promised = tour.length + changes[kind, row, near]
        assert moved.length == pytest.approx(promised, abs=1e-9)
        new = legs(moved) ^ legs(tour)
        assert {node for leg in new for node in leg} <= set(touched.tolist())


@settings(max_examples=50, deadline=None)
@given(st.integers(SMALLEST, 40), st.integers(0, 2**32))
def test_a_shortened_tour_is_as_good_as_all_moves_can_make_it(
    n: int, seed: int
) -> None:
    """With all nodes near, nothing is left for the search over all pairs of legs."""
    tour = tour_of(n, seed)
    before = tour.length
    tour.shorten()
    assert sorted(tour.order.tolist()) == list(range(n))
    assert tour.length <= before + 1e-12
    order = np.roll(tour.order, -int(tour.place[0])).tolist()
    assert shorten(order[1:], tour.matrix) == order[1:]


@settings(max_examples=50, deadline=None)
@given(st.integers(SMALLEST, 40), st.integers(0, 2**32))
def test_a_kick_swaps_two_parts_and_names_the_ends_of_changed_legs(
    n: int, seed: int
) -> None:
    """Three legs go and three come, unless parts are so short that some stay."""
    tour = tour_of(n, seed)
    kicked = tour.copy()
    touched = kicked.kick(np.random.default_rng(seed))
    assert sorted(kicked.order.tolist()) == list(range(n))
    changed = legs(tour) ^ legs(kicked)
    assert 2 < len(changed) <= 6
    assert {node for leg in changed for node in leg} <= set(touched.tolist())


def test_kicks_and_moves_come_near_the_optimum() -> None:
    """Points on a circle have one best tour."""
    rng = np.random.default_rng(0)
    angle = rng.permutation(60) * (2 * np.pi / 60)  # the best tour is the circle
    xy = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    matrix = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
    best = Tour(rng.permutation(60), matrix, nearest(matrix))
    best.shorten()
    for _ in range(300):
        tour = best.copy()
        tour.shorten(tour.kick(rng))
        best = min(best, tour, key=lambda tour: tour.length)
    assert best.length == pytest.approx(120 * np.sin(np.pi / 60))


def test_only_active_nodes_are_looked_at() -> None:
    """Without active nodes even a bad tour stays as it is."""
    tour = tour_of(30, 0)
    before = tour.order.tolist()
    tour.shorten(np.array([], dtype=np.int64))
    assert tour.order.tolist() == before


def test_nothing_happens_in_a_hurry() -> None:
    """No move is made once time is up."""
    tour = tour_of(30, 0)
    before = tour.order.tolist()
    tour.shorten(hurry=lambda: True)
    assert tour.order.tolist() == before


def test_tiny_tours_are_refused() -> None:
    """Segments of a move must not overlap."""
    with pytest.raises(ValueError, match="a tour of 5 nodes, at least 10 needed"):
        tour_of(5, 0)
