#!/bin/sh
# Install pam as a user does, and match the sample pair: builds a wheel without a C compiler, installs it into a clean
# environment, and runs `pam disparity`. Prints the seconds; fails if they exceed the first argument (default: none).
#
#   PAM_PYTHON   Python that creates the environment (default: the first suitable one)
#   PAM_TORCH    requirement of PyTorch (default: the version that pam is tested with)
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/environment.sh"
limit=${1:-}

find_python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CC=false CXX=false # any attempt to compile fails

say "Building a wheel without a compiler"
"$candidate" -m venv "$work/build"
"$work/build/bin/python" -m pip --quiet wheel --no-deps --wheel-dir "$work" "$root"
wheel=$(ls "$work"/pamcli-*.whl)
case $wheel in
    *-py3-none-any.whl) ;;
    *) fail "$wheel is not a wheel for all platforms." ;;
esac

began=$(date +%s)
"$candidate" -m venv "$work/env"
"$work/env/bin/python" -m pip --quiet install --only-binary :all: "${PAM_TORCH:-torch==2.13.0}" "$wheel"
installed=$(date +%s)
cd "$work" # the package of the checkout must not be found
sample=$root/scripts/sample
"$work/env/bin/pam" disparity "$sample/left.png" "$sample/right.png" -o disparity.pfm >/dev/null
ended=$(date +%s)
cp disparity.pfm "$work/env/disparity.pfm"
"$work/env/bin/python" "$root/scripts/sample_error.py" "$work/env/disparity.pfm"
say "Installed in $((installed - began)) s, first disparity map after $((ended - began)) s"
if [ -n "$limit" ] && [ $((ended - began)) -gt "$limit" ]; then fail "That is more than $limit s."; fi
