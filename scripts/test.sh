#!/bin/sh
# Sets up on a fresh machine, then runs the tests; arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh test
exec .venv/bin/python -m pytest -n auto "$@"
