#!/bin/sh
# Starts the server with the container's arguments. The bearer key comes from a file, so that no argument, label or
# image layer holds it.
set -eu
if [ -r /run/secrets/api_key ]; then
    VLLM_API_KEY="$(cat /run/secrets/api_key)"
    export VLLM_API_KEY
fi
exec vllm serve "$@"
