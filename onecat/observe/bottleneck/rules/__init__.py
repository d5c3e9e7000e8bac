"""One module for each kind of bottleneck: `rule(window) -> Reading | None`, and RANK, its place among equals."""
