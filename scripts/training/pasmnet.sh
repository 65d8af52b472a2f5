#!/usr/bin/env bash
# Train PASMnet on procedural scenes. TEXTURES has photographs and cut-outs; RUN is the new run's directory.
#   scripts/training/pasmnet.sh TEXTURES RUN STEPS [option of pam train ...]
# If RUN exists, resume it, up to STEPS.
set -euo pipefail
textures=$1 run=$2 steps=$3
shift 3
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --data "procedural:$textures" --from pasmnet --recipe scenes --set losses.initial=0.1 \
    --learning-rate 6e-4 --steps "$steps" --set checkpoint_every=50 -o "$run" "$@"
