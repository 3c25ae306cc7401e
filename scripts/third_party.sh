#!/bin/sh
# Third parties' backends as their users get them, in a fresh environment outside the checkout: the example, then
# what `registry new-plugin` writes.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cp -r examples/registry-numba "$out/project"
"${PYTHON:-python3}" -m venv "$out/venv"
"$out/venv/bin/pip" install -qq --disable-pip-version-check ".[conformance]" "$out/project[test]"
cd "$out/project"
"$out/venv/bin/python" -m pytest -q --registry-cases 10
cd "$out"
call="SkipLayerNormalization input=1366x768 skip=1366x768 gamma=768 beta=768"
"$out/venv/bin/registry" explain $call | tee explain.txt
grep -q 'numba *fused *chosen' explain.txt
"$out/venv/bin/registry" compare $call
"$out/venv/bin/registry" new-plugin acme
"$out/venv/bin/pip" install -qq --disable-pip-version-check "./registry-acme[test]"
cd registry-acme
"$out/venv/bin/python" -m pytest -q -W error
