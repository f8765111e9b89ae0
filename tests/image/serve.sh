# `rag serve` from its start to SIGTERM. Prints what the health check HEALTH says before and after the start, and the exit
# code. Ray gives up after 30 s on a busy machine: only then is the start repeated.
healthy() { sh -c "$HEALTH" 2> /dev/null; }
start() {
  rag serve --quiet 2> /tmp/serve.log & server=$!
  until healthy; do kill -0 $server 2> /dev/null || return 1; sleep 1; done
}
healthy || echo unhealthy
until start; do cat /tmp/serve.log >&2; grep -q 'timed out during startup' /tmp/serve.log || exit 1; done
echo healthy
kill -TERM $server
wait $server; echo "exit code $?"
cat /tmp/serve.log >&2
