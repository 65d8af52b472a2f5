#!/usr/bin/env bash
# Train PASSRnet 2 on real pairs (directories left and right) and on procedural scenes, which train its attention.
#   scripts/training/passrnet2.sh SCALE PAIRS TEXTURES RUN STEPS [option of pam train ...]
# From random weights, or from others: --from passrnet2-x4, also for x2; with --recipe passrnet2-psnr what ends it, with
# --recipe passrnet2-camera what makes passrnet2-camera-x4 of it. Goes on where it stopped when RUN exists, up to STEPS.
set -euo pipefail
scale=$1 pairs=$2 textures=$3 run=$4 steps=$5
shift 5
if [ -e "$run/recipe.json" ]; then
    exec pam train superres --resume "$run" --steps "$steps"
fi
exec pam train superres --network passrnet2 --scale "$scale" --data "pairs:$pairs?weight=2" \
    --data "procedural:$textures" --steps "$steps" --set checkpoint_every=100 -o "$run" "$@"
