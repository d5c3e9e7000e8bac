"""Live: looks at deployments that run: their logs as they come, their load, whether they are fit for traffic.

In: the stores of a deployment on its hosts. Out: merged log lines with diagnoses, samples of GPUs and engines with a
reading of the bottleneck, findings of the checks before going live.
"""
