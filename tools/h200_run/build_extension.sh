#!/bin/sh
# Build vllm_volta._C on a GPU machine that has no nvcc for a V100 and no network, through the series' own build:
#   build_extension.sh OUT_DIR DEVICE_CODE [SOURCE]
# DEVICE_CODE: PTX (device_code.py). SOURCE: the patched source of vLLM, a folder or an archive (patched_source.py);
# without it, or if its CMakeLists.txt cannot be configured here, the standalone CMakeLists.txt of vllm_volta builds the
# same sources with the same kernels.cmake, and this says so. Leaves OUT_DIR/vllm_volta, the package with its extension,
# and logs.
#
# The architecture list says 7.5 only because this nvcc must know it and the external projects, which a network would be
# needed for, are left out below 8.0: nothing of the extension is compiled by nvcc. CUTLASS and libcuda are empty
# stand-ins: upstream's CMakeLists.txt wants them to be there, the extension uses neither.
set -eu
[ $# -ge 2 ] || { echo "usage: build_extension.sh OUT_DIR DEVICE_CODE [SOURCE]" >&2; exit 2; }
package=$(cd "$(dirname "$0")/../.." && pwd)/patches/vllm-0.27.1/add/vllm_volta
mkdir -p "$1"
out=$(cd "$1" && pwd)
code=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
[ -f "$code" ] || { echo "there is no $code" >&2; exit 2; }
source=${3:-}
python=$(command -v "${PYTHON:-python3}")

toolkit=${CUDA_HOME:-/usr/local/cuda}
[ -f "$toolkit/include/cuda.h" ] || toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
[ -f "$toolkit/include/cuda.h" ] || { echo "no CUDA headers in $toolkit: CUDA_HOME=FOLDER" >&2; exit 2; }
export CUDA_HOME="$toolkit" PATH="$toolkit/bin:$PATH"

built() { # HOW FILE PACKAGE
    rm -rf "$out/vllm_volta"
    cp -R "$3" "$out/vllm_volta"
    cp "$2" "$out/vllm_volta/_C.abi3.so"
    echo "$1: $out/vllm_volta/_C.abi3.so, $(wc -c <"$2") bytes, with $(wc -c <"$code") bytes of device code"
}

configure_the_series() {
    tree=$source
    if [ -f "$source" ]; then
        tree=$out/source
        rm -rf "$tree" && mkdir -p "$tree" && tar -xf "$source" -C "$tree" --strip-components=1 || return 1
    fi
    mkdir -p "$out/stand-ins/cutlass"
    echo 'project(cutlass NONE)' >"$out/stand-ins/cutlass/CMakeLists.txt"
    cc -shared -o "$out/stand-ins/libcuda.so" -x c /dev/null || return 1
    nvrtc=$(find "$toolkit/lib64/" -name "libnvrtc.so*" | head -n 1)
    [ -n "$nvrtc" ] || nvrtc=$("$python" -c "
import pathlib, torch
found = pathlib.Path(torch.__file__).parents[1].glob('nvidia/*/lib/libnvrtc.so.*')
print(next(iter(sorted(found)), ''))")
    TORCH_CUDA_ARCH_LIST=7.5 VLLM_CUTLASS_SRC_DIR="$out/stand-ins/cutlass" GIT_ALLOW_PROTOCOL=none \
        cmake -S "$tree" -B "$out/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DVLLM_TARGET_DEVICE=cuda \
        -DVLLM_PYTHON_EXECUTABLE="$python" -DFETCHCONTENT_BASE_DIR="$out/build/deps" \
        -DCUDA_TOOLKIT_ROOT_DIR="$toolkit" -DCUDA_nvrtc_LIBRARY="$nvrtc" -DCMAKE_LIBRARY_PATH="$out/stand-ins" \
        -DVLLM_VOLTA_DEVICE_CODE="$code" || return 1
}

alone() {
    cmake -S "$package" -B "$out/build-alone" -G Ninja \
        -DPython_EXECUTABLE="$python" -DCUDAToolkit_ROOT="$toolkit" -DVLLM_VOLTA_DEVICE_CODE="$code" || return 1
    cmake --build "$out/build-alone" || return 1
}

log=$out/build.log
if [ -n "$source" ]; then
    if configure_the_series >"$log" 2>&1; then
        if cmake --build "$out/build" --target vllm_volta._C >>"$log" 2>&1 &&
            cmake --install "$out/build" --prefix "$out/installed" --component vllm_volta._C >>"$log" 2>&1; then
            built "built by the series' hook in vLLM's CMakeLists.txt" "$out/installed/vllm_volta/_C.abi3.so" \
                "$tree/vllm_volta"
            exit 0
        fi
        tail -n 30 "$log" >&2
        exit 1
    fi
    cp "$log" "$out/configure.log"
    echo "vLLM's CMakeLists.txt cannot be configured here ($out/configure.log ends with):" >&2
    tail -n 15 "$log" >&2
fi
if ! alone >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    exit 1
fi
built "built by vllm_volta's own CMakeLists.txt" "$out/build-alone/_C.abi3.so" "$package"
