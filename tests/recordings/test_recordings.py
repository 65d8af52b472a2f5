"""Pairs of images in ROS bags: topics, encodings, times, calibration, and what is wrong with a bag."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed (pip install 'pamcli[ros]')")

from bag_files import BEGIN, STEP, camera_info, compressed, ideal_infos, picture, write_bag
from unrectified import photographs

import pamcli
from pamcli.batch.processing import attempt
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.paths import is_recording
from pamcli.recordings.bags import Recording, decode_image

KINDS = ("a.bag", "a.mcap", "a.db3")
LEFT, RIGHT = "/cam/left/image_raw", "/cam/right/image_raw"


def place(folder: Path, kind: str) -> str:
    """Return how a bag is named: the folder of a ROS 2 bag that is not one file."""
    return f"bag:{folder / 'a'}" if kind.endswith(".db3") else str(folder / kind)


def images(count: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(0, 256, (count, 8, 12, 3), np.uint8))


@pytest.mark.parametrize("kind", KINDS)
def test_images_come_back_in_any_order_and_in_another_process(kind: str, tmp_path: Path) -> None:
    left, right = images(4), images(4, 1)
    write_bag(tmp_path / kind, {LEFT: [*map(picture, left)], RIGHT: [*map(picture, right)]})
    recording: Recording = pickle.loads(pickle.dumps(Recording(place(tmp_path, kind))))
    assert recording.numbers.tolist() == [[number, number] for number in range(4)]
    assert recording.stamps.tolist() == [BEGIN + number * STEP for number in range(4)]
    for number in (2, 3, 0, 0):
        pair = recording.read((number, number), max_pixels=None, rectify=True)
        np.testing.assert_array_equal(pair.left.pixels, left[number])
        np.testing.assert_array_equal(pair.right.pixels, right[number])
        assert not pair.stated


def test_images_are_paired_by_the_nearest_time(tmp_path: Path) -> None:
    """Right images are 3 ms late, one is missing, and they were recorded in another order."""
    late = [number * STEP + 3_000_000 for number in (0, 2, 3)]
    write_bag(
        tmp_path / "a.bag",
        {LEFT: [*map(picture, images(4))], RIGHT: [*map(picture, images(3))]},
        stamps={RIGHT: late},
    )
    recording = Recording(str(tmp_path / "a.bag"))
    assert recording.numbers.tolist() == [[0, 0], [2, 1], [3, 2]]
    assert "1 of 4 left images" in recording.warnings[0]
    assert len(Recording(f"bag:{tmp_path}/a.bag?tolerance=0.004").numbers) == 3
    with pytest.raises(InputError, match=r"within 2 ms; the nearest are 3 ms apart.*tolerance="):
        Recording(f"bag:{tmp_path}/a.bag?tolerance=2ms")


@pytest.mark.parametrize(
    ("topics", "chosen"),
    [
        (["/left/image", "/right/image", "/thermal/image"], ("/left/image", "/right/image")),
        (["/cam0/image_raw", "/cam1/image_raw"], ("/cam0/image_raw", "/cam1/image_raw")),
        (["/camera/infra2/image", "/camera/infra1/image"], ("/camera/infra1/image", "/camera/infra2/image")),
        (["/left/image", "/right/image", "/left/image_rect", "/right/image_rect"], None),
        (["/front/image", "/back/image"], None),
        ([], None),
    ],
)
def test_topics_are_guessed_only_if_one_pair_is_possible(
    topics: list[str], chosen: tuple[str, str] | None, tmp_path: Path
) -> None:
    others = {"/other/camera_info": [ideal_infos((12, 8), 10, 1)[0]]}
    write_bag(tmp_path / "a.bag", {**{topic: [picture(images(1)[0])] for topic in topics}, **others})
    if chosen:
        assert Recording(str(tmp_path / "a.bag")).topics == chosen
    else:
        with pytest.raises(UsageError) as error:
            Recording(str(tmp_path / "a.bag"))
        assert all(topic in str(error.value) for topic in topics)
        assert str(error.value).count("\n") == 0
    if len(topics) > 3:
        text = f"bag:{tmp_path}/a.bag?left=/left/image_rect"
        assert Recording(text).topics == ("/left/image_rect", "/right/image_rect")


def grey(colour: np.ndarray) -> np.ndarray:
    return np.repeat(colour[..., :1], 3, axis=2)


def test_encodings_are_decoded() -> None:
    (colour,) = images(1)
    deep = colour.astype(np.uint16) * 257
    alpha = np.full((*colour.shape[:2], 1), 7, np.uint8)
    stored: dict[str, tuple[np.ndarray, np.ndarray]] = {
        "rgb8": (colour, colour),
        "bgr8": (colour[..., ::-1], colour),
        "bgra8": (np.dstack([colour[..., ::-1], alpha]), colour),
        "mono8": (colour[..., 0], grey(colour)),
        "8UC3": (colour[..., ::-1], colour),
        "mono16": (deep[..., 0], grey(deep)),
        "rgb16": (deep, deep),
    }
    for encoding, (samples, expected) in stored.items():
        for padding in (0, 6):
            _, fields = picture(samples, encoding, padding)
            found = decode_image(type("Message", (), fields), "x", None)
            np.testing.assert_array_equal(found.pixels, expected, err_msg=encoding)
    packed = np.full((16, 24, 2), 128, np.uint8)  # colour, brightness
    packed[..., 1] = 90
    found = decode_image(type("Message", (), picture(packed, "yuv422")[1]), "x", None)
    assert np.abs(found.pixels.astype(int) - round(1.164 * (90 - 16))).max() <= 1


@pytest.mark.parametrize(
    ("encoding", "y", "x"),
    [("bayer_rggb8", 0, 0), ("bayer_bggr8", 1, 1), ("bayer_gbrg8", 1, 0), ("bayer_grbg8", 0, 1)],
)
def test_bayer_patterns_are_converted_to_colour(encoding: str, y: int, x: int) -> None:
    mosaic = np.zeros((16, 24), np.uint8)
    mosaic[y::2, x::2] = 200  # red
    data = cv2.imencode(".png", mosaic)[1].tobytes()
    for _, fields in (picture(mosaic, encoding), compressed(data, f"{encoding}; png compressed ")):
        found = decode_image(type("Message", (), fields), "x", None)
        assert not found.grey
        assert (found.pixels[4:-4, 4:-4] == (200, 0, 0)).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoding": "32FC1"}, "32FC1"),
        ({"step": 5}, "damaged"),
        ({"data": np.zeros(10, np.uint8)}, "damaged"),
        ({"width": 10**6, "height": 10**6}, "pixels"),
        ({"height": 0}, "no pixels"),
    ],
)
def test_a_bad_image_is_one_line(change: dict[str, Any], said: str) -> None:
    fields = {**picture(images(1)[0])[1], **change}
    with pytest.raises(InputError, match=said) as error:
        decode_image(type("Message", (), fields), "a.bag, frame 3", 10**6)
    assert str(error.value).startswith("a.bag, frame 3")


def test_a_damaged_bag_is_one_line(tmp_path: Path) -> None:
    for kind in KINDS:
        write_bag(tmp_path / kind, {LEFT: [picture(images(1)[0])] * 20, RIGHT: [picture(images(1)[0])] * 20})
    files = [tmp_path / "a.bag", tmp_path / "a.mcap", tmp_path / "a" / "a.db3"]
    for file in files:
        data = file.read_bytes()
        for length in (0, 3, len(data) // 2, len(data) - 7):
            broken = tmp_path / f"broken{file.suffix}"
            broken.write_bytes(data[:length])
            found = attempt(
                lambda name: Recording(name).read((5, 5), max_pixels=None, rectify=True), str(broken)
            )
            if length < len(data) - 7 or file.suffix != ".db3":  # the last bytes of a page may be unused
                assert isinstance(found, PamError)
                assert (found.exit_code, str(found).count("\n")) == (3, 0)
                assert broken.name in str(found)


def test_an_impossible_length_in_a_bag_is_damage(tmp_path: Path) -> None:
    write_bag(tmp_path / "a.mcap", {LEFT: [picture(images(1)[0])] * 2, RIGHT: [picture(images(1)[0])] * 2})
    data, codes = (tmp_path / "a.mcap").read_bytes(), set()
    for place in range(8, 200, 14):
        (tmp_path / "b.mcap").write_bytes(data[:place] + b"\x7f" * 8 + data[place + 8 :])
        found = attempt(
            lambda name: Recording(name).read((1, 1), max_pixels=None, rectify=True),
            str(tmp_path / "b.mcap"),
        )
        codes.add(found.exit_code if isinstance(found, PamError) else 0)
    assert 3 in codes
    assert codes <= {0, 2, 3}


def test_keys_that_are_unknown_or_wrong_are_refused(tmp_path: Path) -> None:
    write_bag(tmp_path / "a.bag", {LEFT: [picture(images(1)[0])], RIGHT: [picture(images(1)[0])]})
    bag = f"bag:{tmp_path}/a.bag"
    for query, said in {
        "topic=/x": "unknown key 'topic'",
        "left=/x": "no images in /x",
        f"left={LEFT}&right={LEFT}": "left and right are both",
        "tolerance=fast": "not a time",
        "rectified=maybe": "expected one of yes, no",
        "left_info=/x": "no camera_info /x",
    }.items():
        with pytest.raises(UsageError, match=said):
            Recording(f"{bag}?{query}")
    with pytest.raises(InputError, match="no such file"):
        Recording("bag:nothing.bag")
    with pytest.raises(InputError, match=r"no metadata\.yaml"):
        Recording(f"bag:{tmp_path}")


def test_crooked_cameras_are_rectified_by_their_camera_info(tmp_path: Path) -> None:
    """Images and calibration are those that the same cameras have in calibration files."""
    from pamcli.calibration.files import read_calibration

    rows, columns = np.mgrid[0:96, 0:128]
    texture = (127 + 60 * np.sin(rows / 5) + 60 * np.cos(columns / 7)).astype(np.uint8)
    crooked = photographs(*[np.repeat(texture[..., None], 3, 2)] * 2)
    infos, texts = [], crooked.ros(140.0)
    for side, text in zip(("left", "right"), texts, strict=True):
        (tmp_path / f"{side}.yaml").write_text(text)
    rig = read_calibration(tmp_path / "left.yaml", tmp_path / "right.yaml").rig
    assert rig is not None
    assert rig.stated is not None
    for camera, turn, projection in zip(
        (rig.left, rig.right), rig.stated.rotations, (rig.stated.p1, rig.stated.p2), strict=True
    ):
        infos.append(camera_info((128, 96), camera.matrix, projection, camera.distortion, turn))
    topics = {
        LEFT: [picture(crooked.left)],
        RIGHT: [picture(crooked.right)],
        "/cam/left/camera_info": infos[:1],
        "/cam/right/camera_info": infos[1:],
    }
    write_bag(tmp_path / "a.mcap", topics)
    recording = Recording(str(tmp_path / "a.mcap"))
    assert not recording.are_rectified
    pair = recording.read((0, 0), max_pixels=None, rectify=True)
    expected = rig.for_size(128, 96).compute_rectification()
    np.testing.assert_array_equal(pair.left.pixels, expected.left(crooked.left))
    np.testing.assert_array_equal(pair.right.pixels, expected.right(crooked.right))
    calibration = Calibration(**pair.stated)
    assert (calibration.focal_length, calibration.size) == (140.0, (128, 96))
    assert calibration.baseline == pytest.approx(crooked.baseline)
    assert Recording(f"bag:{tmp_path}/a.mcap?rectified=yes").are_rectified


def stereo_bag(folder: Path, infos: Sequence[Any], size: tuple[int, int] = (64, 48)) -> Path:
    """Write a bag of one pair with two `camera_info`s."""
    blank = picture(np.zeros((size[1], size[0]), np.uint8), "mono8")
    topics = {LEFT: [blank], RIGHT: [blank], "/cam/left/camera_info": infos[:1]}
    write_bag(folder / "a.bag", {**topics, "/cam/right/camera_info": infos[1:]})
    return folder / "a.bag"


def test_a_bag_without_a_joint_calibration_is_usable(tmp_path: Path) -> None:
    """Cameras that were calibrated one by one have two focal lengths and no baseline."""
    alone = [np.column_stack([np.diag([focal, focal, 1.0]), np.zeros(3)]) for focal in (50.0, 60.0)]
    bag = stereo_bag(tmp_path, [camera_info((64, 48), each[:, :3], each) for each in alone])
    recording = Recording(str(bag))
    assert recording.read((0, 0), max_pixels=None, rectify=False).width == 64
    with pytest.raises(InputError, match=r"a\.bag has a camera_info.*50 and 60 px.*rectified=yes"):
        recording.read((0, 0), max_pixels=None, rectify=True)
    assert not Recording(f"bag:{bag}?rectified=yes").read((0, 0), max_pixels=None, rectify=True).stated
    with pytest.raises(InputError, match="rectified=yes"):
        pamcli.match_files(str(bag), output=tmp_path / "out")


def test_a_part_of_the_sensor_moves_the_principal_point(tmp_path: Path) -> None:
    infos = ideal_infos((128, 96), 50, 0.1)
    window = {"x_offset": 20, "y_offset": 10, "width": 64, "height": 48, "do_rectify": False}
    bag = stereo_bag(tmp_path, [(kind, {**fields, "roi": window}) for kind, fields in infos])
    stated = Calibration(**Recording(str(bag)).read((0, 0), max_pixels=None, rectify=True).stated)
    assert stated.size == (64, 48)
    assert stated.principal == (63.5 - 20, 47.5 - 10)
    assert (stated.focal_length, stated.baseline, stated.offset) == (50, pytest.approx(0.1), 0)


def test_the_folder_of_a_ros_2_bag_needs_no_prefix(tmp_path: Path) -> None:
    write_bag(tmp_path / "a.db3", {LEFT: [picture(images(1)[0])], RIGHT: [picture(images(1)[0])]})
    assert is_recording(str(tmp_path / "a"))
    assert not is_recording(str(tmp_path))
    (tmp_path / "metadata.yaml").write_text("scene: 3\n")
    assert not is_recording(str(tmp_path))
