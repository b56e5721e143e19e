"""Means, differences and ratios with 95 % confidence intervals by paired bootstrap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import bootstrap

ENOUGH = 8
"""Instances below which nothing is claimed: the bootstrap knows only what it saw."""
RESAMPLES = 9999


@dataclass(frozen=True)
class Interval:
    """A number with the interval that it lies in with 95 % confidence.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
        count: Instances behind it.
    """

    value: float
    low: float
    high: float
    count: int

    def above(self, level: float) -> bool:
        """Returns whether it can be claimed to be above a level."""
        return self.count >= ENOUGH and self.low > level

    def below(self, level: float) -> bool:
        """Returns whether it can be claimed to be below a level."""
        return self.count >= ENOUGH and self.high < level

    def show(self, digits: int = 2, sign: bool = False) -> str:
        """Returns the number and its interval; a single instance has none."""
        form = f"{'+' if sign else ''}.{digits}f"
        if self.count < 2:
            return f"{self.value:{form}}"
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


def _interval(
    samples: Sequence[Sequence[float]], statistic: Callable[..., Any]
) -> Interval:
    arrays = tuple(np.asarray(sample, dtype=np.float64) for sample in samples)
    value, count = float(statistic(*arrays, axis=-1)), len(arrays[0])
    if count < 2 or all((array == array[0]).all() for array in arrays):
        return Interval(value, value, value, count)
    found = bootstrap(
        arrays,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(value, float(found.low), float(found.high), count)


def mean(values: Sequence[float]) -> Interval:
    """Returns the mean."""
    return _interval([values], lambda a, axis: a.mean(axis))


def difference(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Returns the mean difference of values of the same instances."""
    return mean([a - b for a, b in zip(values, others, strict=True)])


def ratio(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Returns the ratio of the means of values of the same instances."""
    return _interval([values, others], lambda a, b, axis: a.mean(axis) / b.mean(axis))
