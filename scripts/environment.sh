# Shared by demo.sh and test.sh: one virtual environment, made and filled once.
#
# Source it with $root set to the checkout, then call `prepare_environment EXTRA` ("" or "test"):
# it leaves the environment's Python in $python. What can be set from outside:
#
#   PAM_VENV     folder of the environment (default: .venv in the checkout)
#   PAM_PYTHON   the Python to make it with (default: the first of the names below that will do)
#   PAM_TORCH    what pip is asked for where PyTorch is missing (default: the version pam is tested with)
#
# Where packages come from is pip's own business: its variables and its configuration hold.

say() { printf '%s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

prepare_environment() {
    choose_environment
    if is_installed "$1"; then return; fi
    if ! "$python" -c 'import pip' 2>/dev/null || [ -e "$venv/unfinished" ]; then make_environment; fi
    install_pam "$1"
}

choose_environment() {
    venv=${PAM_VENV:-$root/.venv}
    case $venv in
        /*) ;;
        *) venv=$PWD/$venv ;; # the scripts change folder later
    esac
    python=$venv/bin/python
}

# Changes whenever pip has to run again: other requirements, something else to compile, another Python, a
# checkout that moved.
stamp() {
    "$python" -P - "$root" "${PAM_TORCH:-}" <<'PYTHON'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
files = [file.read_bytes() for file in (root / "pyproject.toml", *sorted(root.glob("pamcli/*.c")))]
print(hashlib.sha256(repr((files, sys.version, sys.prefix, sys.argv[1:])).encode()).hexdigest())
PYTHON
}

stamp_file() { printf '%s' "$venv/pam-installed${1:+-$1}"; }

# What was installed with the test extra serves without it, too.
is_installed() {
    now=$(stamp 2>/dev/null) || return 1
    for file in "$(stamp_file "$1")" "$(stamp_file test)"; do
        if [ "$(cat "$file" 2>/dev/null)" = "$now" ]; then return 0; fi
    done
    return 1
}

find_python() {
    without_venv=
    for candidate in ${PAM_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        # Run it: a name on the PATH may be a version manager's empty shell.
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then return; fi
        without_venv=$candidate
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv cannot make virtual environments: its modules venv and ensurepip are missing." \
            "Install them (Debian, Ubuntu: the package python3-venv), or name another Python in PAM_PYTHON."
    fi
    fail "No Python 3.11 or newer found (tried ${PAM_PYTHON:-python3, python3.14 ... python3.11, python})." \
        "Install one, or name it in PAM_PYTHON."
}

make_environment() {
    # Never clear away a folder that is not ours: only the default one, and one left half made.
    if [ -e "$venv/unfinished" ] || [ "$venv" = "$root/.venv" ]; then
        rm -rf "$venv"
    elif [ -n "$(ls -A "$venv" 2>/dev/null)" ]; then
        fail "$venv is not a virtual environment with a working Python and pip." \
            "Remove it, or name another folder in PAM_VENV."
    fi
    find_python
    say "Making a virtual environment in $venv with $("$candidate" --version)"
    mkdir -p "$venv"
    : >"$venv/unfinished"
    "$candidate" -m venv "$venv"
    # A PyTorch that the chosen Python has already, be it the system's or another virtual
    # environment's, is put behind the new environment's own packages.
    if folder=$(folder_of_torch "$candidate"); then
        "$python" -c 'import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "torch-found.pth").write_text(sys.argv[1] + "\n")' "$folder"
    fi
    rm "$venv/unfinished"
}

# Prints the folder that holds PyTorch; fails where there is none, or one older than pyproject.toml asks for.
folder_of_torch() {
    "$1" -P - "$root" 2>/dev/null <<'PYTHON'
import pathlib, re, sys, torch
asked = re.search(r'"torch>=([\d.]+)"', pathlib.Path(sys.argv[1], "pyproject.toml").read_text())[1]
numbers = [[int(n) for n in v.split("+")[0].split(".")[:2]] for v in (torch.__version__, asked)]
print(pathlib.Path(torch.__file__).parents[1]) if numbers[0] >= numbers[1] else sys.exit(1)
PYTHON
}

install_pam() {
    rm -f "$venv"/pam-installed*
    rest="about 70 MB of other packages"
    if [ -n "$1" ]; then rest="about 160 MB of other packages"; fi
    if [ -z "${PAM_TORCH:-}" ] && folder=$(folder_of_torch "$python"); then
        say "Using the PyTorch in $folder; downloading up to $rest."
    else
        torch=${PAM_TORCH:-torch==2.13.0}
        say "Downloading $torch (about 200 MB for the CPU alone, 2.5 GB with CUDA) and $rest."
        say "pip's PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_FIND_LINKS are honoured: on Linux, an index" \
            "of CPU-only builds spares the gigabytes."
        run_pip install "$torch"
    fi
    run_pip install --editable "$root${1:+[$1]}"
    stamp >"$(stamp_file "$1")"
}

# On a terminal pip shows what it does: gigabytes may be on their way.
run_pip() {
    quiet="--quiet --quiet"
    if [ -t 2 ]; then quiet=; fi
    # shellcheck disable=SC2086 # two words, or none
    "$python" -m pip $quiet --disable-pip-version-check "$@" ||
        fail "pip could not do it, for the reason above. Once that is mended, run the same command again."
}
