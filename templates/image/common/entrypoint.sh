#!/bin/sh
# Starts the server with the container's arguments and tells a crash from a stop. The bearer key comes from a file, so
# that no argument, label or image layer holds it.
set -u
if [ -r /run/secrets/api_key ]; then
    VLLM_API_KEY="$(cat /run/secrets/api_key)"
    export VLLM_API_KEY
fi
vllm serve "$@" &
server=$!
stopped=
trap 'stopped=yes; kill -TERM "$server" 2>/dev/null' TERM INT

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
