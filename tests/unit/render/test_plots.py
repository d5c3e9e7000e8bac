"""Charts: values at the right coordinates, ticks that people can read, colours that can be told apart."""

from __future__ import annotations

import itertools
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onecat.render.plots import (
    SERIES,
    Area,
    Axis,
    Chart,
    Crosses,
    Dots,
    Path,
    Rule,
    Whiskers,
    chart_svg,
    doubling_scale,
    fitting_scale,
    linear_scale,
    logarithmic_scale,
    swatch_svg,
    time_scale,
)
from onecat.resources import resource_directory

SVG = "{http://www.w3.org/2000/svg}"
LEFT, RIGHT, TOP, BOTTOM = 56.0, 460.0, 30.0, 254.0
"""The frame of a chart in its view box of 480 by 300."""


@settings(deadline=None)
@example(0.0, 5e-324)
@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_linear_scale_holds_its_values_with_round_ticks(one, other):
    low, high = sorted((one, other))
    scale = linear_scale(low, high)
    little = 1e-6 * (scale.high - scale.low)
    assert scale.low <= low + little
    assert scale.high >= high - little
    assert 2 <= len(scale.ticks) <= 8
    assert all(scale.low - little <= value <= scale.high + little for value, _ in scale.ticks)
    if high - low > 1e-3 * max(abs(low), abs(high)):
        assert len({text for _, text in scale.ticks}) == len(scale.ticks)


@settings(deadline=None)
@given(st.floats(1e-6, 1e9), st.floats(1, 1e9))
def test_a_logarithmic_scale_holds_its_values_with_round_ticks(low, factor):
    high = low * factor
    scale = logarithmic_scale(low, high)
    assert scale.low <= low * (1 + 1e-8)
    assert scale.high >= high * (1 - 1e-8)
    assert 1 <= len(scale.ticks) <= 8
    for value, _ in scale.ticks:
        assert scale.low <= value <= scale.high
        assert f"{value:.0e}"[0] in "1235"


@pytest.mark.parametrize(
    ("scale", "texts"),
    [
        (linear_scale(0, 100), ["0", "20", "40", "60", "80", "100"]),
        (linear_scale(0, 0.7), ["0.0", "0.2", "0.4", "0.6"]),
        (linear_scale(0, 1170), ["0", "200", "400", "600", "800", "1000", "1200"]),
        (linear_scale(0, 90_000), ["0", "20k", "40k", "60k", "80k"]),
        (linear_scale(-3, 5), ["-2", "0", "2", "4"]),
        (linear_scale(0, 0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (logarithmic_scale(3, 80), ["2", "5", "10", "20", "50", "100"]),
        (logarithmic_scale(3, 800), ["3", "10", "30", "100", "300", "1000"]),
        (logarithmic_scale(0.02, 50_000), ["0.1", "1", "10", "100", "1000", "10k"]),
        (time_scale(95), ["0", "20", "40", "60", "80", "100"]),
        (time_scale(7 * 60), ["0", "2", "4", "6", "8"]),
        (time_scale(72 * 3600), ["0", "12", "24", "36", "48", "60", "72"]),
        (doubling_scale([1, 2, 4, 8, 16]), ["1", "2", "4", "8", "16"]),
        (doubling_scale([4, 8]), ["0", "4", "8"]),
    ],
)
def test_ticks_are_what_a_person_would_write(scale, texts):
    assert [text for _, text in scale.ticks] == texts


def test_units_of_time_fit_the_span():
    assert [time_scale(seconds).unit for seconds in (5, 600, 5 * 3600, 10 * 86400)] == ["s", "min", "h", "days"]


def test_a_wide_spread_is_shown_on_a_logarithmic_axis():
    assert fitting_scale([1, 100]).is_logarithmic
    assert not fitting_scale([10, 100]).is_logarithmic
    assert not fitting_scale([0, 100]).is_logarithmic
    assert not fitting_scale([1, 100], from_zero=True).is_logarithmic
    assert fitting_scale([]).ticks
    assert fitting_scale([math.nan, 5.0]).high >= 5


def a_chart(*marks, x=linear_scale(0, 100), y=linear_scale(0, 10)) -> ElementTree.Element:  # noqa: B008 - frozen
    return ElementTree.fromstring(chart_svg(Chart("A title", Axis("time, s", x), Axis("tokens/s", y), marks, "told")))


def drawn(svg: ElementTree.Element, look: str) -> list[str]:
    return [each.get("d", "") for each in svg.iter(f"{SVG}path") if look in each.get("class", "").split()]


def numbers(path: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", path)]


def test_a_line_goes_through_its_points():
    svg = a_chart(Path(((0, 0), (50, 5), (100, 10)), 1))
    (line,) = drawn(svg, "line")
    assert numbers(line) == [LEFT, BOTTOM, (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2, RIGHT, TOP]
    assert "s1" in next(each.get("class", "") for each in svg.iter(f"{SVG}path") if "line" in each.get("class", ""))


def test_a_stepped_line_keeps_its_height_up_to_the_next_point():
    (line,) = drawn(a_chart(Path(((0, 0), (50, 5), (100, 5)), is_stepped=True)), "line")
    assert line == "M56 254H258V142H460"


def test_a_logarithmic_axis_places_factors_evenly():
    scale = logarithmic_scale(1, 100)
    (line,) = drawn(a_chart(Path(((1, 0), (10, 0), (100, 0))), x=scale), "line")
    assert numbers(line)[::2] == [LEFT, (LEFT + RIGHT) / 2, RIGHT]


def test_dots_whiskers_areas_and_rules_lie_where_their_values_are():
    svg = a_chart(
        Dots(((50, 5), (50, 5), (100, 10)), 2),
        Whiskers(((50, 2.5, 7.5),), 3),
        Area(((0, 0, 5), (100, 0, 10))),
        Rule(5, "limit"),
        Rule(50, "objective", is_upright=True),
    )
    assert drawn(svg, "dots") == ["M258 142h0M460 30h0"], "points in one place are one dot"
    assert drawn(svg, "whisker") == ["M258 198V86M254 198h8M254 86h8"]
    assert drawn(svg, "area") == ["M56 142L460 30L460 254L56 254Z"]
    assert drawn(svg, "rule") == ["M56 142H460", "M258 30V254"]
    assert {"limit", "objective"} <= {each.text for each in svg.iter(f"{SVG}text")}


def test_values_outside_stay_in_the_chart():
    assert drawn(a_chart(Dots(((-5, 50),))), "dots") == ["M56 30h0"]


def test_ticks_stand_at_their_values():
    svg = a_chart()
    ends = {each.text: float(each.get("y", "0")) for each in svg.iter(f"{SVG}text") if each.get("class") == "tick end"}
    assert ends["0"] == pytest.approx(BOTTOM + 4)
    assert ends["10"] == pytest.approx(TOP + 4)
    below = [each for each in svg.iter(f"{SVG}text") if each.get("class") == "tick middle"]
    assert [each.get("x") for each in below if each.text in ("0", "100")] == [f"{LEFT:g}", f"{RIGHT:g}"]


def test_a_chart_is_told_to_those_who_cannot_see_it():
    svg = a_chart(
        Dots(((1, 1),), names=("p50 <1 ms>",), is_large=True),
        Crosses((2.0,), ("3 timed-out",)),
    )
    title, description = svg.find(f"{SVG}title"), svg.find(f"{SVG}desc")
    assert title is not None and description is not None
    assert svg.get("role") == "img"
    assert svg.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert (title.text, description.text) == ("A title", "told")
    told = [each.text for path in svg.iter(f"{SVG}path") for each in path.iter(f"{SVG}title")]
    assert told == ["p50 <1 ms>", "3 timed-out"]


def test_names_are_no_markup_and_forbidden_characters_are_replaced():
    hostile = "<script>alert(1)</script>&\x00\x1b[31m\u202e"
    axis = Axis(hostile, linear_scale(0, 1))
    svg = ElementTree.fromstring(chart_svg(Chart(hostile, axis, axis, ())))
    assert svg.find(f".//{SVG}script") is None
    title = svg.find(f"{SVG}title")
    assert title is not None and title.text is not None
    assert title.text.startswith("<script>alert(1)</script>&\ufffd")


def test_nothing_of_a_chart_needs_inline_styles_or_scripts():
    """A strict content security policy forbids both."""
    svg = a_chart(Path(((0, 0), (1, 1))), Dots(((1, 1),), names=("x",)), Rule(1, "y"))
    for each in svg.iter():
        assert each.tag not in (f"{SVG}script", f"{SVG}style", f"{SVG}image", f"{SVG}foreignObject")
        assert not [name for name in each.attrib if name == "style" or name.startswith("on") or "href" in name]


def test_a_chart_without_marks_has_its_axes():
    assert len(drawn(a_chart(), "grid")) == 1


# Colours.

PROTAN = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTAN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
TRITAN = ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))
"""How colours look to people without one of the kinds of cones: Machado, Oliveira and Fernandes (2009), severity 1,
https://doi.org/10.1109/TVCG.2009.113."""


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    bright, dark = sorted((float(linear(each) @ (0.2126, 0.7152, 0.0722)) for each in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def oklab(light: np.ndarray) -> np.ndarray:
    """https://bottosson.github.io/posts/oklab/"""
    cones = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ np.clip(light, 0, 1)
    )
    return (
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ cones
    )


def palettes() -> list[dict[str, str]]:
    """The variables of the style sheet: on a light ground, on a dark one, in print."""
    sheet = (resource_directory("templates") / "benchmarks" / "report.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    return [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in blocks]


@pytest.mark.parametrize("palette", palettes(), ids=["light", "dark", "print"])
def test_colours_hold_on_their_ground_and_for_people_who_see_few(palette):
    ground = palette["ground"]
    series = [palette[f"s{number}"] for number in range(SERIES)]
    assert all(contrast(each, ground) >= 3 for each in series), "WCAG 1.4.11: graphics"
    assert all(contrast(palette[each], ground) >= 4.5 for each in ("ink", "faint", "bad", "link")), "WCAG 1.4.3: text"
    assert contrast(palette["warn"], palette["warn-ground"]) >= 4.5
    for seen in (np.eye(3), *map(np.array, (PROTAN, DEUTAN, TRITAN))):
        found = [oklab(seen @ linear(each)) for each in series]
        assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(found, 2)) > 0.13


def test_series_have_dashes_of_their_own():
    sheet = (resource_directory("templates") / "benchmarks" / "report.css").read_text(encoding="utf-8")
    dashes = re.findall(r"\.line\.s(\d) \{ stroke-dasharray: ([^;]+);", sheet)
    assert len({dash for _, dash in dashes}) == SERIES - 1, "the first one is a whole line"
    assert ElementTree.fromstring(swatch_svg(3)).find(f"{SVG}path") is not None
