"""What the number formats mean, from their definitions and in float64: the kernels share nothing with this.

E2M1: OCP microscaling formats 1.0. E4M3: OCP 8-bit floating point 1.0, no infinities, NaN where all bits but the sign
are set. NVFP4: 16 neighbours share an E4M3 scale, and all weights a float32 factor.
"""

from __future__ import annotations

NVFP4_BLOCK = 16
E2M1_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e2m1_values() -> list[float]:
    """Of the codes 0 to 15."""
    return [*E2M1_MAGNITUDES, *(-value for value in E2M1_MAGNITUDES)]


def e4m3_value(code: int) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if code & 0x7F == 0x7F:
        return float("nan")
    if exponent == 0:
        return sign * mantissa / 8 * 2.0**-6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def e4m3_values() -> list[float]:
    """Of the codes 0 to 255."""
    return [e4m3_value(code) for code in range(256)]
