#!/bin/sh
# Prepare a release: scripts/release.sh VERSION
# Dates the changelog, sets the version, records the names that the release promises, and builds and checks sdist and
# wheels in dist/: one for all systems, and on Linux with x86 one with the compiled convolution. It commits, tags and
# uploads nothing; at its end it prints what is left to do. Run scripts/test.sh before it.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/environment.sh"
version=${1:-}
cd "$root"
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    fail "There are changes that are not committed. Commit them first."
fi
prepare_environment test
add_extra release twine

"$python" - "$version" <<'PYTHON'
import datetime, pathlib, re, sys
version, = sys.argv[1:]
changelog, package = pathlib.Path("CHANGELOG.md"), pathlib.Path("pamcli/__init__.py")
text = changelog.read_text(encoding="utf-8")
released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", text, re.MULTILINE)
if not re.fullmatch(r"\d+\.\d+\.\d+", version):
    sys.exit(f"scripts/release.sh requires a version such as 1.2.3, got {version!r}. The last one is {released[0]}.")
if tuple(map(int, version.split("."))) <= tuple(map(int, released[0].split("."))):
    sys.exit(f"{version} must be above the last release, {released[0]}.")
head, _, rest = text.partition("## [Unreleased]\n")
if not rest.partition("\n## [")[0].strip():
    sys.exit("CHANGELOG.md has no lines under Unreleased: there is nothing to release.")
headings = re.findall(r"^### .+", rest.partition("\n## [")[0], re.MULTILINE)
if len(set(headings)) < len(headings):
    sys.exit("CHANGELOG.md has a heading twice under Unreleased: join both sections.")
code = package.read_text(encoding="utf-8")
if len(re.findall(r'^__version__ = ".*"$', code, re.MULTILINE)) != 1:
    sys.exit("pamcli/__init__.py must have one line with __version__.")
today = datetime.date.today().isoformat()
changelog.write_text(f"{head}## [Unreleased]\n\n## [{version}] - {today}\n{rest}", encoding="utf-8")
package.write_text(re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', code, flags=re.MULTILINE), "utf-8")
PYTHON
trap 'say "The release is not complete. Undo its changes: git checkout CHANGELOG.md pamcli/__init__.py tests/stable_names.txt"' EXIT
"$python" scripts/stable_names.py

rm -rf dist
"$python" -m hatchling build -t sdist -d dist
CC=false "$python" -m hatchling build -t wheel -d dist
mkdir dist/compiled
"$python" -m hatchling build -t wheel -d dist/compiled # the same again where nothing can be compiled
for wheel in dist/compiled/*-linux_*.whl; do
    # An index accepts wheels of Linux only with the oldest C library that they run with in their name.
    if [ -e "$wheel" ]; then PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair --wheel-dir dist "$wheel"; fi
done
rm -r dist/compiled

"$python" -m twine check --strict dist/*
"$python" - <<'PYTHON'
import pathlib, sys, tarfile, zipfile
for path in sorted(pathlib.Path("dist").iterdir()):
    if path.suffix == ".whl":
        names = zipfile.ZipFile(path).namelist()
        required = ["pamcli/weights/pasmnet2.safetensors", "pamcli/guide/start.md", "pamcli/py.typed", "pamcli/sample/left.png"]
        required += ["pamcli/libwinograd-avx2.so"] * ("manylinux" in path.name)
        unwanted = [name for name in names if name.startswith(("tests/", "scripts/")) or "__pycache__" in name]
    else:
        names = ["/".join(name.split("/")[1:]) for name in tarfile.open(path).getnames()]
        required = ["pyproject.toml", "weights/pasmnet2.safetensors", "tests/conftest.py", "scripts/test.sh", "LICENSE"]
        unwanted = [name for name in names if name.endswith(".so") or "__pycache__" in name]
    if wrong := [*(f"{name} is missing" for name in required if name not in names), *unwanted]:
        sys.exit(f"{path}: {', '.join(wrong)}")
    size = path.stat().st_size / 1e6
    print(f"{path}: {len(names)} files, {size:.1f} MB")
    if size > 100:
        sys.exit(f"{path} is larger than 100 MB, which package indexes reject by default.")
PYTHON
for wheel in dist/*.whl; do PAM_WHEEL=$root/$wheel scripts/check_install.sh; done
trap - EXIT

cat <<END
Version $version is built and checked. Left to do by hand:
  git diff                                       # read the changes
  git commit -am "Release $version"
  git tag -a v$version -m "pam $version"
  git push --follow-tags                         # then wait for the workflows
  $python -m twine upload dist/*                 # asks for the token of the package index
  and publish the section of CHANGELOG.md as the release's notes on the forge
END
