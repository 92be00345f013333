#!/usr/bin/env bash
# Replaces agents of an older revision by those of this one, one after another, under load: the story
# `agents_of_a_program_from_before_are_replaced_one_by_one`, with a real program from before; and its packages by those of what `make build`
# built here: `stories/packages.rs`.
#
#     tools/upgrade.sh [REVISION]        # that of the last release before HEAD, with which contrib/debian/changelog changed, if not given
#
# The revision is built in a worktree that is removed again. UPGRADE_TARGET is where cargo builds it: target/before unless set, which is
# kept. It must not be that of this tree: cargo takes crates of one name and version in both for the same. Without the revision in
# the repository (a shallow clone) it fails and says so.
set -euo pipefail
cd "$(dirname "$0")/.."

revision=${1:-$(git log -1 --format=%H HEAD^ -- contrib/debian/changelog 2> /dev/null || :)}
commit=$(git rev-parse --verify --quiet "$revision^{commit}") || {
  echo "upgrade: there is no revision $revision here: name one, or fetch it (git fetch --unshallow --tags)" >&2
  exit 1
}
tools/deps.sh mmdebstrap=mmdebstrap systemd-nspawn=systemd-container
export CARGO_INCREMENTAL=0
before=$(realpath -m "${UPGRADE_TARGET:-target/before}")
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree"' EXIT
git worktree add --quiet --detach "$tree" "$commit"
echo "upgrade: from $(git log -1 --format='%h, %cs: %s' "$commit")"
mkdir -p "$before" target/tools
ln -sfn "$PWD/target/tools" "$before/tools"
ln -s "$before" "$tree/target"
(cd "$tree" && env -u CARGO_TARGET_DIR cargo build --locked --quiet --package parda)
PARDA_BEFORE=$before/debug/parda cargo test --workspace --locked --quiet --test lab -- agents_of_a_program_from_before --include-ignored

rm -rf "$before/packages"
env -u CARGO_TARGET_DIR make --silent -C "$tree" deb rpm
PARDA_PACKAGES_BEFORE=$before/packages cargo test --workspace --locked --quiet --test stories -- packages --ignored
