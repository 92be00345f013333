#!/usr/bin/env bash
# Installs the Debian packages that `make demo`, `make test` and `make bench` need, or says which are missing.
# usage: tools/deps.sh PROGRAM=PACKAGE ...
set -euo pipefail

missing=()
for pair in "$@"; do
  command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair#*=}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
  echo "installing: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq "${missing[@]}" >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -y -qq "${missing[@]}" >/dev/null; }
else
  echo "missing programs; please install these Debian packages (or their like) and try again:" >&2
  echo "    sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
