#!/usr/bin/env bash
# The default network adapted to a camera by its unlabelled pairs (folders left and right).
#   scripts/training/adapt.sh PAIRS RUN STEPS [option of pam train ...]
# Goes on where it stopped when RUN exists, up to STEPS.
set -euo pipefail
pairs=$1 run=$2 steps=$3
shift 3
if [ -e "$run/recipe.json" ]; then
    exec pam train disparity --resume "$run" --steps "$steps"
fi
exec pam train disparity --unsupervised --data "pairs:$pairs" --steps "$steps" -o "$run" "$@"
