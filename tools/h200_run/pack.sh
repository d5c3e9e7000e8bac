#!/bin/sh
# Make what the GPU machine cannot make by itself, into FOLDER (which git ignores): pack.sh FOLDER
#   overlay.tar   vLLM's Python files with the series on them
#   device.ptx    the kernels (device_code.py); source.tar.gz: what the series' build hook needs (patched_source.py)
#   models.tar    the small model as NVFP4 and FP8, and plain copies of both
#   gemma.tar     the last transformers with which vLLM 0.27.1 reads Gemma 4: from 5.15 on its configuration raises where
#                 vLLM asks for one head size
# The wheels of vLLM and what it requires come beside it (parts p.00, p.01, p.02 and s/up.sh), from another tool.
set -eu
[ $# -eq 1 ] || { echo "usage: pack.sh FOLDER" >&2; exit 2; }
tools=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$tools/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=$root/.venv/bin/python
onecat=$root/.venv/bin/onecat

"$python" "$tools/overlay.py" "$out/overlay.tar"
"$python" "$tools/device_code.py" "$out/device.ptx"
"$python" "$tools/patched_source.py" "$out/source.tar.gz"

models=$scratch/models
mkdir "$models"
"$onecat" model convert "$root/models/small" "$models/small-w4a16" >/dev/null
"$onecat" model dequantize "$models/small-w4a16" "$models/small-plain" >/dev/null
"$onecat" model convert --scheme fp8-block "$root/models/small" "$models/small-fp8" >/dev/null
"$onecat" model dequantize "$models/small-fp8" "$models/small-fp8-plain" >/dev/null
tar -cf "$out/models.tar" -C "$models" .

"$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp --abi abi3 \
    --abi none --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
    -d "$scratch/wheels" transformers==5.14.1 tokenizers==0.22.2
mkdir "$scratch/gemma"
for wheel in "$scratch"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$scratch/gemma"; done
tar -cJf "$out/gemma.tar" -C "$scratch/gemma" .
ls -l "$out"
