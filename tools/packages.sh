#!/usr/bin/env bash
# Makes a package of what `make build` built: tools/packages.sh deb|rpm [OPTION OF THE TOOL ...]. Says where it is.
# The tools are installed in target/tools, in versions that are known to work.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  deb) tool=cargo-deb version=3.8.0 ;;
  rpm) tool=cargo-generate-rpm version=0.21.1 ;;
  *) echo 'usage: tools/packages.sh deb|rpm' >&2; exit 2 ;;
esac
kind=$1
shift
if [ ! -x target/tools/bin/$tool ] || ! grep -q "^\"$tool $version " target/tools/.crates.toml 2> /dev/null; then
  echo "packages: installs $tool $version into target/tools" >&2
  cargo install --quiet --locked --root target/tools --target-dir target/tools/build --version "$version" "$tool"
fi

program=${PARDA:-target/release/parda}
rm -rf target/package
make --silent install-files DESTDIR=target/package PREFIX=/usr PARDA="$program"
gzip -9n target/package/usr/share/man/man1/*
case $kind in
  deb) target/tools/bin/$tool --no-build --locked --package parda --output target/packages/ "$@" ;;
  rpm)
    # The tool does not strip.
    install -D "$program" target/package/usr/bin/parda
    strip --strip-debug target/package/usr/bin/parda
    target/tools/bin/$tool --package crates/cli --output target/packages/ "$@"
    ls -t target/packages/parda-*.rpm | head -n 1
    ;;
esac
