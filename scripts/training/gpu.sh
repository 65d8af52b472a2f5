#!/usr/bin/env bash
# Train for minutes on a GPU machine that has only torch, numpy, OpenCV, Pillow and safetensors.
#   scripts/training/gpu.sh pack TEXTURES [MEGABYTES [PAIRS [LABELLED]]]
#       Before, here: fills gpu/ with textures.zip (of at most MEGABYTES, 28) and wheels of what else is needed, for
#       the Python that is there (PYTHON_THERE, 3.12); with PAIRS (folders left and right, and perhaps labels as
#       `make_superres_pairs.py` says) with pairs.zip, for super-resolution; with LABELLED, of
#       `pam dataset label` or render_rooms.py, with labelled.zip, for disparity ("" for PAIRS: none). Both stay
#       as they are, whatever their size.
#   scripts/training/gpu.sh unpack
#       There: what lies in gpu/ is unpacked, pairs for super-resolution are made; several calls may bring it.
#   scripts/training/gpu.sh MINUTES [superres-x2 | superres-x4] [option of pam train ...]
#       There, in a checkout with its gpu/: PASMnet 2, or PASSRnet 2, for MINUTES; all cores render scenes.
#       Goes on with the machine's last call, else from gpu/start-*.safetensors, else from the shipped weights.
#       Leaves weights in half precision, log and recipe in $OUT (gpu/out where it is not set), also when stopped.
#   scripts/training/gpu.sh keep FOLDER [superres-x2 | superres-x4]
#       After, here: the weights that came back become gpu/start-*.safetensors, and the log joins gpu/log-*.jsonl.
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
    for data in textures pairs labelled; do
        [ -d "runs/$data" ] || [ ! -e "gpu/$data.zip" ] || {
            "$python" -m zipfile -e "gpu/$data.zip" "runs/$data"
            case $data in
            textures) "$python" scripts/training/make_superres_pairs.py - runs/textures runs/sr ;;
            pairs) "$python" scripts/training/make_superres_pairs.py runs/pairs - runs/sr ;;
            esac
        }
    done
}
case $1 in
pack)
    mkdir -p gpu/wheels
    "$python" scripts/training/pack_textures.py "$2" gpu/textures.zip "${3:-28}"
    if [ -n "${4:-}" ]; then
        folders=("$4"/left "$4"/right)
        for labels in "$4"/disparity "$4"/disparity_mirrored; do [ ! -d "$labels" ] || folders+=("$labels"); done
        "$python" -m zipfile -c gpu/pairs.zip "${folders[@]}"
    fi
    if [ -n "${5:-}" ]; then
        folders=("$5"/{left,right,disparity})
        [ ! -d "$5/right_disparity" ] || folders+=("$5/right_disparity")
        "$python" -m zipfile -c gpu/labelled.zip "${folders[@]}"
    fi
    there=(--python-version "${PYTHON_THERE:-3.12}" --implementation cp)
    for platform in manylinux_2_28 manylinux_2_17 manylinux2014; do there+=(--platform "${platform}_x86_64"); done
    "$python" -m pip download --quiet --only-binary :all: --no-deps --dest gpu/wheels "${there[@]}" typer rich \
        pydantic pydantic-core annotated-types annotated-doc typing-inspection typing-extensions shellingham \
        markdown-it-py mdurl pygments imageio tensorboardX
    du -sh gpu
    exit ;;
unpack)
    unpack
    exit ;;
keep)
    what=${3:-disparity}
    cp "$2/last.safetensors" "gpu/start-$what.safetensors"
    cat "$2/log.jsonl" >>"gpu/log-$what.jsonl"
    exit ;;
esac
minutes=$1 what=disparity
shift
case ${1:-} in superres-x*) what=$1 && shift ;; esac
out=${OUT:-gpu/out} run=runs/gpu-$what
results() {
    mkdir -p "$out"
    for file in last.safetensors log.jsonl recipe.json; do
        [ ! -e "$run/$file" ] || cp "$run/$file" "$out/"
    done
}
trap results EXIT
unpack
export PYTHONPATH="$PWD:$PWD/runs/site${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
# Half a minute is left for the last checkpoint.
left=$("$python" -c "print(max($minutes - ($SECONDS + 30) / 60, $minutes / 2))")
task=${what%-x*} faster=()
if [ "$task" = superres ] && "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    faster=(--compile)
fi
if [ -e "$run/recipe.json" ]; then
    "$python" -m pamcli train "$task" --resume "$run" --max-minutes "$left" "${faster[@]}"
    exit
fi
if [ "$task" = disparity ]; then
    start=pasmnet2
    # Without an end there are no phases: the shares of the middle of a run.
    sizes='[{"crop": "384x192", "shares": [0.3]}, {"crop": "768x256", "shares": [0.25]}]'
    given=(--network pasmnet2 --batch 32 --set phases=[] --set "sizes=$sizes" --data procedural:runs/textures)
    [ ! -d runs/labelled ] || given+=(--data 'pairs:runs/labelled?weight=0.28')
else
    start=passrnet2-${what#superres-}
    given=(--recipe passrnet2-psnr --scale "${what#superres-x}" --batch 64 --set augmentation.smallest=0.5
        --set 'scenes.sizes=["1152x256", "768x384"]' --set scenes.uses=16 --set scenes.pool=64
        --data 'procedural:runs/textures?weight=0.2')
    for data in real:0.1 labelled:0.45 moved:0.25; do
        [ ! -d "runs/sr/${data%:*}" ] || given+=(--data "pairs:runs/sr/${data%:*}?weight=${data#*:}")
    done
fi
[ ! -e "gpu/start-$what.safetensors" ] || start=gpu/start-$what.safetensors
"$python" -m pamcli train "$task" --from "$start" "${given[@]}" \
    --learning-rate 1e-3 --set schedule.kind=constant --precision bf16 --steps 1000000 \
    --set checkpoint_every=200 --set keep=1 --max-minutes "$left" -o "$run" "${faster[@]}" "$@"
