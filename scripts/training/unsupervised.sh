#!/usr/bin/env bash
# PASMnet from scratch by the paper's losses alone: procedural scenes as plain pairs, and real pairs.
#   scripts/training/unsupervised.sh PAIRS TEXTURES RUN STEPS [option of pam train ...]
# Goes on where it stopped when RUN exists, up to STEPS.
set -euo pipefail
pairs=$1 textures=$2 run=$3 steps=$4
shift 4
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --unsupervised --recipe unsupervised --data "pairs:$pairs" --data "procedural:$textures" \
    --steps "$steps" --set checkpoint_every=100 -o "$run" "$@"
