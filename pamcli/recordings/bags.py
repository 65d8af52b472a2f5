"""Read image pairs from ROS 1 and ROS 2 bags with rosbags, which the extra `ros` installs."""

from __future__ import annotations

import importlib
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.description import CameraDescription, Interpretation
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.rig import Rectification
from pamcli.calibration.ros_files import describe_ros
from pamcli.errors import InputError, UsageError, suggest_extra
from pamcli.files.paths import check_regular, join_names, quote
from pamcli.files.suffixes import BAG_PREFIX
from pamcli.imaging.images import RgbImage
from pamcli.imaging.raster import report_damage
from pamcli.imaging.stereo_pair import StereoPair
from pamcli.recordings.messages import CAMERA_INFO, IMAGES, camera_tree, decode_image

KEYS = ("left", "right", "left_info", "right_info", "tolerance", "rectified")
FORM = "bag:FILE?left=/TOPIC&right=/TOPIC"
TOLERANCE = 0.01
"""Seconds by which the time stamps of a pair may differ."""
SIDES = (("left", "right"), ("0", "1"), ("1", "2"))
"""Words that distinguish the topics of the left and of the right camera, tried in this order."""
_PEEKED = 50  # messages that are looked at beyond those that `count` needs, as some have no partner


def rosbags(module: str) -> Any:
    """Import a module of rosbags. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module(f"rosbags.{module}")
    except ImportError:
        raise UsageError("ROS bags require the package rosbags", suggest_extra("ros")) from None


class Recording:
    """Two image topics of a bag, whose messages are paired by their time stamps.

    The images of a pair are rectified by `camera_info` unless they already are.
    """

    def __init__(self, text: str, most: int | None = None) -> None:
        """Open a bag, find its topics, and pair their messages.

        Args:
            text: `bag:FILE?left=/TOPIC&right=/TOPIC`, or the path of a bag. Topics that are not named are
                found by their names if only one pair of topics is possible.
            most: Number of left messages that are needed; None = all.

        Raises:
            UsageError: If a key is unknown, topics are ambiguous, or rosbags is missing.
            InputError: If the bag is damaged, or no images have the same time.
        """
        self.name = quote(Path(text))
        self.place, keys = _parse(text)
        self.notes: list[str] = []
        """Messages about choices made for the recording."""
        self.warnings: list[str] = []
        """Messages about likely faults of the recording."""
        self._reading = threading.Lock()
        self._streams: dict[str, tuple[int, Iterator[Any]]] = {}
        images = {name: kind for name, kind in self._topics.items() if kind in IMAGES}
        self.topics = _choose_topics(images, keys, self.place)
        if not keys.keys() >= {"left", "right"} and "left" not in self.topics[0]:
            self.notes.append(f"left images: {self.topics[0]}, right images: {self.topics[1]}")
        self._infos = [self._read_info(topic, keys.get(f"{side}_info")) for side, topic in self._sides]
        times, stamps = self._read_times(most)
        self._times = times
        """(N,) of each topic: when the bag received its messages, ns, ascending."""
        self.numbers = self._pair(stamps, _parse_seconds(keys.get("tolerance", str(TOLERANCE))))
        """(N, 2): numbers of the left and the right message of each pair, from 0."""
        self.stamps = stamps[0][self.numbers[:, 0]]
        """(N,): times at which the left images were taken, ns."""
        in_topics = all("rect" in each.removesuffix("/compressed").rpartition("/")[2] for each in self.topics)
        self.states_rectified = {"yes": True, "no": False}.get(keys.get("rectified", ""), in_topics)
        """True if the key `rectified`, or else the names of the topics, state rectified images."""
        rig = self.described.resolve(Interpretation()).rig if self.described else None
        is_ideal = "rectified" not in keys and (rig is None or rig.to_calibration() is not None)
        self.are_rectified = self.states_rectified or is_ideal
        """True if images need no rectification, also because their cameras are ideal or unknown."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs; it opens the file again."""
        gone = ("_reading", "_streams", "_reader", "_rectification")
        return {name: value for name, value in self.__dict__.items() if name not in gone}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _reading=threading.Lock(), _streams={})

    @property
    def _sides(self) -> Iterator[tuple[str, str]]:
        return zip(("left", "right"), self.topics, strict=True)

    @cached_property
    def described(self) -> CameraDescription | None:
        """Both cameras as their `camera_info` describes them; None if a message is missing or empty."""
        if None in self._infos:
            return None
        with report_damage(quote(self.place), "has a camera_info that cannot be used"):
            return describe_ros([tree for tree in self._infos if tree is not None], "ROS bag")

    def read(self, numbers: tuple[int, int], *, max_pixels: int | None, rectify: bool) -> StereoPair:
        """Read a pair by the numbers of its messages.

        Args:
            numbers: Row of `numbers`.
            max_pixels: Largest width times height; None = no limit.
            rectify: Rectify images that are not rectified, and state their calibration.

        Raises:
            InputError: If an image is damaged, or the calibration is for another size.
        """
        name = f"{self.name}, frame {numbers[0]}"
        left, right = (
            self._read_image(f"{name} ({topic})", topic, number, max_pixels)
            for topic, number in zip(self.topics, numbers, strict=True)
        )
        pair = StereoPair(left, right, name)
        if not rectify or self.described is None:
            return pair
        with report_damage(name, "cannot be rectified by its camera_info"):
            calibration = self._get_calibration(pair)
            if not self.are_rectified:
                warps = self._rectification.left, self._rectification.right
                left, right = (
                    RgbImage(warp(view.pixels), grey=view.grey)
                    for warp, view in zip(warps, (left, right), strict=True)
                )
        known = fields(Calibration) if calibration is not None else ()
        stated = {each.name: getattr(calibration, each.name) for each in known}
        return replace(pair, left=left, right=right, stated=stated)

    def _get_calibration(self, pair: StereoPair) -> Calibration | None:
        assert self.described is not None
        stored, size = self.described.resolve(Interpretation()), (pair.width, pair.height)
        if self.are_rectified or stored.rig is None:
            return stored.rectified and stored.rectified.for_size(*size)
        found: Rectification | None = self.__dict__.get("_rectification")
        if found is None or found.calibration is None or found.calibration.size != size:
            self._rectification = found = stored.rig.for_size(*size).compute_rectification()
        return found.calibration

    # --- reading the bag ------------------------------------------------------------------------------

    @cached_property
    def _reader(self) -> Any:
        if not self.place.is_dir():
            check_regular(self.place)
        library, stores = rosbags("highlevel"), rosbags("typesys")
        with report_damage(quote(self.place), "cannot be read as a ROS bag"):
            store = stores.get_typestore(stores.Stores.ROS2_HUMBLE)
            reader = library.AnyReader([self.place], default_typestore=store)
            reader.open()
        weakref.finalize(self, _close, reader, self._streams)
        return reader

    @cached_property
    def _topics(self) -> dict[str, str]:
        return {each.topic: each.msgtype for each in self._reader.connections}

    def _iterate_messages(self, topics: Sequence[str], start: int | None = None) -> Iterator[Any]:
        """Yield the connection, time (ns) and data of the messages of topics, in the order of their times."""
        known = [each for each in self._reader.connections if each.topic in topics]
        with report_damage(quote(self.place), "cannot be read to its end"):
            yield from self._reader.messages(known, start=start)

    def _read_info(self, topic: str, named: str | None) -> dict[str, Any] | None:
        """Read the first camera_info of a camera, by default the topic beside its images."""
        parts = topic.removesuffix("/compressed").split("/")
        info = named or "/".join([*parts[:-1], "camera_info"])
        if self._topics.get(info) != CAMERA_INFO:
            if named:
                known = [name for name, kind in self._topics.items() if kind == CAMERA_INFO]
                said = f"{quote(self.place)} has no camera_info {named}"
                raise UsageError(said, f"its topics of this kind: {join_names(known) or 'none'}")
            return None
        found = next(self._iterate_messages([info]), None)
        return None if found is None else camera_tree(self._decode(found))

    def _decode(self, found: Any) -> Any:
        connection, _, data = found
        with report_damage(quote(self.place), f"has a damaged message in {connection.topic}"):
            return self._reader.deserialize(data, connection.msgtype)

    def _read_times(self, most: int | None) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Return when messages of both topics were received, and when their images were taken, ns.

        The time of an image is that of its header; if all are 0, the time at which it was received.
        """
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
        orders = [np.argsort(each, kind="stable") for each in stamps]
        nearest, back = _find_nearest(right, left, orders[1]), _find_nearest(left, right, orders[0])
        gaps = np.abs(right[nearest] - left) / 1e9
        kept = (gaps <= tolerance) & (back[nearest] == np.arange(len(left)))
        hint = f"if these are pairs: tolerance=SECONDS in {FORM}"
        if not kept.any():
            said = f"{quote(self.place)}: no left and right image are within {1000 * tolerance:g} ms"
            raise InputError(f"{said}; the nearest are {1000 * gaps.min():.3g} ms apart", hint)
        if alone := len(left) - int(kept.sum()):
            said = f"{alone} of {len(left)} left images have no right image within {1000 * tolerance:g} ms"
            self.warnings.append(f"{said} and are skipped ({hint})")
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
        raise InputError(f"{quote(name)} is not a ROS 2 bag: it has no metadata.yaml")
    return Path(name), keys


def _parse_seconds(text: str) -> float:
    found = re.fullmatch(r"(\d*\.?\d+)(ms|s)?", text)
    if found is None:
        raise UsageError(f"tolerance={text} is not a time", "seconds, or with a unit, as in 20ms")
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
    """Return the name of the right camera's topic for that of the left one."""
    left, right = words
    pattern = rf"(?<![0-9A-Za-z]){left}(?![0-9A-Za-z])" if not left.isdigit() else rf"(?<!\d){left}(?!\d)"
    changed = re.sub(pattern, right, topic)
    return changed if changed != topic else None


def _find_nearest(
    stamps: NDArray[np.int64], wanted: NDArray[np.int64], order: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return for each wanted time the number of the nearest stamp. order: sorts the stamps."""
    ascending = stamps[order]
    after = np.searchsorted(ascending, wanted).clip(max=len(stamps) - 1)
    before = (after - 1).clip(min=0)
    earlier = np.abs(ascending[before] - wanted) <= np.abs(ascending[after] - wanted)
    return order[np.where(earlier, before, after)]
