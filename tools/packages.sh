#!/usr/bin/env bash
# Makes a package of what `make build` built: tools/packages.sh deb|rpm [OPTION OF THE TOOL ...]. Says where it is.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  deb) tool=cargo-deb version=3.8.0 ;;
  rpm) tool=cargo-generate-rpm version=0.21.1 ;;
  *) echo 'usage: tools/packages.sh deb|rpm' >&2; exit 2 ;;
esac
kind=$1
shift
program=${PARDA:-target/release/parda}
[ -x "$program" ] || { echo "packages: there is no $program: run \`make build\` first" >&2; exit 1; }
tools/tool.sh $tool $version

# The same bytes each time that this commit is packed.
umask 022
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
rm -rf target/package
make --silent install-files DESTDIR=target/package PREFIX=/usr PARDA="$program"
gzip -9n target/package/usr/share/man/man1/*
cp "$(tools/sbom.sh)" target/package/parda.cdx.json
case $kind in
  deb) target/tools/bin/$tool --quiet --no-build --locked --package parda --output target/packages/ "$@" ;;
  rpm)
    # The tool does not strip.
    install -D "$program" target/package/usr/bin/parda
    strip --strip-debug target/package/usr/bin/parda
    # It keeps the times of files that are older than the commit, which are those of a checkout.
    cp README.md CHANGELOG.md LICENSE-* target/package
    find target/package -type f -exec touch --date "@$SOURCE_DATE_EPOCH" {} +
    # Of the program alone: rpm's own finder adds the modules of Proxmox' plugin, an example.
    target/tools/bin/$tool --auto-req builtin --package crates/cli --output target/packages/ "$@"
    ls -t target/packages/parda-*.rpm | head -n 1
    ;;
esac
