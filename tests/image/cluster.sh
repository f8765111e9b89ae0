# The nodes and the deployment of cluster/compose.yaml in one network namespace: head, worker, gateway. Prints the status
# of /v1/collections without and with an API key. HEAD, WORKER and GATEWAY are the commands, with other ports for the
# second node of the same machine.
set -eu
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=/tmp/auth_token
export RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=serve.http.request_ids:serve_middlewares
(umask 077; od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > /tmp/auth_token)
key=$(rag keys create --role admin --name check --json | python -c 'import json, sys; print(json.load(sys.stdin)["key"])')
patiently() { for _ in $(seq 600); do "$@" > /tmp/last.log 2>&1 && return; sleep 2; done; cat /tmp/last.log >&2; exit 1; }
status() { python -c '
import sys, urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:8000" + sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
try:
    print(urllib.request.urlopen(request, timeout=60).status)
except urllib.error.HTTPError as error:
    print(error.code)
' "$@"; }
(until $HEAD; do sleep 1; done) > /tmp/head.log 2>&1 &  # as `restart` of the Compose file
patiently ray health-check --address 127.0.0.1:6379
(until $WORKER; do sleep 1; done) > /tmp/worker.log 2>&1 &
patiently $GATEWAY
patiently sh -c "$HEALTH"
status /v1/collections none
status /v1/collections "$key"
