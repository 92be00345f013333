#!/usr/bin/env bash
# Installs a program from crates.io in this version, unless it is there: target/tools/bin.
# usage: tools/tool.sh PROGRAM VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x "target/tools/bin/$1" ] || ! grep -q "^\"$1 $2 " target/tools/.crates.toml 2> /dev/null; then
  echo "$1 $2 is being built in target/tools: some minutes, once" >&2
  cargo install --quiet --locked --root target/tools --target-dir target/tools/build --version "$2" "$1"
fi
