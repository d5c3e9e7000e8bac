#!/bin/sh
# check-compilers LOWEST HIGHEST CUDA: whether $CXX is a GCC of LOWEST to HIGHEST and nvcc is of CUDA's release (as 12.6).
set -u
refuse() {
    echo "onecat: found: $1" >&2
    echo "onecat: expected: $2" >&2
    echo "onecat: next: $3" >&2
    exit 1
}
between() {
    [ "$(printf '%s\n' "$1" "$2" "$3" | sort --version-sort | sed -n 2p)" = "$2" ]
}
release=$(nvcc --version 2>/dev/null | sed -n 's/^.*, release \([0-9.]*\).*$/\1/p')
[ -n "$release" ] || refuse "there is no nvcc in this image" "CUDA's compiler of release $3" \
    "name a devel image of CUDA $3 as image.variables.build_base in the profile"
[ "$release" = "$3" ] || refuse "nvcc of CUDA $release" "nvcc of CUDA $3, the one torch's wheels are built with" \
    "name a devel image of CUDA $3 as image.variables.build_base in the profile"
compiler=$("$CXX" -dumpfullversion 2>/dev/null)
[ -n "$compiler" ] || refuse "there is no working $CXX in this image" "GCC $1 to $2" \
    "name a base image whose distribution has it"
between "$1" "$compiler" "$2" || refuse "$CXX is GCC $compiler" "GCC $1 to $2: nvcc $3 takes no newer one, PyTorch no older one" \
    "name a base image whose distribution has such a GCC as image.variables.build_base in the profile"
echo "onecat: GCC $compiler, nvcc $release"
