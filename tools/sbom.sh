#!/usr/bin/env bash
# Makes a bill of materials of the program, CycloneDX 1.5 in JSON: the crates in it and those that build it, with versions, licences and
# hashes. Says where it is: target/packages/parda-VERSION.cdx.json. The tool is installed in target/tools, in a version that is known to work.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/tool.sh cargo-cyclonedx 0.5.9
# Without a serial number, which would be a random one.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
trap 'rm -f crates/*/sbom.json lab/*/sbom.json' EXIT
target/tools/bin/cargo-cyclonedx cyclonedx --quiet --manifest-path crates/cli/Cargo.toml --features kubernetes --format json --spec-version 1.5 \
  --override-filename sbom
mkdir -p target/packages
# The tool writes a file into the folder of each crate, and where that folder is into each file.
# It also lists crates that features of other crates could turn on, but do not: cargo says which are compiled.
cargo tree --locked --package parda --features kubernetes --edges normal,build --prefix none --format '{p}' |
  SBOM="target/packages/parda-$version.cdx.json" python3 -c '
import json, os, sys
compiled = {tuple(line.split()[:2]) for line in sys.stdin}
with open("crates/cli/sbom.json") as file:
    bill = json.loads(file.read().replace("file://" + os.path.realpath("."), "file:///usr/src/parda"))
out = {c["bom-ref"] for c in bill["components"] if (c["name"], "v" + c["version"]) not in compiled}
bill["components"] = [c for c in bill["components"] if c["bom-ref"] not in out]
bill["dependencies"] = [d for d in bill["dependencies"] if d["ref"] not in out]
for needs in bill["dependencies"]:
    if "dependsOn" in needs:
        needs["dependsOn"] = [ref for ref in needs["dependsOn"] if ref not in out]
with open(os.environ["SBOM"], "w") as file:
    print(json.dumps(bill, indent=2, ensure_ascii=False), file=file)
'
echo "target/packages/parda-$version.cdx.json"
