#!/bin/sh
# Every check of the project: formatting, lint, texts, sizes, types, tests. Arguments go to pytest, which runs in the
# checkout's root: scripts/test.sh tests/imaging -k pfm
# As the first argument:
#   --fast   format, lint, texts, imports and every command once, in one or two minutes
#   --lint   format, lint, texts, sizes and types, no tests
#   --coverage   everything, and then the share of lines of each module that ran, lowest first
set -eu
fast=
lint=
if [ "${1:-}" = --lint ]; then lint=1; fi
if [ "${1:-}" = --coverage ]; then
    shift
    set -- --cov=pamcli --cov-report=term:skip-covered "$@"
fi
if [ "${1:-}" = --fast ]; then
    shift
    fast="tests/test_floors.py tests/test_startup.py tests/cli/test_every_command.py"
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/environment.sh"
prepare_environment test
cd "$root"
unset PYTHONDONTWRITEBYTECODE # otherwise each of hundreds of processes would compile pam

"$python" -m ruff check
"$python" -m ruff format --check
"$python" .ci/check_texts.py
"$python" .ci/check_sizes.py
if [ -n "$lint" ]; then exec "$python" -m mypy; fi
if [ -n "$fast" ]; then
    # shellcheck disable=SC2086 # a list of words
    exec "$python" -m pytest -n 2 --dist worksteal $fast "$@"
fi
# mypy runs next to the tests. Three test processes suit two cores, because tests wait for programs or the disk.
types=$(mktemp)
"$python" -m mypy >"$types" 2>&1 &
mypy=$!
trap 'kill "$mypy" 2>/dev/null || :; rm -f "$types"' EXIT
code=0
"$python" -m pytest -n 3 --dist worksteal "$@" || code=$?
wait "$mypy" || code=$?
cat "$types"
exit "$code"
