"""Logs of real programs: failures provoked on purpose, and healthy runs, kept as fixtures for tests without an engine.

failures.py provokes, healthy.py lets things go well, cleaning.py takes out what belongs to this machine.
`python tools/real_logs/make.py` writes the files below tests/fixtures/logs again.
"""
