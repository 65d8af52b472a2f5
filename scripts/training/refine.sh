#!/usr/bin/env bash
# The refinement alone, begun anew on procedural scenes; the rest of PASMnet stays as it is.
#   scripts/training/refine.sh WEIGHTS TEXTURES RUN STEPS [option of pam train ...]
# Goes on where it stopped when RUN exists, up to STEPS.
set -euo pipefail
weights=$1 textures=$2 run=$3 steps=$4
shift 4
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --data "procedural:$textures" --from "$weights" --recipe refine \
    --steps "$steps" --set checkpoint_every=50 -o "$run" "$@"
