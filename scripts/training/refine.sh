#!/usr/bin/env bash
# Train only PASMnet's refinement, from random weights, on procedural scenes.
#   scripts/training/refine.sh WEIGHTS TEXTURES RUN STEPS [option of pam train ...]
# If RUN exists, resume it, up to STEPS.
set -euo pipefail
weights=$1 textures=$2 run=$3 steps=$4
shift 4
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --data "procedural:$textures" --from "$weights" --recipe refine \
    --steps "$steps" --set checkpoint_every=50 -o "$run" "$@"
