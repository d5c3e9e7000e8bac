#!/bin/sh
# Starts the server with the container's arguments and tells a crash from a stop. The bearer key comes from a file, so
# that no argument, label or image layer holds it.
set -u
key_file=/run/secrets/api_key
if [ -e "$key_file" ]; then
    # A key that was asked for and cannot be had must not end in a server that wants none. 78: EX_CONFIG (sysexits.h).
    if ! VLLM_API_KEY="$(cat "$key_file")"; then
        echo "onecat: user $(id -u) cannot read $key_file: not starting without the API key" >&2
        exit 78
    fi
    case "$VLLM_API_KEY" in
    *[![:space:]]*) export VLLM_API_KEY ;;
    *)
        echo "onecat: $key_file is empty: not starting without the API key" >&2
        exit 78
        ;;
    esac
fi
# Compiled kernels are kept in a volume; without one, below a read-only root, they last as long as the container.
if [ -d /var/cache/onecat ] && [ ! -w /var/cache/onecat ]; then
    export TRITON_CACHE_DIR=/tmp/cache/triton TORCHINDUCTOR_CACHE_DIR=/tmp/cache/inductor VLLM_CACHE_ROOT=/tmp/cache/vllm
fi
server=
stopped=
trap 'stopped=yes; [ -z "$server" ] || kill -TERM "$server" 2>/dev/null' TERM INT
vllm serve "$@" &
server=$!
# A stop may have come while there was no process yet to pass it on to.
[ -z "$stopped" ] || kill -TERM "$server" 2>/dev/null

# A trapped signal ends `wait` early; the server's own status comes with a later one.
wait "$server"
status=$?
while kill -0 "$server" 2>/dev/null; do
    wait "$server"
    status=$?
done

if [ -n "$stopped" ]; then exit 0; fi
# vLLM's API server ends with status 0 when its engine has died (vllm-project/vllm issue 53726); a restart policy
# "on-failure" must see that as the failure it is.
if [ "$status" -eq 0 ]; then exit 1; fi
exit "$status"
