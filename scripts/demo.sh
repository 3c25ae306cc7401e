#!/bin/sh
# The main job on a fresh machine: sets up, then normalises real activations on every backend here.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh webgpu
exec .venv/bin/python examples/minilm.py "$@"
