"""Every reader on files with random damage: a result or an error of pam's own, soon, in little memory.

`pytest tests/attacks/test_mutated_files.py --seeds 2000` takes so many seeds a reader; a failure names it.
"""

from __future__ import annotations

import io
import json
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bag_files
import numpy as np
import photo_files
import pytest
import stereo_files
import video_files
from PIL import Image
from safetensors.numpy import save

from pamcli.data.listing import read_rectified_calibration
from pamcli.errors import InputError, ModelError, PamError, UsageError
from pamcli.files.pairing import read_pair_list
from pamcli.flickr1024.stores import read_index
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.imaging.packed_views import read_packed_pair
from pamcli.imaging.raster import encode_png
from pamcli.imaging.tiff import encode_tiff
from pamcli.imaging.videos import Video
from pamcli.recordings.bags import Recording
from pamcli.registry.catalog import ModelSpec, read_header

MOST_SECONDS, MOST_BYTES = 10, 1 << 30
"""Limits: seconds of the processor, for how busy the machine is does not count, and bytes."""
PIXELS = np.arange(24 * 40 * 3, dtype=np.uint8).reshape(24, 40, 3)
DISPARITY = np.linspace(0, 30, 24 * 40, dtype=np.float32).reshape(24, 40)


def pillow(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, kind)
    return stream.getvalue()


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def safetensors() -> bytes:
    spec = ModelSpec("passrnet", scale=4, training="made up")
    return save({"a": PIXELS.astype(np.float16), "b": DISPARITY}, spec.to_metadata())


def onnx_file() -> bytes:
    """Make a file as large as it has to be: what it computes is a sum."""
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[onnx]')")
    from onnx import TensorProto, helper

    left, right, both = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, "h", "w"])
        for name in ("left", "right", "sum")
    )
    node = helper.make_node("Add", ["left", "right"], ["sum"])
    graph = helper.make_graph([node], "g", [left, right], [both])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    spec = ModelSpec("passrnet", scale=4, training="made up")
    helper.set_model_props(model, {**spec.to_metadata(), "size": "dynamic", "precision": "fp32"})
    return bytes(model.SerializeToString())


def run_onnx(path: Path) -> None:
    from pamcli.inference.onnx_file import OnnxModel

    OnnxModel(path, device="cpu")


def read_views(path: Path) -> None:
    read_packed_pair(path, "auto", max_pixels=10**6, name=str(path))


def spatial() -> bytes:
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed (pip install 'pamcli[heif]')")
    cameras = [photo_files.camera(0.7, 0.5, 0.5, (place, 0, 0)) for place in (0, 19200)]
    return photo_files.spatial(photo_files.heic(PIXELS, PIXELS), cameras)


def read_video(path: Path) -> None:
    video = Video(path)
    for number in range(len(video.stamps)):
        video.frame(number)


def video() -> bytes:
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    with TemporaryDirectory() as folder:
        video_files.write_video(Path(folder, "a.mkv"), [PIXELS] * 2)
        return Path(folder, "a.mkv").read_bytes()


def read_bag(path: Path) -> None:
    Recording(str(path)).read((1, 1), max_pixels=10**6, rectify=True)


def bag() -> bytes:
    pytest.importorskip("rosbags", reason="rosbags is not installed (pip install 'pamcli[ros]')")
    with TemporaryDirectory() as folder:
        images = {f"/cam/{side}/image_raw": [bag_files.picture(PIXELS)] * 3 for side in ("left", "right")}
        bag_files.write_bag(Path(folder, "a.bag"), images)
        return Path(folder, "a.bag").read_bytes()


INDEX = {
    "format": 1,
    "scale": 2,
    "split": "train",
    "left_out": [],
    "job": {"options": {}, "pictures": []},
    "pictures": [
        {"source": "a", "name": "b", "width": 192, "height": 72, "first": 1, "patches": 1, "offset": 0}
    ],
}
READERS: dict[str, tuple[Callable[[Path], object], Callable[[], bytes]]] = {
    "a.png": (read_image, lambda: encode_png(PIXELS.astype(np.uint16) * 257)),
    "a.jpg": (read_image, lambda: pillow("jpeg")),
    "a.webp": (read_image, lambda: pillow("webp")),
    "a.avif": (read_image, lambda: pillow("avif")),
    "a.bmp": (read_image, lambda: pillow("bmp")),
    "a.ppm": (read_image, lambda: pillow("ppm")),
    "a.tif": (read_image, lambda: encode_tiff(PIXELS)),
    "d.pfm": (read_disparity, lambda: b"Pf\n40 24\n-1.0\n" + DISPARITY.tobytes()),
    "d.npy": (read_disparity, lambda: npy(DISPARITY)),
    "d.tif": (read_disparity, lambda: encode_tiff(DISPARITY)),
    "d.png": (read_disparity, lambda: encode_png((DISPARITY * 256).astype(np.uint16))),
    "a.mpo": (read_views, lambda: stereo_files.mpo(*[stereo_files.jpeg(PIXELS)] * 2)),
    "a.jps": (read_views, lambda: stereo_files.jps(stereo_files.jpeg(PIXELS))),
    "a.heic": (read_views, spatial),
    "a.mkv": (read_video, video),
    "a.bag": (read_bag, bag),
    "pairs.txt": (read_pair_list, lambda: b"a.png\tb.png\nc.png\td.png\tout.pfm\n"),
    "w.safetensors": (read_header, safetensors),
    "w.onnx": (run_onnx, onnx_file),
    "index.json": (read_index, lambda: json.dumps(INDEX).encode()),
    "calib.txt": (read_rectified_calibration, lambda: b"cam0=[9 0 4; 0 9 3; 0 0 1]\nbaseline=80\ndoffs=1\n"),
    "kitti.txt": (
        lambda path: read_rectified_calibration(path, (2, 3)),
        lambda: b"P2: 9 0 4 1 0 9 3 0 0 0 1 0\nP3: 9 0 4 -3 0 9 3 0 0 0 1 0\n",
    ),
}


def mutated(data: bytes, seed: int) -> bytes:
    """The bytes with some of them changed, cut, doubled, or with a number or a text of extremes in them."""
    draw = random.Random(seed)
    numbers = b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"1e308", b"9" * 400
    extremes = [*numbers, b"NaN", b"Infinity", b"null", b"[" * 5000]
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        place = draw.randrange(len(data) + 1)
        end = min(len(data), place + draw.choice((1, 2, 4, 64)))
        what = draw.randrange(6)
        if what == 0:
            data = data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]
        elif what == 1:
            data = data[:place]
        elif what == 2:
            data = data[:place] + data[end:]
        elif what == 3:
            data = data[:end] + data[place:]
        else:
            text = draw.choice(extremes)
            data = data[:place] + text + data[place + (len(text) if what == 4 else 0) :]
    return data


@pytest.mark.parametrize("name", READERS)
def test_damage_ends_in_a_result_or_in_an_error_of_pams_own(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    """Weights are 4, the rest 2 or 3; the libraries say nothing themselves."""
    read, make = READERS[name]
    data, path = make(), tmp_path / name
    codes = [ModelError.exit_code] if name.startswith("w.") else [InputError.exit_code, UsageError.exit_code]
    path.write_bytes(data)
    if not name.startswith("pairs"):
        read(path)  # whole, it is fine
    for seed in range(request.config.getoption("--seeds")):
        path.write_bytes(mutated(data, seed))
        tracemalloc.start()
        start, said, code = time.process_time(), "", codes[0]
        try:
            read(path)
        except PamError as error:
            said, code = str(error), error.exit_code
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert "\n" not in said, seed
        assert code in codes, seed
        seconds, most = time.process_time() - start, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert seconds < MOST_SECONDS, seed
        assert most < MOST_BYTES, seed
    assert capfd.readouterr() == ("", "")
