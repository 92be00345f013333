#!/usr/bin/env bash
# Makes a bill of materials of the program, CycloneDX 1.5 in JSON: the crates in it and those that build it, with versions, licences and
# hashes. Says where it is: target/packages/parda-VERSION.cdx.json. The tool is installed in target/tools, in a version that is known to work.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/tool.sh cargo-cyclonedx 0.5.9
# Without a serial number, which would be a random one.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
trap 'rm -f crates/*/sbom.json' EXIT
target/tools/bin/cargo-cyclonedx cyclonedx --quiet --manifest-path crates/cli/Cargo.toml --features kubernetes --format json --spec-version 1.5 \
  --override-filename sbom
mkdir -p target/packages
# The tool writes a file into the folder of each crate, and where that folder is into each file.
sed "s|file://$(pwd -P)|file:///usr/src/parda|g" crates/cli/sbom.json > "target/packages/parda-$version.cdx.json"
echo "target/packages/parda-$version.cdx.json"
