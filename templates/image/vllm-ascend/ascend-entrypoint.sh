#!/bin/bash
# Starts the server with CANN's variables. CANN sets them by scripts of its own, which upstream's image reads for root's
# interactive shell alone.
root=/usr/local/Ascend
for script in "$root/ascend-toolkit/set_env.sh" "$root/cann/set_env.sh"; do
    if [ -f "$script" ]; then
        # shellcheck disable=SC1090
        . "$script"
        break
    fi
done
if [ -f "$root/nnal/atb/set_env.sh" ]; then
    # shellcheck disable=SC1091
    . "$root/nnal/atb/set_env.sh"
fi
# The driver's libraries are the host's, mounted here.
driver=$root/driver/lib64
export LD_LIBRARY_PATH="$driver:$driver/common:$driver/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec /usr/local/bin/onecat-entrypoint "$@"
