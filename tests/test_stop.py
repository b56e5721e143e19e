"""Tests of the stop rules."""

import os
import signal
import threading
import time

import pytest

from renco.stop import (
    MaxIterations,
    MaxRuntime,
    MultipleCriteria,
    NoImprovement,
    Stop,
    seconds_left,
    start,
    terminate_as_interrupt,
)


def calls_until_stop(rule: Stop, costs: list[float]) -> int:
    """Counts the iterations that a rule allows along the given costs."""
    for done, cost in enumerate(costs):
        if rule(cost):
            return done
    return len(costs)


def test_max_iterations_allows_exactly_that_many() -> None:
    """The rule is asked before each iteration and lets n of them happen."""
    for n in (0, 1, 5):
        assert calls_until_stop(MaxIterations(n), [1.0] * 9) == n


def test_no_improvement_counts_iterations_in_a_row() -> None:
    """Three iterations without a better cost end the search, not three in all."""
    costs = [9.0, 8.0, 8.0, 8.0, 7.0, 7.0, 7.0, 7.0, 7.0]
    assert calls_until_stop(NoImprovement(3), costs) == 7


def test_an_equal_cost_is_no_improvement() -> None:
    """The wait is over although the cost never rose."""
    assert calls_until_stop(NoImprovement(2), [5.0] * 9) == 2


def test_max_runtime_starts_with_its_first_use() -> None:
    """Time between making a rule and using it does not count."""
    rule = MaxRuntime(0.05)
    time.sleep(0.06)
    assert not rule(1.0)
    time.sleep(0.06)
    assert rule(1.0)


def test_a_runtime_of_zero_stops_at_once() -> None:
    """No iteration fits into no time."""
    assert MaxRuntime(0)(1.0)


def test_rules_can_be_started_again() -> None:
    """A started rule has forgotten the search before."""
    for rule in (MaxIterations(2), NoImprovement(2), MaxRuntime(0.01)):
        calls_until_stop(rule, [1.0] * 5)
        time.sleep(0.01)
        assert rule(1.0)
        start(rule)
        assert not rule(1.0)


def test_a_combination_stops_with_its_first_rule() -> None:
    """Both orders give the smaller number of iterations."""
    assert calls_until_stop(MaxIterations(3) | MaxIterations(5), [1.0] * 9) == 3
    assert calls_until_stop(MaxIterations(5) | MaxIterations(3), [1.0] * 9) == 3


def test_every_rule_of_a_combination_sees_every_iteration() -> None:
    """A later rule counts on while an earlier one decides."""
    seen: list[float] = []

    def watch(best_cost: float) -> bool:
        seen.append(best_cost)
        return False

    rule = MaxIterations(1) | watch
    assert calls_until_stop(rule, [3.0, 2.0]) == 1
    assert seen == [3.0, 2.0]


def test_seconds_left_is_that_of_the_shortest_limit() -> None:
    """Rules that know no time leave infinitely much."""
    rule = MaxRuntime(60) | NoImprovement(3) | MaxRuntime(5)
    assert 4.9 < seconds_left(rule) <= 5
    assert seconds_left(MaxIterations(3)) == float("inf")
    assert seconds_left(lambda best_cost: False) == float("inf")


def test_starting_a_combination_starts_its_parts() -> None:
    """A nested count begins anew."""
    rule = MultipleCriteria([MaxIterations(1)]) | NoImprovement(9)
    assert calls_until_stop(rule, [1.0] * 5) == 1
    start(rule)
    assert calls_until_stop(rule, [1.0] * 5) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaxRuntime(-1), "-1"),
        (lambda: MaxRuntime(float("nan")), "nan"),
        (lambda: MaxIterations(-2), "-2"),
        (lambda: NoImprovement(-3), "-3"),
        (lambda: MultipleCriteria([]), "none"),
    ],
)
def test_wrong_limits_are_named(make, message: str) -> None:
    """The error shows the value that was given."""
    with pytest.raises(ValueError, match=message):
        make()


def test_sigterm_becomes_an_interrupt_inside_the_block_only() -> None:
    """The handler that was there before is back afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_may_enter_the_block() -> None:
    """Signals belong to the main thread; elsewhere the block does nothing."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with terminate_as_interrupt():
                pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
