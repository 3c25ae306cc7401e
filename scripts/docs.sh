#!/bin/sh
# Builds the documentation as a site into site/: any warning is an error. Open site/index.html, or serve it with
# `python3 -m http.server -d site`, with which the search works too.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh docs
export NO_MKDOCS_2_WARNING=1 # an advertisement
.venv/bin/python -m mkdocs build --strict --clean --quiet
printf '%s\n' "the site is in $PWD/site/index.html"
