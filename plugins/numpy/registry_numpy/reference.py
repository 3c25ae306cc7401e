"""The plain formulas in float64, by which every backend is judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from registry import Expected

Array = npt.NDArray[Any]


def added(first: Array, *others: Array) -> Expected:
    """``first + others[0] + ...`` from left to right, each addition rounded to float32.

    The additions of float64 tensors are rounded to float64. Nothing is rounded to a half type.
    """
    compute = np.float64 if first.dtype == np.float64 else np.float32
    total = first.astype(compute)
    magnitude = np.abs(first.astype(np.float64))
    with np.errstate(all="ignore"):
        for other in others:
            total = total + other.astype(compute)
            magnitude = magnitude + np.abs(other.astype(np.float64))
    return Expected(total.astype(np.float64), magnitude, np.zeros(()))


def normalized(
    values: Array, first_axis: int, scale: Array, shift: Array | None, epsilon: float
) -> tuple[Expected, Expected, Expected]:
    """Layer normalization of float64 ``values`` over the axes from ``first_axis`` to the last.

    ``scale`` and ``shift`` keep the dtype of the tensors and broadcast to the values; ``epsilon``
    is rounded to float32. Returns the normalized values, the mean and the inverse standard
    deviation 1 / sqrt(variance + epsilon), the normalized axes of the last two kept with size 1.

    Formula: ONNX operator LayerNormalization (stages one and two).
    """
    axes = tuple(range(first_axis, values.ndim))
    with np.errstate(all="ignore"):
        mean = values.mean(axes, keepdims=True)
        # Float64 rounds the mean as well; for float64 tensors that shows, so centre once more.
        rest = (values - mean).mean(axes, keepdims=True)
        output, inverse = _scaled((values - mean) - rest, axes, scale, shift, epsilon)
        mean = np.where(np.isfinite(rest), mean + rest, mean)
        size = np.abs(values).max(axes, keepdims=True)
        return output, Expected(mean, size, np.zeros(())), inverse


def simplified(values: Array, first_axis: int, scale: Array, epsilon: float) -> tuple[Expected, Expected]:
    """Division by the root mean square instead: like :func:`normalized` with a mean and shift of 0.

    Returns the normalized values and 1 / sqrt(mean(values**2) + epsilon).

    Formula: ONNX operator RMSNormalization (stages one and two).
    """
    with np.errstate(all="ignore"):
        return _scaled(values, tuple(range(first_axis, values.ndim)), scale, None, epsilon)


def _scaled(
    centred: Array, axes: tuple[int, ...], scale: Array, shift: Array | None, epsilon: float
) -> tuple[Expected, Expected]:
    gamma = scale.astype(np.float64)
    beta = np.zeros(()) if shift is None else shift.astype(np.float64)
    # float16 is judged by its own steps, which are wide enough where the answer is near 0, unless the scale
    # enlarges the rounding errors of float32. bfloat16's steps are not: it has float32's range, so there
    # float32 arithmetic needs float32's floor.
    largest = np.max(np.abs(gamma), initial=1.0, where=np.isfinite(gamma))
    floor = np.asarray(largest if scale.dtype != np.float16 or largest > 1 else 0.0)
    square = (centred * centred).mean(axes, keepdims=True)
    inverse = 1.0 / np.sqrt(square + float(np.float32(epsilon)))
    scaled = centred * inverse * gamma
    return (
        Expected(scaled + beta, np.abs(scaled) + np.abs(beta), np.asarray(floor)),
        Expected(inverse, np.abs(inverse), np.zeros(())),
    )
