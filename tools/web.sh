#!/usr/bin/env bash
# The web dashboard: builds web/ into crates/http/page, or checks that what is there was built from web/.
# usage: tools/web.sh build | check | tests
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

# Vite needs this Node.js; who does not change the page needs none.
node_for_vite() {
  command -v npm > /dev/null && node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2> /dev/null
}

# As the lock file has them, once for each lock file. Lint and stories may ask at the same time.
packages() {
  mkdir -p "$target"
  exec 9> "$target/web.lock"
  flock 9
  if ! cmp --silent web/package-lock.json web/node_modules/.parda-lock; then
    npm --prefix web ci --no-progress --no-audit --no-fund --loglevel=error
    cp web/package-lock.json web/node_modules/.parda-lock
  fi
  exec 9>&-
}

# What the page is built from, by contents.
sources() {
  (cd web && sha256sum index.html package-lock.json package.json src/* tsconfig.json vite.config.ts) | sha256sum | cut -d ' ' -f 1
}

build() { # OUT
  (cd web && npm run --silent build -- --logLevel warn --outDir "$1" --emptyOutDir)
  sources > "$1/SOURCES"
}

case "${1:-}" in
build)
  node_for_vite || { echo 'web: building the page needs Node.js 20.19 or newer, with npm' >&2; exit 1; }
  packages
  build "$PWD/crates/http/page"
  ;;
check)
  if [ "$(sources)" != "$(cat crates/http/page/SOURCES)" ]; then
    echo 'web: crates/http/page was not built from what is in web/: run `make web`' >&2
    exit 1
  fi
  if ! node_for_vite; then
    echo 'web: not built again to compare: that needs Node.js 20.19 or newer. Its sources are those it was built from.'
    exit 0
  fi
  packages
  out=$(realpath -m "$target")/page
  build "$out"
  diff --recursive --brief crates/http/page "$out" || { echo 'web: crates/http/page is not what web/ builds to: run `make web`' >&2; exit 1; }
  ;;
tests)
  packages
  ;;
*)
  sed -n '2,3s/^# //p' "$0" >&2
  exit 2
  ;;
esac
