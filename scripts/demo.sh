#!/bin/sh
# From nothing but Python 3.11 to a first result: installs pam into a virtual environment (once),
# then the disparity of the sample pair, its error against the truth, and a picture of it, in demo/.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/environment.sh"
prepare_environment ""
cd "$root"

mkdir -p demo
say '$ pam disparity scripts/sample/left.png scripts/sample/right.png' \
    '-o demo/disparity.pfm --color-map demo/disparity_color.png --overwrite'
"$python" -m pamcli disparity scripts/sample/left.png scripts/sample/right.png \
    -o demo/disparity.pfm --color-map demo/disparity_color.png --overwrite >/dev/null
"$python" scripts/sample_error.py demo/disparity.pfm

cat <<END
disparity in pixels   $root/demo/disparity.pfm
as a colour picture   $root/demo/disparity_color.png
the pair              $root/scripts/sample/left.png, right.png
to use pam from here  . $venv/bin/activate && pam --help
END
