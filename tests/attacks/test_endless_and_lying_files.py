"""Files without an end, and files that lie about their size: one line, at once, in little memory."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pam_program import forked, pam, refuse_all
from PIL import Image

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import lock_folder
from pamcli.flickr1024.pairs import find_images
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.imaging.raster import encode_png
from pamcli.imaging.tiff import encode_tiff


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name in ("left.png", "right.png"):
        Path(name).write_bytes(encode_png(np.full((32, 64, 3), len(name), np.uint8)))
    os.mkfifo("pipe")
    os.symlink("/dev/zero", "zeros.json")
    return tmp_path


def test_a_tiff_whose_directory_points_to_itself_is_refused() -> None:
    data = bytearray(encode_tiff(np.zeros((8, 9, 3), np.uint8)))
    (start,) = struct.unpack_from("<I", data, 4)
    (entries,) = struct.unpack_from("<H", data, start)
    struct.pack_into("<I", data, start + 2 + 12 * entries, start)
    with pytest.raises(InputError, match="form a cycle"):
        read_image(bytes(data), name="loop.tif")


def test_no_memory_is_taken_for_a_tiff_that_its_bytes_cannot_fill() -> None:
    data = encode_tiff(np.zeros((24, 40), np.float32))
    width, wide = (struct.pack("<HHII", 256, 4, 1, pixels) for pixels in (40, 6_684_712))
    assert width in data
    Path("wide.tif").write_bytes(data.replace(width, wide))
    tracemalloc.start()
    with pytest.raises(InputError, match="ends too early"):
        read_disparity(Path("wide.tif"))
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "command",
    [
        "disparity --pairs pipe -o out/",
        "disparity zeros.json right.png -o d.pfm",
        "train superres --data procedural -o run --recipe zeros.json",
        "dataset prepare-flickr1024 . -o ../out --scale 2 --list pipe",
    ],
)
def test_what_is_no_regular_file_is_not_read(command: str) -> None:
    with forked(*command.split()) as running:
        _, said = running.communicate()
    assert running.returncode in (2, 3)
    assert b"is not a regular file" in said
    assert said.count(b"\n") == 1


def test_a_checkpoint_that_is_a_pipe() -> None:
    with forked("weights", "import", "pipe", "-o", "net.safetensors") as running:
        _, said = running.communicate()
    assert (running.returncode, said) == (4, b"pam: error: pipe is not a regular file: it is a pipe\n")


def test_a_pipe_that_nobody_reads_is_said_before_the_work() -> None:
    os.rename("pipe", "pipe.pfm")
    with forked("disparity", "left.png", "right.png", "-o", "pipe.pfm", "--overwrite") as running:
        _, said = running.communicate()
    assert running.returncode == 7, said
    assert b"it is a pipe without a reader" in said


def lying_archive(method: int) -> Path:
    """A member of 16 MB of zeros that declares 90 kB."""
    path = Path("bomb.zip")
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("0001_L.png", bytes(16 << 20))
    data = bytearray(path.read_bytes())
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", data, data.index(signature) + place, 90_000)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_no_more_is_unpacked_than_an_archive_declares(method: int) -> None:
    path = lying_archive(method)
    tracemalloc.start()
    with pytest.raises(InputError) as error:
        find_images(path)[0].read()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "bomb.zip" in error.value.message
    assert most < 4 << 20


def test_a_lock_ends_with_a_killed_holder() -> None:
    import subprocess

    hold = "import sys,time\nfrom pathlib import Path\nfrom pamcli.files.atomic import lock_folder\n"
    hold += "with lock_folder(Path('mine')):\n    print('held', flush=True)\n    time.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="is writing into mine"):
            lock_folder(Path("mine")).__enter__()
        holder.kill()
    with lock_folder(Path("mine")):
        pass


def test_metadata_cannot_command_the_terminal() -> None:
    source = Path(__file__).parents[2] / "weights" / "pasmnet.safetensors"
    data = source.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["licence"] = "MIT\x1b[2J\nsha256         0000"
    text = json.dumps(header).encode()
    Path("odd.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    run = pam("weights", "info", "odd.safetensors")
    assert run.code == 0, run.stderr
    assert b"\x1b" not in run.stdout
    assert sum(line.startswith("sha256") for line in run.lines) == 1


def test_names_and_numbers_of_extremes_are_refused_in_one_line() -> None:
    for side in ("left", "right"):
        Path("both", side).mkdir(parents=True)
        os.link(f"{side}.png", f"both/{side}/a.png")
    long, train = "x" * 300, "train superres --scale 2 -o run"
    table = f"""
        3 dataset verify kitti2015:{long}
        3 dataset verify pairs:~nosuchuser/x
        3 dataset prepare-flickr1024 {long} -o out --scale 2
        7 train superres --scale 2 --data procedural -o {long}
        3 train superres --resume {long}
        2 {train} --data procedural?first={"9" * 5000}
        2 {train} --data procedural?weight={"9" * 5000}
        2 {train} --data pairs:both --epochs 1e308
        2 {train} --data procedural --steps {"9" * 18}
        2 {train} --data procedural --batch {"9" * 400}
        2 {train} --data procedural --workers {"9" * 400}
        2 {train} --data procedural --learning-rate 1e308
        2 {train} --data procedural --set seed={"9" * 400}
        2 {train} --data procedural --set schedule.final=1e400
        2 disparity left.png right.png -o d.pfm --color-map c.png --range=-1e308:1e308
    """
    refuse_all(table)


@pytest.mark.parametrize("form", ["group4", "png"])
def test_black_pixels_of_one_bit_are_sound(form: str) -> None:
    stream = io.BytesIO()
    options = {} if form == "png" else {"compression": form}
    Image.new("1", (6000, 6000)).save(stream, "png" if form == "png" else "tiff", **options)
    pixels = read_image(stream.getvalue(), name=form).pixels
    assert pixels.shape == (6000, 6000, 3)
    assert not pixels.any()
