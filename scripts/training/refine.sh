#!/usr/bin/env bash
# The refinement alone, begun anew on procedural scenes; the rest of PASMnet stays as it is.
#   scripts/training/refine.sh WEIGHTS TEXTURES RUN STEPS [option of pam train ...]
# Goes on where it stopped when RUN exists.
set -euo pipefail
weights=$1 textures=$2 run=$3 steps=$4
shift 4
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run"
fi
exec pam train disparity --data "procedural:$textures" --from "$weights" --recipe scenes \
    --only refine --anew refine --freeze-batch-norm --loss initial=0 --loss likelihood=0 --loss estimate=1 \
    --loss smoothness=0.02 --learning-rate 1.5e-4 --ema 0.98 --steps "$steps" --checkpoint-every 50 -o "$run" "$@"
