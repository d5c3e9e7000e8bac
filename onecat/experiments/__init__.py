"""Experiments: load on a deployment, measured so that it says something.

In: an endpoint, a workload, how requests arrive, and a driver that lets the engine's own benchmark send them. Out:
result files (`records`), statistics over them, comparisons and verdicts.
"""
