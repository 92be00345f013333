#!/bin/sh
# The checks that take seconds: format, circles, prose, and clippy and unit tests of the crates that differ from a commit or have
# uncommitted changes. `make test` does more.
#
# usage: tools/check.sh [COMMIT]      without COMMIT: the last common ancestor with origin/main
set -eu
cargo=${CARGO:-cargo}
base=${1:-$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)}
"$cargo" fmt --all --check
tools/circles.py
tools/prose.py
crates=$({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sed -nE 's#^((crates|lab)/[^/]*)/.*#\1#p' | sort -u)
packages=
for crate in $crates; do
    manifest=$crate/Cargo.toml
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
"$cargo" test --quiet $packages --lib --bins --locked
