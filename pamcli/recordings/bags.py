"""Read image pairs from ROS 1 and ROS 2 bags with rosbags, which the extra `ros` installs."""

from __future__ import annotations

import re
import shlex
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.description import CameraDescription
from pamcli.calibration.files import prefix_errors
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.opencv_files import TOPIC, describe_ros
from pamcli.calibration.rig import Rectification
from pamcli.errors import InputError, UsageError, import_extra
from pamcli.files.paths import check_regular, join_names, quote
from pamcli.files.suffixes import BAG_PREFIX
from pamcli.imaging.images import RgbImage, StereoPair, read_image
from pamcli.imaging.raster import check_size, report_damage

IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"

_RGB, _BGR, _GREY = (0, 1, 2), (2, 1, 0), (0, 0, 0)
# Bytes per channel, channels, and which of them are red, green and blue.
_PLAIN: Mapping[str, tuple[int, int, tuple[int, int, int]]] = {
    **{"rgb8": (1, 3, _RGB), "rgba8": (1, 4, _RGB), "rgb16": (2, 3, _RGB), "rgba16": (2, 4, _RGB)},
    **{"bgr8": (1, 3, _BGR), "bgra8": (1, 4, _BGR), "bgr16": (2, 3, _BGR), "bgra16": (2, 4, _BGR)},
    **{"mono8": (1, 1, _GREY), "8UC1": (1, 1, _GREY), "8UC3": (1, 3, _BGR), "8UC4": (1, 4, _BGR)},
    **{"mono16": (2, 1, _GREY), "16UC1": (2, 1, _GREY), "16UC3": (2, 3, _BGR)},
}
# Bytes per sample, samples per pixel of a row, rows per row of the image, and OpenCV's conversion.
_CONVERTED: Mapping[str, tuple[int, int, float, str]] = {
    # OpenCV names a Bayer pattern by the second row's second and third pixel, ROS by the first two.
    **{f"bayer_rggb{bits}": (bits // 8, 1, 1, "BayerBG2RGB") for bits in (8, 16)},
    **{f"bayer_bggr{bits}": (bits // 8, 1, 1, "BayerRG2RGB") for bits in (8, 16)},
    **{f"bayer_gbrg{bits}": (bits // 8, 1, 1, "BayerGR2RGB") for bits in (8, 16)},
    **{f"bayer_grbg{bits}": (bits // 8, 1, 1, "BayerGB2RGB") for bits in (8, 16)},
    **dict.fromkeys(("yuv422", "uyvy"), (1, 2, 1, "YUV2RGB_UYVY")),
    **dict.fromkeys(("yuv422_yuy2", "yuyv"), (1, 2, 1, "YUV2RGB_YUYV")),
    **{"nv12": (1, 1, 1.5, "YUV2RGB_NV12"), "nv21": (1, 1, 1.5, "YUV2RGB_NV21")},
}

KEYS = ("left", "right", "left_info", "right_info", "tolerance", "rectified")
FORM = "bag:FILE?left=/TOPIC&right=/TOPIC"
INTERRUPTED = "if the recording was interrupted: rosbag reindex, or ros2 bag reindex"
TOLERANCE = 0.01  # s by which the time stamps of a pair may differ
SIDES = (("left", "right"), ("0", "1"), ("1", "2"))  # in names of topics, tried in this order
_PEEKED = 50  # messages that are looked at beyond those that `count` needs, as some have no partner


class Recording:
    """Two image topics of a bag, paired by time stamps, and rectified by `camera_info` when read."""

    def __init__(self, text: str, most: int | None = None) -> None:
        """Open a bag, find its topics, and pair their messages. Raises UsageError, InputError."""
        self.name, self._text = quote(Path(text)), text
        self.place, keys = _parse(text)
        self.notes: list[str] = []  # messages about choices made for the recording
        self.warnings: list[str] = []  # messages about likely faults of the recording
        self._reading = threading.Lock()
        self._streams: dict[str, tuple[int, Iterator[Any]]] = {}
        images = {name: kind for name, kind in self._topics.items() if kind in IMAGES}
        self.topics = _choose_topics(images, keys, self.place)
        if not keys.keys() >= {"left", "right"} and "left" not in self.topics[0]:
            self.notes.append(f"left images: {self.topics[0]}, right images: {self.topics[1]}")
        infos = zip(self.topics, ("left_info", "right_info"), strict=True)
        self._infos = [self._read_info(topic, keys.get(key)) for topic, key in infos]
        # For each topic (N,), when the bag received its messages, ns, ascending; and when images were taken.
        self._times, stamps = self._read_times(most)
        # (N, 2): numbers of the left and the right message of each pair, from 0.
        self.numbers = self._pair(stamps, _parse_seconds(keys.get("tolerance", str(TOLERANCE))))
        self.stamps = stamps[0][self.numbers[:, 0]]  # (N,): times at which the left images were taken, ns
        in_topics = all("rect" in each.removesuffix("/compressed").rpartition("/")[2] for each in self.topics)
        self.states_rectified = {"yes": True, "no": False}.get(keys.get("rectified", ""), in_topics)
        self.fault: InputError | None = None  # why the camera_info cannot be used
        is_ideal = "rectified" not in keys
        try:
            rig = self.camera_description.resolve().rig if self.camera_description else None
            is_ideal &= rig is None or rig.to_calibration() is not None
        except InputError as error:
            do = "exchange left and right" if "left of" in error.message else "give a `calibration`"
            hint = f"{do}, or use the images as they are: {_add_key(text, 'rectified=yes')}"
            reason = error.message.removeprefix(f"{quote(self.place)}: ")
            self.fault = InputError(f"{self.name} has a camera_info that cannot be used: {reason}", hint)
        self.are_rectified = self.states_rectified or is_ideal  # also if cameras are ideal or unknown

    def __getstate__(self) -> dict[str, Any]:
        gone = ("_reading", "_streams", "_reader", "_rectification")
        return {name: value for name, value in self.__dict__.items() if name not in gone}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _reading=threading.Lock(), _streams={})

    @cached_property
    def camera_description(self) -> CameraDescription | None:
        """Both cameras as their `camera_info` describes them; None if a message is missing or empty."""
        if None in self._infos:
            return None
        name = quote(self.place)
        with report_damage(name, "has a camera_info that cannot be used"), prefix_errors(name):
            return describe_ros([tree for tree in self._infos if tree is not None], "ROS bag")

    def require_calibration(self) -> None:
        """Raise InputError if images must be rectified by a `camera_info` that cannot be used."""
        if self.fault is not None and not self.states_rectified:
            raise self.fault

    def read(self, numbers: tuple[int, int], *, max_pixels: int | None, rectify: bool) -> StereoPair:
        """Read a pair by the numbers of its messages. Raises InputError."""
        name = f"{self.name}, frame {numbers[0]}"
        left, right = (
            self._read_image(f"{name} ({topic})", topic, number, max_pixels)
            for topic, number in zip(self.topics, numbers, strict=True)
        )
        pair = StereoPair(left, right, name)
        if rectify:
            self.require_calibration()
        if not rectify or self.fault is not None or self.camera_description is None:
            return pair
        with report_damage(name, "cannot be rectified by its camera_info"):
            calibration = self._get_calibration(pair)
            if not self.are_rectified:
                warps = self._rectification
                left = RgbImage(warps.left(left.pixels), grey=left.grey)
                right = RgbImage(warps.right(right.pixels), grey=right.grey)
        return replace(pair, left=left, right=right, stated={**vars(calibration)} if calibration else {})

    def _get_calibration(self, pair: StereoPair) -> Calibration | None:
        assert self.camera_description is not None
        stored, size = self.camera_description.resolve(), (pair.width, pair.height)
        if self.are_rectified or stored.rig is None:
            return stored.rectified and stored.rectified.for_size(*size)
        found: Rectification | None = self.__dict__.get("_rectification")
        if found is None or found.calibration is None or found.calibration.size != size:
            self._rectification = found = stored.rig.for_size(*size).compute_rectification()
        return found.calibration

    @cached_property
    def _reader(self) -> Any:
        if not self.place.is_dir():
            check_regular(self.place)
        library, stores = import_extra("rosbags.highlevel"), import_extra("rosbags.typesys")
        try:
            with _report_damage(quote(self.place), "cannot be read as a ROS bag"):
                store = stores.get_typestore(stores.Stores.ROS2_HUMBLE)
                reader = library.AnyReader([self.place], default_typestore=store)
                reader.open()
        except InputError as error:
            raise InputError(error.message, INTERRUPTED) from error
        weakref.finalize(self, _close, reader, self._streams)
        return reader

    @cached_property
    def _topics(self) -> dict[str, str]:
        return {each.topic: each.msgtype for each in self._reader.connections}

    def _iterate_messages(self, topics: Sequence[str], start: int | None = None) -> Iterator[Any]:
        """Yield the connection, time (ns) and data of the messages of topics, in the order of their times."""
        known = [each for each in self._reader.connections if each.topic in topics]
        with _report_damage(quote(self.place), "cannot be read to its end"):
            yield from self._reader.messages(known, start=start)

    def _read_info(self, topic: str, named: str | None) -> dict[str, Any] | None:
        parts = topic.removesuffix("/compressed").split("/")
        info = named or "/".join([*parts[:-1], "camera_info"])
        if self._topics.get(info) != CAMERA_INFO:
            if named:
                known = [name for name, kind in self._topics.items() if kind == CAMERA_INFO]
                message = f"{quote(self.place)} has no camera_info {named}"
                raise UsageError(message, f"its topics of this kind: {join_names(known) or 'none'}")
            return None
        found = next(self._iterate_messages([info]), None)
        return None if found is None else camera_tree(self._decode(found))

    def _decode(self, found: Any) -> Any:
        connection, _, data = found
        with _report_damage(quote(self.place), f"has a damaged message in {connection.topic}"):
            return self._reader.deserialize(data, connection.msgtype)

    def _read_times(self, most: int | None) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Return when messages of both topics were received, and when their images were taken, ns."""
        found: dict[str, list[tuple[int, int]]] = {topic: [] for topic in self.topics}
        for connection, time, data in self._iterate_messages(self.topics):
            # A header begins with its stamp: in ROS 1 after a number, in ROS 2 after the encoding.
            seconds, rest = np.frombuffer(data, "<u4", 2, 4).tolist() if len(data) >= 12 else (0, 0)
            found[connection.topic].append((time, seconds * 10**9 + rest))
            if most is not None and min(map(len, found.values())) >= most + _PEEKED:
                break
        for topic, times in found.items():
            if not times:
                raise InputError(f"{quote(self.place)} has no message in {topic}")
        both = [np.array(found[topic], np.int64).T for topic in self.topics]
        return [each[0] for each in both], [each[1] if each[1].any() else each[0] for each in both]

    def _pair(self, stamps: Sequence[NDArray[np.int64]], tolerance: float) -> NDArray[np.int64]:
        """Pair each left image with the right one that is nearest in time, if it is its nearest, too."""
        left, right = stamps
        nearest, back = find_nearest(right, left), find_nearest(left, right)
        gaps = np.abs(right[nearest] - left) / 1e9
        kept = (gaps <= tolerance) & (back[nearest] == np.arange(len(left)))
        missed = gaps[gaps > tolerance]
        wider = f"tolerance={np.ceil(1200 * missed.min()):g}ms" if len(missed) else ""
        hint = f"if these are pairs: {_add_key(self._text, wider)}" if wider else None
        if not kept.any():
            problem = f"{quote(self.place)}: no left and right image are within {1000 * tolerance:g} ms"
            raise InputError(f"{problem}; the nearest are {1000 * gaps.min():.3g} ms apart", hint)
        if alone := len(left) - int(kept.sum()):
            problem = f"{alone} of {len(left)} left images have no right image within {1000 * tolerance:g} ms"
            self.warnings.append(f"{problem} and are skipped" + (f" ({hint})" if hint else ""))
        return np.stack([np.flatnonzero(kept), nearest[kept]], axis=1)

    def _read_image(self, name: str, topic: str, number: int, max_pixels: int | None) -> RgbImage:
        times = self._times[self.topics.index(topic)]
        with self._reading:
            at, stream = self._streams.pop(topic, (number, iter(())))
            if not at < number <= at + _PEEKED:
                at = int(np.searchsorted(times, times[number])) - 1
                stream = self._iterate_messages([topic], start=int(times[number]))
            for found in stream:
                at += 1
                if at == number:
                    self._streams[topic] = at, stream
                    return decode_image(self._decode(found), name, max_pixels)
        raise InputError(f"{name} cannot be read: the bag is damaged there")


@contextmanager
def _report_damage(name: str, what: str) -> Iterator[None]:
    """Convert errors of rosbags to InputError, also those of memory: damaged lengths ask for any amount."""
    with report_damage(name, what):
        try:
            yield
        except MemoryError as error:
            raise ValueError("it states an impossible length") from error


def _close(reader: Any, streams: Mapping[str, tuple[int, Iterator[Any]]]) -> None:
    for _, stream in streams.values():
        stream.close()  # type: ignore[attr-defined]
    with suppress(Exception):
        reader.close()


def _parse(text: str) -> tuple[Path, dict[str, str]]:
    """Split `bag:FILE?key=value&...`. Raises UsageError for unknown keys, InputError if there is no file."""
    name, _, query = text.removeprefix(BAG_PREFIX).partition("?")
    keys = {key: value for key, _, value in (part.partition("=") for part in query.split("&") if part)}
    if unknown := [key for key in keys if key not in KEYS]:
        raise UsageError(f"unknown key {unknown[0]!r} in {text}", f"expected one of {', '.join(KEYS)}")
    if keys.get("rectified", "yes") not in ("yes", "no"):
        raise UsageError(f"rectified={keys['rectified']} in {text}", "expected one of yes, no")
    if not Path(name).exists():
        raise InputError(f"no such file: {quote(name)}")
    if Path(name).is_dir() and not Path(name, "metadata.yaml").exists():
        raise InputError(f"{quote(name)} is not a ROS 2 bag: it has no metadata.yaml", INTERRUPTED)
    return Path(name), keys


def _add_key(text: str, key: str) -> str:
    """Return the name of a bag with another key, for a shell."""
    text = f"{BAG_PREFIX}{text.removeprefix(BAG_PREFIX)}"
    return shlex.quote(f"{text}{'&' if '?' in text else '?'}{key}")


def _parse_seconds(text: str) -> float:
    found = re.fullmatch(r"(\d*\.?\d+)(ms|s)?", text)
    if found is None:
        raise UsageError(f"tolerance={text} is not a time", "use seconds, or a unit such as 20ms")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def _choose_topics(images: Mapping[str, str], keys: Mapping[str, str], place: Path) -> tuple[str, str]:
    """Return the topics of the left and the right images. Raises UsageError if they are ambiguous."""
    named = {side: keys[side] for side in ("left", "right") if side in keys}
    found = f"image topics: {join_names(sorted(images), most=20) or 'none'}"
    for topic in named.values():
        if topic not in images:
            raise UsageError(f"{quote(place)} has no images in {topic}", found)
    if len({*named.values()}) == 2:
        return named["left"], named["right"]
    if len(named) == 2:
        raise UsageError(f"left and right are both {named['left']}", found)
    for words in SIDES:
        pairs = [
            (topic, other)
            for topic in images
            if (other := _find_partner(topic, words))
            and other in images
            and named.items() <= {"left": topic, "right": other}.items()
        ]
        if len(pairs) == 1:
            return pairs[0]
        if pairs:
            break
    raise UsageError(f"name the topics of {quote(place)}: {FORM}", found)


def _find_partner(topic: str, words: tuple[str, str]) -> str | None:
    left, right = words
    inside = r"\d" if left.isdigit() else "[0-9A-Za-z]"
    changed = re.sub(rf"(?<!{inside}){left}(?!{inside})", right, topic)
    return changed if changed != topic else None


def find_nearest(times: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.intp]:
    """Return (M,): the place of the nearest of the times (N,) for each target."""
    order = np.argsort(times, kind="stable")
    ascending = times[order]
    after = np.searchsorted(ascending, targets).clip(max=len(times) - 1)
    before = (after - 1).clip(min=0)
    earlier = np.abs(ascending[before] - targets) <= np.abs(ascending[after] - targets)
    return order[np.where(earlier, before, after)]


def decode_image(message: Any, name: str, max_pixels: int | None) -> RgbImage:
    if hasattr(message, "format"):
        image = read_image(bytes(message.data), max_pixels=max_pixels, name=name)
        encoding = str(message.format).partition(";")[0].strip()
        is_mosaic = image.grey and encoding.startswith("bayer") and encoding in _CONVERTED
        return _convert(np.ascontiguousarray(image.pixels[..., 0]), encoding) if is_mosaic else image
    width, height, encoding = int(message.width), int(message.height), str(message.encoding)
    check_size(width, height, name, max_pixels)
    if encoding in _PLAIN:
        size, channels, order = _PLAIN[encoding]
        samples = _read_samples(message, name, (height, width, channels), size)
        return RgbImage(np.ascontiguousarray(samples[..., list(order)]), grey=channels == 1)
    if encoding not in _CONVERTED:
        known = ", ".join([*_PLAIN, *_CONVERTED])
        raise InputError(f"{name} has the encoding {encoding!r}", f"supported encodings: {known}")
    size, channels, rows, _ = _CONVERTED[encoding]
    return _convert(_read_samples(message, name, (round(rows * height), width, channels), size), encoding)


def _convert(samples: NDArray[Any], encoding: str) -> RgbImage:
    import cv2

    conversion = getattr(cv2, f"COLOR_{_CONVERTED[encoding][3]}")
    return RgbImage(np.ascontiguousarray(cv2.cvtColor(samples, conversion)))


def _read_samples(message: Any, name: str, shape: tuple[int, int, int], size: int) -> NDArray[Any]:
    """Return the samples of a message in a shape (H, W, C), uint8 or uint16."""
    (rows, width, channels), data, step = shape, np.asarray(message.data, np.uint8), int(message.step)
    if step % size or step < width * channels * size or len(data) < rows * step:
        expected = f"{message.width}x{message.height} {message.encoding} with {step} bytes per row"
        raise InputError(f"{name} is damaged: it has {len(data)} bytes, but its header says {expected}")
    samples: NDArray[Any] = data[: rows * step].reshape(rows, step)
    if size == 2:
        samples = samples.view(">u2" if message.is_bigendian else "<u2").astype(np.uint16)
    return np.ascontiguousarray(samples[:, : width * channels]).reshape(shape)


def camera_tree(message: Any) -> dict[str, Any] | None:
    """Return a CameraInfo under the names of ROS calibration files; None if it is not calibrated."""
    values = {name: np.asarray(getattr(message, name, getattr(message, name.lower(), ()))) for name in TOPIC}
    if not values["K"].any():
        return None
    window = getattr(message, "roi", None)
    if window is not None and window.width and window.height:  # the images show only this part
        values |= {"width": np.asarray(window.width), "height": np.asarray(window.height)}
        for name, shape in (("K", (3, 3)), ("P", (3, 4))):
            values[name] = values[name].reshape(shape).copy()
            values[name][:2, 2] -= window.x_offset, window.y_offset
            values[name] = values[name].ravel()
    tree = {TOPIC[name]: value.tolist() for name, value in values.items()}
    return {**tree, "distortion_model": str(message.distortion_model)}
