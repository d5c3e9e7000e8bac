"""Student's t distribution, and the normal one: what scipy has, without scipy."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

_ROUNDS = 500
_EXACT = 1e-15
_TINY = 1e-300


def t_probability(t: float, degrees: float) -> float:
    """P(T <= t) for Student's t distribution.

    degrees: of freedom, more than 0; need not be whole.
    https://dlmf.nist.gov/8.17 (regularised incomplete beta function), https://en.wikipedia.org/wiki/Student's_t-distribution
    """
    if math.isinf(degrees):
        return NormalDist().cdf(t)
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    # Of the two forms, the one whose argument does not lose digits by rounding to 1.
    square = t * t
    if square < degrees:
        inside = _beta(0.5, degrees / 2, square / (degrees + square))
        tail = (1 - inside) / 2
    else:
        tail = _beta(degrees / 2, 0.5, degrees / (degrees + square)) / 2
    return tail if t < 0 else 1 - tail


@functools.lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """The value that T stays below with `probability`, which is between 0 and 1."""
    if not 0 < probability < 1:
        raise ValueError(f"a probability between 0 and 1 is needed, not {probability}")
    if math.isinf(degrees):
        return NormalDist().inv_cdf(probability)
    if probability == 0.5:
        return 0.0
    tail = min(probability, 1 - probability)
    low, high = -1.0, 0.0
    while t_probability(low, degrees) > tail:
        low, high = low * 2, low
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_probability(middle, degrees) > tail:
            high = middle
        else:
            low = middle
    found = (low + high) / 2
    return found if probability < 0.5 else -found


def _beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # there the fraction converges slowly, that of the complement fast
        return 1 - _beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # Lentz's method: https://dlmf.nist.gov/3.10#iii
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or _TINY)
    fraction = d
    for m in range(1, _ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + even * d) or _TINY)
        c = (1 + even / c) or _TINY
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / ((1 + odd * d) or _TINY)
        c = (1 + odd / c) or _TINY
        step = d * c
        fraction *= step
        if abs(step - 1) < _EXACT:
            break
    return front * fraction / a
