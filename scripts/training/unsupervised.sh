#!/usr/bin/env bash
# Train PASMnet from random weights by the paper's losses alone: scenes and real pairs without ground truth.
#   scripts/training/unsupervised.sh PAIRS TEXTURES RUN STEPS [option of pam train ...]
# If RUN exists, resume it, up to STEPS.
set -euo pipefail
pairs=$1 textures=$2 run=$3 steps=$4
shift 4
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --unsupervised --recipe unsupervised --data "pairs:$pairs" --data "procedural:$textures" \
    --steps "$steps" --set checkpoint_every=100 -o "$run" "$@"
