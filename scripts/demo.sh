#!/bin/sh
# Install pam, with videos, into a virtual environment (once), and match the sample pair: writes the disparity map and
# its colours to demo/, and prints the error against the ground truth. Needs only Python 3.11 or newer.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/environment.sh"
prepare_environment ""
add_extra video av
cd "$root"

mkdir -p demo
say '$ pam disparity scripts/sample/left.png scripts/sample/right.png' \
    '-o demo/disparity.pfm --color-map demo/disparity_color.png --overwrite'
"$python" -m pamcli disparity scripts/sample/left.png scripts/sample/right.png \
    -o demo/disparity.pfm --color-map demo/disparity_color.png --overwrite >/dev/null
"$python" scripts/sample_error.py demo/disparity.pfm

cat <<END
disparity map (px)   $root/demo/disparity.pfm
in colours           $root/demo/disparity_color.png
sample pair          $root/scripts/sample/left.png, right.png
next step            . $venv/bin/activate && pam --help
END
