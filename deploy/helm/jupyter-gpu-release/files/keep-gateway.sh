#!/bin/sh
# Puts the gateway on this pod's Ray, and puts it back there when it is gone. The arguments are those of `start`.
# A gateway that dies is restarted by Ray; where Ray itself was started anew, somebody has to put the gateway on it.
# It never ends by itself: with Ray's autoscaler, KubeRay has a container that ended stay so (restartPolicy: Never).
trap 'exit 0' TERM INT
while true; do
    python3 /jupyter-gpu/scripts/gateway-ready.py
    if [ $? -eq 2 ]; then
        # in the background: a shell hears a signal only when what it waits for can be left
        jupyter-gpu start "$@" &
        wait $! || echo "the next try is in 2 s" >&2
    fi
    sleep 2 &
    wait $!
done
