#!/usr/bin/env bash
# Runs one command while another runs. What it said comes after the other has ended. Fails if either does.
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
