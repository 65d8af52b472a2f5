#!/usr/bin/env bash
# Train for minutes on a GPU machine that has only torch, numpy, OpenCV, Pillow and safetensors.
#   scripts/training/gpu.sh pack TEXTURES [MEGABYTES [PAIRS [LABELLED [RENDERED]]]]
#       Before, here: fills gpu/ with textures.zip (of at most MEGABYTES, 28) and wheels of what else is needed, for
#       the Python that is there (PYTHON_THERE, 3.12); with PAIRS (folders of pairs, each with left and right)
#       with pairs.zip, for super-resolution; with LABELLED, of `pam dataset label`, and RENDERED, of
#       render_rooms.py or render_worlds.py, with labelled.zip and rendered.zip, for disparity ("" for PAIRS or
#       LABELLED: none). All of these stay as they are, whatever their size.
#   scripts/training/gpu.sh unpack
#       There: what lies in gpu/ is unpacked into runs/; several calls may bring it.
#   scripts/training/gpu.sh MINUTES [option of pam train ...]
#       There, in a checkout with its gpu/: PASMnet 2 for MINUTES; all cores render scenes. Goes on with the
#       machine's last call, else from gpu/start-disparity.safetensors, else from the shipped weights. Leaves
#       weights in half precision, log and recipe in $OUT (gpu/out where it is not set), also when stopped.
#   scripts/training/gpu.sh MINUTES superres-x2 | superres-x4 IMAGES...
#       The same for PASSRnet 2 by train_superres_on_gpu.py, which describes IMAGES (runs/pairs/streets=0.3:1,0.8);
#       always from gpu/start-superres-*.safetensors or the shipped weights.
#   scripts/training/gpu.sh keep FOLDER [superres-x2 | superres-x4]
#       After, here: the weights that came back become gpu/start-*.safetensors, and the log joins gpu/log-*.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
unpack() {
    for wheel in gpu/wheels/*.whl; do
        [ ! -e "$wheel" ] || [ -e "runs/site/$(basename "$wheel")" ] || {
            "$python" -m zipfile -e "$wheel" runs/site
            touch "runs/site/$(basename "$wheel")"
        }
    done
    for data in textures pairs labelled rendered; do
        [ -d "runs/$data" ] || [ ! -e "gpu/$data.zip" ] || {
            "$python" -m zipfile -e "gpu/$data.zip" "runs/$data"
        }
    done
}
case $1 in
pack)
    mkdir -p gpu/wheels
    "$python" scripts/training/pack_textures.py "$2" gpu/textures.zip "${3:-28}"
    [ -z "${4:-}" ] || "$python" -m zipfile -c gpu/pairs.zip "$4"/*
    for data in "labelled:${5:-}" "rendered:${6:-}"; do
        from=${data#*:}
        [ -n "$from" ] || continue
        folders=("$from"/{left,right,disparity})
        [ ! -d "$from/right_disparity" ] || folders+=("$from/right_disparity")
        "$python" -m zipfile -c "gpu/${data%%:*}.zip" "${folders[@]}"
    done
    there=(--python-version "${PYTHON_THERE:-3.12}" --implementation cp)
    for platform in manylinux_2_28 manylinux_2_17 manylinux2014; do there+=(--platform "${platform}_x86_64"); done
    there=("$python" -m pip download --quiet --only-binary :all: --dest gpu/wheels "${there[@]}")
    "${there[@]}" 'typer<0.30' pydantic
    "${there[@]}" --no-deps imageio imagecodecs tensorboardX
    du -sh gpu
    exit ;;
unpack)
    unpack
    exit ;;
keep)
    what=${3:-disparity}
    cp "$2/last.safetensors" "gpu/start-$what.safetensors"
    for log in "$2"/log.*; do cat "$log" >>"gpu/log-$what.${log##*.}"; done
    exit ;;
esac
minutes=$1 what=disparity
shift
case ${1:-} in superres-x*) what=$1 && shift ;; esac
out=${OUT:-gpu/out} run=runs/gpu-disparity
start=pasmnet2
[ "$what" = disparity ] || start=weights/passrnet2-${what#superres-}.safetensors
[ ! -e "gpu/start-$what.safetensors" ] || start=gpu/start-$what.safetensors
mkdir -p "$out"
unpack
export PYTHONPATH="$PWD:$PWD/runs/site${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
# Half a minute is left for the last checkpoint.
left=$("$python" -c "print(max($minutes - ($SECONDS + 30) / 60, $minutes / 2))")
if [ "$what" != disparity ]; then
    "$python" scripts/training/train_superres_on_gpu.py "$start" "$@" \
        --minutes "$left" -o "$out/last.safetensors" | tee "$out/log.txt"
    exit
fi
results() {
    for file in last.safetensors log.jsonl recipe.json; do
        [ ! -e "$run/$file" ] || cp "$run/$file" "$out/"
    done
}
trap results EXIT
if [ -e "$run/recipe.json" ]; then
    "$python" -m pamcli train disparity --resume "$run" --max-minutes "$left"
    exit
fi
# Without an end there are no phases: the shares of the middle of a run.
sizes='[{"crop": "384x192", "shares": [0.3]}, {"crop": "768x256", "shares": [0.25]}]'
given=(--set phases=[] --set "sizes=$sizes" --data procedural:runs/textures)
[ ! -d runs/labelled ] || given+=(--data 'pairs:runs/labelled?weight=0.28')
[ ! -d runs/rendered ] || given+=(--data 'pairs:runs/rendered?weight=0.28')
"$python" -m pamcli train disparity --from "$start" --network pasmnet2 --batch 32 "${given[@]}" \
    --learning-rate 1e-3 --set schedule.kind=constant --precision bf16 --steps 1000000 \
    --set checkpoint_every=200 --set keep=1 --max-minutes "$left" -o "$run" "$@"
