"""Statistics of measurements: estimates with intervals, and verdicts on pairs of blocks. Pure.

In: plain sequences of numbers, and which block (repetition) each was measured in. Out: `Estimate`s, which have an
interval or say why they have none, and `PairedComparison`s. Requests of one block share the machine's state, so they
are not independent: wherever blocks are given, intervals are made from what differs between blocks.
"""

from onecat.observe.statistics.counting import errors_by_kind, ratio_interval, share_interval
from onecat.observe.statistics.latencies import Latencies, latencies
from onecat.observe.statistics.means import mean_interval
from onecat.observe.statistics.pairing import (
    DECIDE_AT,
    LEAST_PAIRS,
    PairedComparison,
    Word,
    compare_pairs,
    log_ratio,
    pairs_needed,
)
from onecat.observe.statistics.percentiles import LEAST_BLOCKS, least_for_percentile, percentile, percentile_interval
from onecat.observe.statistics.records import Estimate
from onecat.observe.statistics.sequential import Look, looks
from onecat.observe.statistics.slopes import slope_interval
from onecat.observe.statistics.student import t_probability, t_quantile

__all__ = [
    "DECIDE_AT",
    "LEAST_BLOCKS",
    "LEAST_PAIRS",
    "Estimate",
    "Latencies",
    "Look",
    "PairedComparison",
    "Word",
    "compare_pairs",
    "errors_by_kind",
    "latencies",
    "least_for_percentile",
    "log_ratio",
    "looks",
    "mean_interval",
    "pairs_needed",
    "percentile",
    "percentile_interval",
    "ratio_interval",
    "share_interval",
    "slope_interval",
    "t_probability",
    "t_quantile",
]
