#!/usr/bin/env bash
# Train PASMnet 2 on procedural scenes, from the shipped weights. TEXTURES has photographs and cut-outs.
#   scripts/training/pasmnet2.sh TEXTURES RUN STEPS [option of pam train ...]
# The head alone: --set only=head
# Goes on where it stopped when RUN exists, up to STEPS.
set -euo pipefail
textures=$1 run=$2 steps=$3
shift 3
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --network pasmnet2 --data "procedural:$textures" --from pasmnet2 \
    --steps "$steps" --set checkpoint_every=100 -o "$run" "$@"
