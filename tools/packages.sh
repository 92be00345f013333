#!/usr/bin/env bash
# Makes packages of both programs that `make build` built: tools/packages.sh deb|rpm [OPTION OF THE TOOL ...]. Says where they are, that of
# parda first.
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
for built in "$program" "$program-lab"; do
  [ -x "$built" ] || { echo "packages: there is no $built: run \`make build\` first" >&2; exit 1; }
done
tools/tool.sh $tool $version

# The same bytes each time that this commit is packed.
umask 022
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
rm -rf target/package
make --silent install-files DESTDIR=target/package PREFIX=/usr PARDA="$program"
make --silent install-lab-files DESTDIR=target/package/lab PREFIX=/usr PARDA="$program"
gzip -9n target/package/usr/share/man/man1/* target/package/lab/usr/share/man/man1/*
cp "$(tools/sbom.sh)" target/package/parda.cdx.json
case $kind in
  deb)
    for package in parda parda-lab-cli; do
      target/tools/bin/$tool --quiet --no-build --locked --package "$package" --output target/packages/ "$@"
    done
    ;;
  rpm)
    # The tool does not strip.
    install -D "$program" target/package/usr/bin/parda
    install -D "$program-lab" target/package/lab/usr/bin/parda-lab
    strip --strip-debug target/package/usr/bin/parda target/package/lab/usr/bin/parda-lab
    # It keeps the times of files that are older than the commit, which are those of a checkout.
    cp README.md CHANGELOG.md LICENSE-* target/package
    find target/package -type f -exec touch --date "@$SOURCE_DATE_EPOCH" {} +
    # Of the program alone: rpm's own finder adds the modules of Proxmox' plugin, an example.
    for package in crates/cli lab/cli; do
      target/tools/bin/$tool --auto-req builtin --package "$package" --output target/packages/ "$@"
    done
    ls -t target/packages/parda-[0-9]*.rpm | head -n 1
    ls -t target/packages/parda-lab-[0-9]*.rpm | head -n 1
    ;;
esac
