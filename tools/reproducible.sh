#!/usr/bin/env bash
# Builds and packs this commit a second time: in another directory, by another user's cargo, umask, time zone and language. The binary, the
# packages and the bill of materials must be the same bytes as here. Takes what a release build takes.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] || { echo 'reproducible: commit what changed first: the second build has only the commit' >&2; exit 1; }

unset CARGO_TARGET_DIR
make --silent deb rpm > /dev/null

home=${CARGO_HOME:-$HOME/.cargo}
elsewhere=$(mktemp -d)
tree=$elsewhere/a/longer/name
trap 'git worktree remove --force "$tree"; rm -rf "$elsewhere"' EXIT
git worktree add --quiet --detach "$tree" HEAD
mkdir -p "$elsewhere/cargo/registry" "$tree/target"
# Files and not links to them, which cargo follows.
[ ! -e "$home/config.toml" ] || cp "$home/config.toml" "$elsewhere/cargo"
cp -al "$home/registry/." "$elsewhere/cargo/registry" 2> /dev/null || cp -a "$home/registry/." "$elsewhere/cargo/registry"
ln -s "$PWD/target/tools" "$tree/target/tools"
(
  umask 077
  export CARGO_HOME=$elsewhere/cargo TZ=Asia/Kathmandu LC_ALL=C
  make --silent -C "$tree" deb rpm > /dev/null
)
(cd "$tree/target" && sha256sum release/parda release/parda-lab packages/*) | (cd target && sha256sum --check --strict) ||
  { echo 'reproducible: target/ and the second build differ; diffoscope tells how' >&2; exit 1; }
