"""How numbers without a bound are told to networks: `squeezed.h`, in NumPy."""

import numpy as np
from jaxtyping import Float32
from numpy import ndarray


def squeezed(x: np.float32) -> np.float32:
    """Returns small numbers as they are, of large ones the logarithm."""
    return np.copysign(np.log1p(abs(x)), x)


def offset(way: Float32[ndarray, " 2"]) -> Float32[ndarray, " 2"]:
    """Returns an offset with its direction, its length squeezed."""
    length = np.hypot(*way)
    return way * np.float32(np.log1p(length) / max(length, 1e-6))
