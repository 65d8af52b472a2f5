#!/usr/bin/env bash
# Train PASSRnet on real pairs (directories left and right) and on procedural scenes, which train its attention.
#   scripts/training/passrnet.sh SCALE PAIRS TEXTURES RUN STEPS [option of pam train ...]
# If RUN exists, resume it, up to STEPS.
set -euo pipefail
scale=$1 pairs=$2 textures=$3 run=$4 steps=$5
shift 5
if [ -e "$run/recipe.json" ]; then
    exec pam train superres --resume "$run" --steps "$steps"
fi
exec pam train superres --scale "$scale" --data "pairs:$pairs?weight=2" --data "procedural:$textures" \
    --from "passrnet-x$scale" --learning-rate 4e-4 --steps "$steps" --set checkpoint_every=100 -o "$run" "$@"
