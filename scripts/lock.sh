#!/bin/sh
# Resolve requirements/*.lock from pyproject.toml for Python 3.10 and newer, with hashes, by uv in a venv of its own.
set -eu
cd "$(dirname "$0")/.."
sh scripts/venv.sh dev
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
.venv/bin/python -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install -q --disable-pip-version-check uv

compile() {
    "$scratch/venv/bin/uv" pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
        --no-emit-index-url --no-annotate --no-header "$@" >&2
}
compile --group build -o requirements/core.lock
compile --group dev -c requirements/core.lock -o requirements/dev.lock
echo "onecat: requirements/core.lock and requirements/dev.lock are written; run make test before you commit them" >&2
