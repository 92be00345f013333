#!/usr/bin/env bash
# Builds the eBPF object of crates/steer. The object says which source it is from, and what built it.
# usage: tools/bpf.sh [OBJECT]
set -euo pipefail
cd "$(dirname "$0")/../crates/steer/bpf"
object=${1:-block.bpf.o}

clang -O2 -g -target bpf -mcpu=v3 -Wall -Werror -DSOURCE="\"$(cksum <block.bpf.c)\"" \
  -fdebug-compilation-dir=. -c block.bpf.c -o "$object"
# The line numbers for debuggers go; what the kernel and the loader read (BTF) stays.
llvm-strip -g "$object"
