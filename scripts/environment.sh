# Create the virtual environment of demo.sh and test.sh, once.
#
# Set $root to the checkout, source this file, and call `prepare_environment EXTRA` ("" or "test"). Then $python is
# the Python of the environment; `add_extra EXTRA MODULE` adds the packages of an extra. Settings from outside:
#
#   PAM_VENV     folder of the environment (default: .venv in the checkout)
#   PAM_PYTHON   Python that creates it (default: the first suitable one of the names below)
#   PAM_TORCH    requirement for pip if PyTorch is missing (default: the version that pam is tested with)
#
# pip's own variables and configuration select the package index.

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

# Print a checksum of everything that requires pip to run again: requirements, C code, Python, path of the checkout.
stamp() {
    "$python" -P - "$root" "${PAM_TORCH:-}" <<'PYTHON'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
files = [file.read_bytes() for file in (root / "pyproject.toml", *sorted(root.glob("pamcli/*.c")))]
print(hashlib.sha256(repr((files, sys.version, sys.prefix, sys.argv[1:])).encode()).hexdigest())
PYTHON
}

stamp_file() { printf '%s' "$venv/pam-installed${1:+-$1}"; }

# An environment with the test extra is also sufficient without it.
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
        # Run it, because a name on the PATH may be a stub of a version manager.
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then return; fi
        without_venv=$candidate
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv cannot make virtual environments: the modules venv and ensurepip are missing." \
            "Install them (package python3-venv on Debian and Ubuntu), or set PAM_PYTHON to another Python."
    fi
    fail "No Python 3.11 or newer found (tried ${PAM_PYTHON:-python3, python3.14 ... python3.11, python})." \
        "Install one, or set PAM_PYTHON to its path."
}

make_environment() {
    # Remove only the default folder, or one that this script left incomplete.
    if [ -e "$venv/unfinished" ] || [ "$venv" = "$root/.venv" ]; then
        rm -rf "$venv"
    elif [ -n "$(ls -A "$venv" 2>/dev/null)" ]; then
        fail "$venv is not a virtual environment with a working Python and pip." \
            "Remove it, or set PAM_VENV to another folder."
    fi
    find_python
    say "Making a virtual environment in $venv with $("$candidate" --version)"
    mkdir -p "$venv"
    : >"$venv/unfinished"
    "$candidate" -m venv "$venv"
    # If the chosen Python already has PyTorch, the new environment uses it, behind its own packages.
    if folder=$(folder_of_torch "$candidate"); then
        "$python" -c 'import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "torch-found.pth").write_text(sys.argv[1] + "\n")' "$folder"
    fi
    rm "$venv/unfinished"
}

# Print the folder of PyTorch; fail if it is missing or older than pyproject.toml requires.
folder_of_torch() {
    "$1" -P - "$root" 2>/dev/null <<'PYTHON'
import importlib.metadata, importlib.util, pathlib, re, sys
found = importlib.metadata.version("torch") # importing torch would take seconds
asked = re.search(r'"torch>=([\d.]+)"', pathlib.Path(sys.argv[1], "pyproject.toml").read_text())[1]
numbers = [[int(n) for n in v.split("+")[0].split(".")[:2]] for v in (found, asked)]
folder = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
print(folder) if numbers[0] >= numbers[1] else sys.exit(1)
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
        say "To download CPU builds only (on Linux), set PIP_INDEX_URL, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS" \
            "to an index of such builds."
        run_pip install "$torch"
    fi
    run_pip install --editable "$root${1:+[$1]}"
    stamp >"$(stamp_file "$1")"
}

# On a terminal, pip shows its progress, because downloads may be large.
run_pip() {
    quiet="--quiet --quiet"
    if [ -t 2 ]; then quiet=; fi
    # shellcheck disable=SC2086 # two words, or none
    "$python" -m pip $quiet --disable-pip-version-check "$@" ||
        fail "pip failed for the reason above. Fix it, then run the same command again."
}

# Install the packages of an extra, EXTRA, unless `import MODULE` works. A failure is reported, but ends nothing.
add_extra() {
    if "$python" -c "import $2" 2>/dev/null; then return; fi
    packages=$("$python" -P - "$root/pyproject.toml" "$1" <<'PYTHON'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"][sys.argv[2]])
PYTHON
)
    say "Installing $packages (extra $1)"
    # shellcheck disable=SC2086 # a list of words
    "$python" -m pip --quiet --quiet --disable-pip-version-check install $packages ||
        say "pip failed for the reason above. Everything works except what the extra $1 is for."
}
