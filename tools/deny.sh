#!/usr/bin/env bash
# Checks licences, sources, duplicates and advisories of everything that is linked in.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo deny --version >/dev/null 2>&1; then
  if [ -n "${CI:-}" ]; then
    cargo install --quiet --locked cargo-deny
  else
    echo "deny: skipped, cargo-deny is not installed (cargo install --locked cargo-deny)"
    exit 0
  fi
fi
cargo deny --log-level error check bans licenses sources
# The database of advisories is fetched; without a way to it, say so rather than fail.
if ! output=$(cargo deny --log-level error check advisories 2>&1); then
  if grep -qE 'failed to fetch advisory database|unable to fetch|failed to (acquire|clone|load)' <<<"$output"; then
    echo "deny: advisories not checked, their database is out of reach"
  else
    echo "$output"
    exit 1
  fi
fi
