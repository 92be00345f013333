#!/usr/bin/env bash
# Builds kube-apiserver and etcd from their Go modules in target/kube, unless they are there, and runs a command that finds them. Without a Go
# that can build them it says so, and the command is not run.
# usage: tools/kube-apiserver.sh COMMAND [ARGUMENT ...]
set -euo pipefail
cd "$(dirname "$0")/.."

module=tools/kube-apiserver
go=$(sed -n 's/^go //p' $module/go.mod)
version=$(sed -n 's#.*k8s.io/kubernetes \(v[0-9.]*\).*#\1#p' $module/go.mod)
has=$(GOTOOLCHAIN=local go env GOVERSION 2> /dev/null || true)
if [ -z "$has" ] || ! printf '%s\n' "$go" "${has#go}" | sort -CV; then
  echo "skipped: kube-apiserver needs Go $go or newer to build, and there is ${has:-none}" >&2
  exit 0
fi
if [ "$(target/kube/kube-apiserver --version 2> /dev/null)" != "Kubernetes $version" ] || [ ! -x target/kube/etcd ]; then
  echo "kube-apiserver $version and etcd are being built in target/kube: eight minutes, once" >&2
  # Each compiler takes up to 1 GB, and other tests may run.
  GOTOOLCHAIN=local GOFLAGS='-buildvcs=false -p=2' go -C $module build -o "$PWD/target/kube/" \
    -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version" ./etcd k8s.io/kubernetes/cmd/kube-apiserver
fi
PATH="$PWD/target/kube:$PATH" exec "$@"
