#!/bin/bash
# sweep.sh compute|comm CONFIG: a sweep over all workers that are ready. Certificates can have the names by which workers are called: they are made of
# the pods' addresses, *.neuroshard-worker.neuroshard.svc.
set -eu
NEUROSHARD_WORKERS=$(getent ahostsv4 neuroshard-worker | awk '{print $1}' | sort -u | tr . - | sed 's/$/.neuroshard-worker.neuroshard.svc:50061/' | paste -sd,)
[ -n "$NEUROSHARD_WORKERS" ] || { echo "no worker is ready" >&2; exit 1; }
export NEUROSHARD_WORKERS
exec neuroshard sweep "$@"
