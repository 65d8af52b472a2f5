#!/usr/bin/env bash
# One call's whole work on a GPU machine that is lent for minutes, with torch, numpy and safetensors alone.
#   scripts/training/gpu.sh pack TEXTURES [MEGABYTES]
#       Before, here: fills gpu/ with textures.zip (of at most MEGABYTES, 28) and wheels of what else is needed.
#   scripts/training/gpu.sh MINUTES [option of pam train disparity ...]
#       There, in a checkout with its gpu/: PASMnet 2 for so long, scenes drawn on all cores. Goes on with the
#       machine's last call, else from gpu/start.safetensors, else from the shipped weights. Leaves weights in
#       half precision, log and recipe in $OUT (gpu/out where it is not set), also when it is stopped.
#   scripts/training/gpu.sh keep FOLDER
#       After, here: the weights that came back become gpu/start.safetensors, and the log joins gpu/log.jsonl.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3} run=runs/gpu
case $1 in
pack)
    mkdir -p gpu/wheels
    "$python" scripts/training/pack_textures.py "$2" gpu/textures.zip "${3:-28}"
    "$python" -m pip download --quiet --only-binary :all: --no-deps --dest gpu/wheels typer rich pydantic \
        pydantic-core annotated-types annotated-doc typing-inspection typing-extensions shellingham markdown-it-py \
        mdurl pygments imageio tifffile pillow tensorboardX protobuf packaging safetensors huggingface-hub
    du -sh gpu
    exit ;;
keep)
    cp "$2/last.safetensors" gpu/start.safetensors
    cat "$2/log.jsonl" >>gpu/log.jsonl
    exit ;;
esac
minutes=$1
shift
out=${OUT:-gpu/out}
results() {
    mkdir -p "$out"
    for file in last.safetensors log.jsonl recipe.json; do
        [ ! -e "$run/$file" ] || cp "$run/$file" "$out/"
    done
}
trap results EXIT
for wheel in gpu/wheels/*.whl; do
    [ ! -e "$wheel" ] || "$python" -m zipfile -e "$wheel" runs/site
done
[ -d runs/textures ] || "$python" -m zipfile -e gpu/textures.zip runs/textures
export PYTHONPATH="$PWD:$PWD/runs/site${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
# Half a minute is left for the last checkpoint.
left=$("$python" -c "print(max($minutes - ($SECONDS + 30) / 60, $minutes / 2))")
if [ -e "$run/recipe.json" ]; then
    "$python" -m pamcli train disparity --resume "$run" --max-minutes "$left"
    exit
fi
start=pasmnet2
[ ! -e gpu/start.safetensors ] || start=gpu/start.safetensors
"$python" -m pamcli train disparity --network pasmnet2 --from "$start" --data procedural:runs/textures \
    --batch 32 --learning-rate 1e-3 --learning-rate-schedule constant --precision bf16 --steps 1000000 \
    --checkpoint-every 200 --keep 1 --max-minutes "$left" -o "$run" "$@"
