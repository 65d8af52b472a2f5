"""Read the fenced blocks of README and guide, and make small stand-ins for the files that their commands use.

A fenced `sh` or `console` block is one folder's story: its commands run one after the other in a folder of
their own that holds the files of `prepare` below, and so is a table whose last column is headed `command`. A
command that needs something else fails until it has its stand-in there.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import foreign_networks
import numpy as np
import photo_files
import stereo_files
import tifffile
import torch
from bag_files import ideal_infos, write_bag
from bag_files import picture as image_message
from PIL import Image
from simulated_rigs import make_chessboard, make_rig, photograph, sample_poses
from unrectified import photographs
from video_files import write_video
from warm_python import WarmPython

from pamcli.evaluation.image_quality import CNNIQA
from pamcli.evaluation.submissions import load_rules
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.disparity_files import read_disparity

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "pamcli" / "guide").glob("*.md"))]
OWN_PAIRS = 2
CHECKPOINT = "checkpoint.pth.tar"
"""A checkpoint in the authors' layout, in a folder that `prepare` is given."""

PROGRAMS = {
    *("pam", "pam-asp", "find", "sed", "ls", "cat", "head", "mkdir"),
    *("printf", "echo", "seq", "xargs"),
}
"""Programs that commands of the guide may call: pam, and tools of every machine."""

OUTPUT_OPTIONS = {
    *("-o", "--output", "--output-right", "--output-packed", "--save", "--page", "--report", "--table"),
    *("--visible", "--confidence", "--color-map", "--depth", "--depth-error", "--point-cloud", "--rerun"),
    *("--per-image", ">"),
}


SOURCES = {
    "/dev/video0 --packed": "both.mp4 --packed",
    "/dev/video0 /dev/video2": "left.mp4 right.mp4",
    "rtsp://127.0.0.1:8554/left rtsp://127.0.0.1:8554/right": "left.mp4 right.mp4",
}
"""Videos in place of cameras and streams, for `pam live`."""


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Return the command lines: continued lines are joined, comments and output are removed."""
        lines = self.text.replace("\\\n", "").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fences = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found = [(m.start(), m[1], m[2]) for m in fences]
    for table in re.finditer(r"^\|.* \| command \|\n\|[- |]*\n((?:\|.*\n)+)", text, re.MULTILINE):
        commands = re.findall(r"(?<=`)pam(?:-asp)? [^`]+(?=`)", table[1].replace("\\|", "|"))
        found.append((table.start(), "sh", "".join(f"{command}\n" for command in commands)))
    return [Block(page.name, kind, text[:at].count("\n") + 1, lines) for at, kind, lines in sorted(found)]


BLOCKS = [block for page in PAGES for block in blocks(page)]


def words_of(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def programs_of(command: str) -> list[str]:
    """Return the first word of every command in a pipeline or a list."""
    programs, first = [], True
    for word in words_of(command):
        if first:
            programs.append(word)
        first = word != "" and set(word) <= set("|&;")
    return programs


@cache
def board_images() -> list[tuple[np.ndarray, np.ndarray]]:
    """Render the images of a board in front of two cameras."""
    rig = make_rig(2, size=(320, 200))
    return photograph(
        rig, make_chessboard(9, 6, 0.025), sample_poses(rig, 10, 2, square=0.025), 2, {5: (9, 4)}
    )


def prepare_boards(folder: Path) -> None:
    """Replace the pairs by images and videos of a board, and remove the calibration."""
    (folder / "rig.yaml").unlink()
    for side, name in enumerate(("left", "right")):
        shutil.rmtree(folder / f"{name}s")
        (folder / f"{name}s").mkdir()
        video = cv2.VideoWriter(str(folder / f"{name}.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 10, (320, 200))
        for number, pair in enumerate(board_images(), 1):
            view = Image.fromarray(pair[side])
            view.save(folder / f"{name}s" / f"{number:02}.png")
            for _ in range(2):  # it is held still
                video.write(cv2.cvtColor(pair[side], cv2.COLOR_GRAY2BGR))
            if number == 1:
                view.save(folder / f"photo_{name}.jpg", quality=95)
        video.release()


def prepare_photos(folder: Path) -> None:
    """A spatial photo, two HEIC photos, and a VR180 photo."""
    left, right = views(96, 64)
    pixels = [np.asarray(view) for view in (left, right)]
    cameras = [photo_files.camera(1, 0.5, 0.5, (move, 0, 0)) for move in (0, 19_200)]
    (folder / "spatial").mkdir()
    for name in ("IMG_0001.HEIC", "spatial/IMG_0001.HEIC"):
        (folder / name).write_bytes(photo_files.spatial(photo_files.heic(*pixels), cameras))
    for name, view in zip(("left.heic", "right.heic"), pixels, strict=True):
        (folder / name).write_bytes(photo_files.heic(view))
    encoded = [stereo_files.jpeg(np.asarray(view.resize((128, 128)))) for view in (left, right)]
    both = np.concatenate([np.asarray(view.resize((128, 64))) for view in (left, right)])
    (folder / "walk360.jpg").write_bytes(stereo_files.jpeg(both))
    (folder / "walk.vr.jpg").write_bytes(photo_files.vr180(*encoded, (128, 128), parts=2))


def prepare_bags(folder: Path, left: Image.Image, right: Image.Image) -> None:
    """drive.bag, drive.mcap and the folder drive: bags of the pair, twice."""
    infos = ideal_infos(left.size, 100, 0.193)
    topics: dict[str, Any] = {}
    for side, view, info in zip(("left", "right"), (left, right), infos, strict=True):
        image = image_message(np.asarray(view.convert("RGB")))
        topics |= {f"/stereo/{side}/image_raw": [image] * 2, f"/stereo/{side}/camera_info": [info]}
    for name in ("drive.bag", "drive.mcap", "drive.db3"):
        write_bag(folder / name, topics)


def prepare_videos(folder: Path, left: Image.Image, right: Image.Image) -> None:
    """Write videos of two cameras that move down, and one with both views; needs PyAV."""
    frames = [[np.asarray(view)[top : top + 32] for top in range(4)] for view in (left, right)]
    write_video(folder / "clip_left.mp4", frames[0], "libx264", "yuv420p")
    write_video(folder / "clip_right.mp4", frames[1], "libx264", "yuv420p")
    both = [np.concatenate(pair, axis=1) for pair in zip(*frames, strict=True)]
    write_video(folder / "clip.mp4", both, "libx264", "yuv420p")


@cache
def views(width: int = 72, height: int = 40) -> tuple[Image.Image, Image.Image]:
    """A part of the sample pair with disparities from 9 to 12 px."""
    left, right = (
        Image.open(ROOT / "scripts" / "sample" / f"{side}.png")
        .convert("RGB")
        .crop((140, 60, 140 + width, 60 + height))
        for side in ("left", "right")
    )
    return left, right


@cache
def files_of_all() -> tempfile.TemporaryDirectory[str]:
    """Make small files with the names that the pages use, in a folder to copy for each block."""
    made = tempfile.TemporaryDirectory(prefix="pam-pages-")
    folder = Path(made.name)
    left, right = views()
    packed = Image.new("RGB", (2 * left.width, left.height))
    packed.paste(left, (0, 0))
    packed.paste(right, (left.width, 0))

    def save(image: Image.Image, *names: str) -> None:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            image.save(folder / name)

    for view, side, yard in ((left, "left", "five"), (right, "right", "six")):
        save(view, f"{side}.png", f"{side}s/one.png", f"{side}s/two.png", f"yard/{yard}.png")
        save(view, *(f"day1/{name}_{side[0].upper()}.png" for name in ("three", "four")))
    save(left, "photos/yard.jpg")
    save(packed, "frames/seven.jpg", "frames/eight.jpg", "frame.jpg", "glasses.png")
    # Data sets: one pair of KITTI 2015 with ground truth; one of KITTI 2012 and own pairs without.
    ground_truth = read_disparity(ROOT / "scripts" / "sample" / "disparity.pfm")[60:100, 140:212]
    save(
        left,
        "kitti/training/image_2/000000_10.png",
        "kitti2012/testing/colored_0/000000_10.png",
        *(f"mine/left/{number}.png" for number in range(OWN_PAIRS)),
    )
    save(
        right,
        "kitti/training/image_3/000000_10.png",
        "kitti2012/testing/colored_1/000000_10.png",
        *(f"mine/right/{number}.png" for number in range(OWN_PAIRS)),
    )
    (folder / "kitti/training/disp_occ_0").mkdir()
    encoded = encode_disparity(ground_truth, ".png").data
    (folder / "kitti/training/disp_occ_0/000000_10.png").write_bytes(encoded)
    (folder / "pairs.tsv").write_text("yard/five.png\tyard/six.png\n")
    # Flickr1024 and Middlebury, large enough for patches; a cross-eyed stereogram.
    large = [
        Image.open(ROOT / "scripts" / "sample" / f"{side}.png").convert("RGB").crop((60, 100, 540, 340))
        for side in ("left", "right")
    ]
    for pixels, view, name in zip(large, "LR", ("im0.png", "im1.png"), strict=True):
        save(pixels, f"Flickr1024/Train/0001_{view}.png", f"midd/Piano/{name}")
    (folder / "names.txt").write_text("flickr1024/*\nPiano\n")
    stereogram = Image.new("RGB", (2 * large[0].width, large[0].height))
    stereogram.paste(large[1], (0, 0))
    stereogram.paste(large[0], (large[0].width, 0))
    save(stereogram, "stereograms/one.jpg")
    # What stereo cameras write, and the tiles of a survey.
    jpegs = [stereo_files.jpeg(np.asarray(view)) for view in (left, right)]
    cross_eyed = stereo_files.jpeg(np.concatenate([np.asarray(right), np.asarray(left)], axis=1))
    for name in ("DSCF0001.MPO", "DCIM/DSCF0002.MPO"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(stereo_files.mpo(*jpegs))
    (folder / "viewed.jps").write_bytes(stereo_files.jps(cross_eyed))
    save(packed.resize((left.width, left.height)), "film/000001.png")
    for name, view in (("left.tif", left), ("right.tif", right)):
        tifffile.imwrite(folder / name, np.asarray(view.convert("L"), np.float32))
    # Photographs of cameras that are not rectified, and calibrations.
    unrectified = photographs(*(np.asarray(view.resize((240, 120))) for view in large))
    for side in ("left", "right"):
        (folder / "cameras" / side).mkdir(parents=True)
    unrectified.write(folder, "cameras/left/0001.jpg", "cameras/right/0001.jpg")
    unrectified.write(folder, "photo_left.jpg", "photo_right.jpg")
    save(Image.fromarray(np.concatenate([unrectified.left, unrectified.right], axis=1)), "card.jpg")
    matrix = "[100 0 {}; 0 100 20; 0 0 1]"
    (folder / "boxes.csv").write_text("label,x,y,width,height\nball,40,16,16,16\n")
    (folder / "calib.txt").write_text(
        f"cam0={matrix.format(30)}\ncam1={matrix.format(32)}\ndoffs=2\nbaseline=193\nwidth=72\nheight=40\n"
    )
    (folder / "colour.yaml").write_text("K: [9, 9, 60, 40]\nR: [0, 0, 0]\nT: [1, 0, 0]\nsize: [120, 80]\n")
    (folder / "mynetwork.py").write_text(foreign_networks.AS_MODULE)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").touch()
    (folder / "bin").mkdir()
    return made


def prepare(folder: Path, block: Block, checkpoint: Path, warm_python: WarmPython) -> dict[str, str]:
    """Fill the folder with the files that a block uses, and return the environment of its commands."""
    shutil.copytree(files_of_all().name, folder, dirs_exist_ok=True)
    left, right = views()
    if "MiddEval3" in block.text:  # Middlebury's training scenes, which make an archive of their own
        for scene in load_rules("middlebury").training:
            (folder / "MiddEval3/trainingQ" / scene).mkdir(parents=True)
            for view, name in ((left, "im0.png"), (right, "im1.png")):
                view.crop((0, 0, 48, 32)).save(folder / f"MiddEval3/trainingQ/{scene}/{name}")
    if all(command.startswith("pam superres") for command in block.commands()):  # which takes its time
        for view in [*folder.glob("*.png"), *folder.glob("*/*.png")]:
            Image.open(view).crop((16, 8, 56, 32)).save(view)
    if "clip_left" in block.text:
        prepare_videos(folder, left, right)
    if "live" in block.text:
        seen = [[np.asarray(view.resize((240, 120)))] * 3 for view in (left, right)]
        for name, frames in zip(("left", "right"), seen, strict=True):
            write_video(folder / f"{name}.mp4", frames, "libx264", "yuv420p")
        write_video(
            folder / "both.mp4", [np.hstack(pair) for pair in zip(*seen, strict=True)], "libx264", "yuv420p"
        )
    if "drive.bag" in block.text:
        prepare_bags(folder, left, right)
    if "HEIC" in block.text:
        prepare_photos(folder)
    if "calibration make" in block.text or "--calibrate" in block.text:
        prepare_boards(folder)
    if "stereo.onnx" in block.text:  # needs onnx
        foreign_networks.block_matcher(folder / "stereo.onnx", (160, 224), reach=24, white=255)
    for name in re.findall(r"[\w.-]+\.pth(?:\.tar)?\b", block.text):
        (folder / name).symlink_to(checkpoint)
    if "CNNIQA-LIVE" in block.text:  # the publisher's file has PyTorch's old format
        torch.save(CNNIQA().state_dict(), folder / "CNNIQA-LIVE", _use_new_zipfile_serialization=False)

    # What the README fetches from the Hub lies in the Hub's cache, and there is no network.
    commit = "0" * 40
    for repo, file, revision in re.findall(
        r"hf:([\w.-]+/[\w.-]+)/([\w./-]+\.safetensors)(?:@([\w.-]+))?", block.text
    ):
        cached = folder / "hub" / f"models--{repo.replace('/', '--')}"
        (cached / "refs").mkdir(parents=True, exist_ok=True)
        (cached / "refs" / (revision or "main")).write_text(commit)
        (cached / "snapshots" / commit / file).parent.mkdir(parents=True, exist_ok=True)
        (cached / "snapshots" / commit / file).symlink_to(ROOT / "weights" / "pasmnet.safetensors")

    bin_folder = folder / "bin"
    asp = "from pamcli.cli.ames import main; main()"
    for program, words in (("pam", ("-m", "pamcli")), ("pam-asp", ("-c", asp))):
        command = shlex.join(warm_python.command(*words))
        (bin_folder / program).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (bin_folder / program).chmod(0o755)
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HF_HUB_CACHE": str(folder / "hub"), "HF_HUB_OFFLINE": "1"}


def assert_outputs_exist(folder: Path, command: str) -> None:
    words = words_of(command)
    for option, value in itertools.pairwise(words):
        if option not in OUTPUT_OPTIONS or value == "-" or "://" in value:
            continue
        made = sorted(folder.glob(value.rstrip("/").replace("{}", "*")))
        assert made, f"{command}\nmade no {value}"
        for path in made:
            files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
            assert files, f"{command}\nleft the folder {value} empty"
            assert all(file.stat().st_size > 0 for file in files)


TRAIN_A_LITTLE = " --steps 1 --batch 1 --workers 0"
"""Options that shorten a training run to seconds; the last value of an option counts."""


def shortened(command: str) -> str:
    """Return the command with less work, videos in place of cameras, and an end of `pam view`."""
    if command.startswith("pam view"):
        wait = "for _ in $(seq 600); do [ -s address ] && break; sleep 0.1; done"
        program = command.partition(" #")[0].replace("pam", f"{sys.executable} -m pamcli", 1)
        return f"{program} --no-browser > address & {wait}; kill $!; [ -s address ]"
    if command.startswith("pam live"):
        for source, video in SOURCES.items():
            command = command.replace(source, video)
        command = command.replace("--calibrate", "--calibrate --count 9").replace(
            "--doctor", "--doctor --count 2"
        )
        quiet = any(word in command for word in ("--no-page", "--calibrate", "--doctor"))
        return command.partition(" #")[0] + ("" if quiet else " --no-browser")
    if not command.startswith("pam train"):
        command = command.replace("--size 1248x384", "--size 72x40")  # of the images
        command = command.replace("size=960x512", "size=512x256")
        command = command.replace("seq 1 4", "seq 1 2").replace("I/4", "I/2")  # as many shards as pairs
        return command.replace("-o scenes.png", "-o scenes.png --count 1")
    if "--resume" in command:
        return command.replace("--steps 30000", "--steps 2")
    crop = "24x16" if "superres" in command else "64x32 --set sizes=[] --set scenes.sizes=[]"
    return f"{command.partition(' #')[0].rstrip()}{TRAIN_A_LITTLE} --crop {crop}"
