#!/bin/sh
# The checks before a commit: format, circles, prose; clippy, and all tests of the crates that differ from a commit or have uncommitted
# changes, but stories, guests and the laboratory. `make test` does more.
#
# usage: tools/check.sh [COMMIT]      without COMMIT: the last common ancestor with origin/main
set -eu
cargo=${CARGO:-cargo}
base=${1:-$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)}
begun=$(date +%s)
"$cargo" fmt --all --check
tools/circles.py
tools/prose.py
tools/names.py
changed=$({ git diff --name-only "$base"; git ls-files --others --exclude-standard; })
packages=
for manifest in $(echo "$changed" | sed -nE 's#^((crates|lab)/[^/]*)/.*#\1/Cargo.toml#p' | sort -u); do
    if [ -f "$manifest" ]; then
        packages="$packages --package $(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)"
    fi
done
if [ -z "$packages" ]; then
    echo "check: no crate differs from $base"
    exit 0
fi
echo "check:$packages"
# The whole workspace's features, so that nothing is built twice: clippy of all, as it is kept between runs.
"$cargo" clippy --quiet --workspace --lib --bins --locked -- -D warnings
# shellcheck disable=SC2086 # Packages are words.
"$cargo" test --quiet $packages --lib --bins --tests --locked
echo "check: $(($(date +%s) - begun)) s"
