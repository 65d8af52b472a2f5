#!/usr/bin/env bash
# Adapt the default network to pairs of a camera without ground truth (directories left and right).
#   scripts/training/adapt.sh PAIRS RUN STEPS [option of pam train ...]
# If RUN exists, resume it, up to STEPS.
set -euo pipefail
pairs=$1 run=$2 steps=$3
shift 3
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --unsupervised --data "pairs:$pairs" --steps "$steps" -o "$run" "$@"
