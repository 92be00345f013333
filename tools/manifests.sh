#!/usr/bin/env bash
# Checks the manifests of contrib/kubernetes: against the schemas of several versions of Kubernetes, unknown keys included, and the
# configuration in them by `parda check`, but for that of steer.yaml, whose device no test host has: `make kubernetes` runs it. The schemas
# are those of the Python package kubernetes-validate.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${PARDA:-target/release/parda}
tools=target/tools/kubernetes-validate
[ -x $tools/bin/kubernetes-validate ] || { python3 -m venv $tools && $tools/bin/pip install --quiet kubernetes-validate==1.37.0; }

for manifest in contrib/kubernetes/*.yaml; do
  for version in 1.29 1.32 1.35; do
    $tools/bin/kubernetes-validate --strict -k $version "$manifest"
  done
  $tools/bin/python - "$manifest" > target/tools/parda.toml <<'END'
import sys, yaml
for document in yaml.safe_load_all(open(sys.argv[1])):
    if document["kind"] == "ConfigMap":
        print(document["data"]["parda.toml"].replace("@NODE@", "node-1"))
END
  grep -q '^\[volume.steer\]' target/tools/parda.toml || "$program" check target/tools/parda.toml
done
