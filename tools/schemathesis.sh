#!/usr/bin/env bash
# Sends what the API's own description allows, and what it does not, to an agent: no answer may be a server error or differ from the
# description. Arguments go to schemathesis (PyPI), which is installed in a directory of its own.
#
#     tools/schemathesis.sh [--max-examples 200]
set -euo pipefail
cd "$(dirname "$0")/.."
parda=$PWD/${CARGO_TARGET_DIR:-target}/release/parda
[ -x "$parda" ] || parda=$PWD/${CARGO_TARGET_DIR:-target}/debug/parda
dir=$(mktemp -d)
agent=
trap '[ -z "$agent" ] || kill "$agent"; wait; rm -rf "$dir"' EXIT
venv=${SCHEMATHESIS:-$dir/venv}
[ -x "$venv/bin/schemathesis" ] || { python3 -m venv "$venv" && "$venv/bin/pip" --quiet install 'schemathesis>=4,<5'; }
cd "$dir"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
truncate -s 1M vm1.img vm2.img
echo "ops admin 0123456789abcdef" > tokens
chmod 600 tokens
cat > parda.toml <<TOML
host = "a"
state = "state.toml"
http = { address = "tcp:127.0.0.1:$port", tokens = "tokens" }
[[volume]]
name = "array"
control = { period = "200ms" }
[[volume.tenant]]
name = "gold"
[[volume.disk]]
name = "vm1"
path = "vm1.img"
listen = "unix:nbd.sock"
[[volume.disk]]
name = "vm2"
path = "vm2.img"
listen = "unix:nbd.sock"
TOML
"$parda" serve -c parda.toml 2> log &
agent=$!
api=http://127.0.0.1:$port
until curl -sf "$api/readyz" > /dev/null; do kill -0 "$agent" && sleep 0.1; done
# Whether a value is right is for the configuration's own check, which no schema has.
"$venv/bin/schemathesis" run "$api/api/v1/openapi.json" --exclude-checks positive_data_acceptance --header "Authorization: Bearer 0123456789abcdef" "$@"
curl -sf "$api/readyz"
! grep -n "panicked" log
