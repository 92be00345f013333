#!/usr/bin/env bash
# Runs two commands at the same time. The output of the first is printed after the second has ended. Fails if either fails.
# usage: tools/beside.sh "COMMAND" "THE OTHER COMMAND"
set -uo pipefail

said=$(mktemp)
trap 'rm -f "$said"' EXIT
bash -c "$1" >"$said" 2>&1 &
beside=$!
bash -c "$2"
other=$?
wait "$beside"
one=$?
cat "$said"
[ "$one" -eq 0 ] && [ "$other" -eq 0 ]
