# Every target is a thin call of one script; `make help` lists them.
PYTHON ?=
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help venv quickstart test unit bench bench-diagnose bench-fleet bench-ab bench-up bench-inspect bench-pull bench-convert bench-kernels bench-attention lock clean clean-cache

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

venv: ## Make .venv with onecat and its locked packages (PYTHON=... chooses the interpreter)
	@sh scripts/venv.sh core

quickstart: ## Set everything up and answer a chat completion from a real vLLM on this machine
	@sh scripts/quickstart.sh

test: ## As root: install what the tests need, then lint, type-check and run every test
	@sh scripts/test.sh

unit: ## The unit tests only: no root, no services, about two minutes
	@sh scripts/venv.sh dev
	@.venv/bin/python -m pytest -q -n auto --dist worksteal tests/unit

bench: ## Measure onecat --help against the smallest possible Typer program
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/startup.py

bench-diagnose: ## Measure diagnose on logs of 1 GB next to grep
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/diagnose.py

bench-fleet: ## As root: measure doctor on 16 containers with sshd next to pyinfra and ansible
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/doctor_fleet.py

bench-ab: ## As root: see that bench ab finds a slow-down of 5 %, and none between a server and itself
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/ab.py

bench-up: ## As root: measure what onecat up adds to the start of a container by hand
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/up_overhead.py

bench-inspect: ## Measure model inspect on a sparse checkpoint of 400 GB next to safetensors, and hashing
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/model_inspect.py

bench-pull: ## Measure model pull next to curl and aria2c, from an nginx on this machine
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/model_pull.py

bench-convert: ## Measure quantising and dequantising next to compressed-tensors, and model convert's memory
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/model_convert.py

bench-kernels: ## Predict what bounds the kernels on a V100 (NVDISASM=...); with a GPU: bench/kernels/README.md
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/kernels/volta_model.py $(if $(NVDISASM),--nvdisasm $(NVDISASM))

bench-attention: ## Predict what bounds attention on a V100 (NVDISASM=...); with a GPU: bench/attention/README.md
	@sh scripts/venv.sh dev
	@.venv/bin/python bench/attention/volta_model.py $(if $(NVDISASM),--nvdisasm $(NVDISASM))

lock: ## Resolve requirements/*.lock anew from pyproject.toml
	@sh scripts/lock.sh

clean: ## Remove what make made in this checkout
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find onecat tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

clean-cache: ## Remove what the tests keep outside the checkout (ONECAT_TEST_CACHE)
	@sh scripts/clean_cache.sh
