#!/bin/sh
# Install pam as users do, and match the sample pair: builds a wheel without a C compiler, and installs it into clean
# environments: with pip, which pipx runs, then with uvx. If the package index has neither pipx nor uv, only with pip.
# Prints the seconds of the first; fails if they exceed the first argument (default: none). With PAM_WHEEL, the path of
# a wheel, nothing is built.
#
#   PAM_PYTHON   Python that creates the environments (default: the first suitable one)
#   PAM_TORCH    requirement of PyTorch (default: the version that pam is tested with)
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/environment.sh"
limit=${1:-} torch=${PAM_TORCH:-torch==2.13.0}

find_python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CC=false CXX=false # any attempt to compile fails

"$candidate" -m venv "$work/build"
wheel=${PAM_WHEEL:-}
if [ -z "$wheel" ]; then
    say "Building a wheel without a compiler with $("$candidate" --version)"
    "$work/build/bin/python" -m pip --quiet wheel --no-deps --wheel-dir "$work" "$root"
    wheel=$(ls "$work"/pamcli-*.whl)
    case $wheel in
        *-py3-none-any.whl) ;;
        *) fail "$wheel is not a wheel for all platforms." ;;
    esac
fi

# Match the sample pair with this command, and print the error. In $work the package of the checkout is not found.
match() {
    cd "$work"
    rm -f disparity.pfm
    "$@" disparity "$root/scripts/sample/left.png" "$root/scripts/sample/right.png" -o disparity.pfm >/dev/null
    "$environment/bin/python" "$root/scripts/sample_error.py" disparity.pfm
}

tools=$work/build/bin installer=pip environment=$work/env
if "$tools/python" -m pip --quiet install uv pipx; then
    installer=pipx environment=$work/pipx/venvs/pamcli
else
    say "uv and pipx cannot be installed for the reason above, and are not tested."
fi
printf '%s\n' "$torch" >"$work/constraints.txt"
export PIPX_HOME="$work/pipx" PIPX_BIN_DIR="$work/bin" PIPX_DEFAULT_BACKEND=pip PIP_CONSTRAINT="$work/constraints.txt"
began=$(date +%s)
if [ "$installer" = pipx ]; then
    "$tools/pipx" install --quiet --pip-args=--only-binary=:all: --python "$candidate" "$wheel" >/dev/null
else
    "$candidate" -m venv "$environment"
    "$environment/bin/python" -m pip --quiet install --only-binary :all: "$wheel"
fi
installed=$(date +%s)
match "$environment/bin/pam"
ended=$(date +%s)
say "$installer: installed in $((installed - began)) s, first disparity map after $((ended - began)) s"
if [ -n "$limit" ] && [ $((ended - began)) -gt "$limit" ]; then fail "That is more than $limit s."; fi
if [ "$installer" = pip ]; then exit; fi

# uv does not read the configuration of pip.
setting() { "$tools/python" -m pip config get "global.$1" 2>/dev/null || :; }
index=${PIP_INDEX_URL:-$(setting index_url)} files=${PIP_FIND_LINKS:-$(setting find_links)}
if [ -n "$index" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"; fi
if [ -n "$files" ]; then export UV_FIND_LINKS="${UV_FIND_LINKS:-$files}"; fi
match "$tools/uvx" --quiet --python "$candidate" --from "$wheel" --with "$torch" pam
say "uvx: works"
