#!/bin/sh
# Every check of the project: formatting, lint, types, tests. Arguments go to pytest, which runs in the
# checkout's root: scripts/test.sh tests/imaging -k pfm
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/environment.sh"
prepare_environment test
cd "$root"

"$python" -m ruff check
"$python" -m ruff format --check
"$python" -m mypy
"$python" -m pytest -n 2 "$@"
