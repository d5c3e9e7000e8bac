"""Plots: charts as SVG that stands inside an HTML page. Pure.

In: points, scales, what to call them. Out: one `<svg>` element as text, a few KB, that takes its colours from the
page's style sheet (so it is legible on light and dark grounds and in print) and shows its values to the pointer and to
screen readers without any script.

A plotting library is not used: matplotlib with what it needs is 100 MB of a core install that is 30 MB, and draws
pictures with fixed colours; plotly puts 4 MB of script into each page, which a strict content security policy stops.
Six kinds of marks and two kinds of scales are all that reports need.
"""

from onecat.render.plots.charts import (
    SERIES,
    Area,
    Axis,
    Chart,
    Crosses,
    Dots,
    Mark,
    Path,
    Rule,
    Whiskers,
    chart_svg,
    swatch_svg,
)
from onecat.render.plots.markup import tag, text, void_tag
from onecat.render.plots.scales import Scale, doubling_scale, fitting_scale, linear_scale, logarithmic_scale, time_scale

__all__ = [
    "SERIES",
    "Area",
    "Axis",
    "Chart",
    "Crosses",
    "Dots",
    "Mark",
    "Path",
    "Rule",
    "Scale",
    "Whiskers",
    "chart_svg",
    "doubling_scale",
    "fitting_scale",
    "linear_scale",
    "logarithmic_scale",
    "swatch_svg",
    "tag",
    "text",
    "time_scale",
    "void_tag",
]
