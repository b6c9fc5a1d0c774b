#!/bin/sh
# An external worker in POSIX sh with curl: claims runs, executes a command for each, reports.
#   PENSTOCK_URL=http://127.0.0.1:8080 PENSTOCK_API_KEY=pnk_… ./worker.sh COMMAND [ARGUMENT…]
# The command gets the run as JSON on standard input; its exit code decides: 0 completes the run.
set -u
: "${PENSTOCK_URL:?set PENSTOCK_URL}" "${PENSTOCK_API_KEY:?penstock keys create NAME --role worker}"
worker=${WORKER_ID:-$(uname -n)-$$}
trap 'stopping=1' TERM INT # the current run is finished first
stopping=

post() { # path body
    curl --silent --show-error --fail-with-body --max-time 60 --retry 3 "$PENSTOCK_URL/api/v1$1" \
        --header "Authorization: Bearer $PENSTOCK_API_KEY" \
        --header 'Content-Type: application/json' --data "$2"
}

field() { # name: the first value of that name in the JSON on standard input
    tr '{,' '\n\n' | sed -n "s/^ *\"$1\": *\"\{0,1\}\([A-Za-z0-9_-]*\).*/\1/p" | head -n 1
}

echo "$worker waiting for work"
while [ -z "$stopping" ]; do
    claim=$(post /scheduler/claim-runs \
        "{\"worker_id\": \"$worker\", \"max_claims\": 1, \"wait_seconds\": ${WAIT_SECONDS:-10}}") || {
        echo "cannot work: $claim"
        sleep 1
        continue
    }
    run=$(printf '%s' "$claim" | field run_id)
    [ -n "$run" ] || continue
    held="\"worker_id\": \"$worker\", \"fencing_token\": $(printf '%s' "$claim" | field fencing_token)"
    post "/pipeline-runs/$run/start" "{$held}" >/dev/null || continue
    while sleep "${BEAT_SECONDS:-60}"; do post "/pipeline-runs/$run/heartbeat" "{$held}"; done >/dev/null 2>&1 &
    beat=$!
    if printf '%s' "$claim" | "$@"; then
        end=complete body="{$held}"
    else
        end=fail body="{$held, \"error_type\": \"EXIT_$?\", \"error_details\": {\"command\": \"$1\"}}"
    fi
    kill "$beat" 2>/dev/null
    echo "$run $(post "/pipeline-runs/$run/$end" "$body" | field state)"
done
