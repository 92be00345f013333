#!/usr/bin/env bash
# Breaks the program on purpose, one patch of tools/mutations at a time, and demands that tests notice.
#
#     tools/mutations.sh [NAME...]        # budget-off, leftovers-lock-off …; all without a name
#
# A patch says in its first lines what it breaks and which tests must fail. It is applied to a worktree of HEAD that is
# removed again, and so nothing that is not committed is tested. That these tests pass without the patch is for `make
# test` to show. Fails if a patch does not apply or build, or if its tests pass. MUTATIONS_TARGET is where cargo builds:
# target/mutations unless set, which is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

patches=$PWD/tools/mutations
export CARGO_TARGET_DIR=${MUTATIONS_TARGET:-$PWD/target/mutations} CARGO_INCREMENTAL=0
if [ $# -eq 0 ]; then
  mapfile -t names < <(basename -s .patch "$patches"/*.patch)
else
  names=("$@")
fi
tree=$(mktemp -d)
log=$(mktemp)
trap 'git worktree remove --force "$tree"; rm -f "$log"' EXIT
git worktree add --quiet --detach "$tree" HEAD

survived=0
for name in "${names[@]}"; do
  patch=$patches/$name.patch
  read -ra tests <<<"$(sed -n 's/^Must fail: cargo test //p' "$patch")"
  echo "mutation: $name. $(sed -n 's/^What it breaks: //p' "$patch")"
  git -C "$tree" apply "$patch"
  build=()
  for word in "${tests[@]}"; do
    [ "$word" != -- ] || break
    build+=("$word")
  done
  if ! (cd "$tree" && cargo test --locked --quiet "${build[@]}" --no-run) >"$log" 2>&1; then
    cat "$log"
    echo "mutation: $name does not build"
    exit 1
  fi
  if (cd "$tree" && cargo test --locked --no-fail-fast "${tests[@]}") >"$log" 2>&1; then
    survived=1
    echo "mutation: $name SURVIVED: cargo test ${tests[*]} passes"
  elif ! grep -q '^test result: FAILED' "$log"; then
    # A test program that did not run to its end proves nothing.
    cat "$log"
    echo "mutation: $name: no test has failed, but cargo test has"
    exit 1
  else
    sed -n 's/^test \(.*\) \.\.\. FAILED$/mutation:     noticed by \1/p' "$log"
  fi
  git -C "$tree" apply --reverse "$patch"
done
[ "$survived" -eq 0 ] && echo "mutation: all ${#names[@]} were noticed"
