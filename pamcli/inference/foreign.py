"""Adapt foreign networks to the stereo model interface, according to their descriptions."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.inference import Progress
from pamcli.inference.device import Compute
from pamcli.inference.images import Pixels, plain_array, to_network, to_pixels
from pamcli.inference.match_size import MatchSize
from pamcli.inference.model import Match
from pamcli.inference.runners import Runner, Session, open_runner
from pamcli.inference.tiles import Tile, join, tiles
from pamcli.registry.description import Description, read_description
from pamcli.registry.families import recognise

GREY = (0.299, 0.587, 0.114)
"""Luma weights of red, green and blue."""
LEANING = 0.75
"""Position in the overlap of two tiles where the left one hands over; matches lie to the left, where the
right tile may have ended already."""

DISPARITIES = ("disparity", "right disparity")
"""Outputs without negative values."""

Maps = dict[str, NDArray[np.float32]]
"""Output contents, (C, H, W) each."""


class ForeignModel:
    """A foreign network with its description, as a `model.StereoModel`."""

    size: tuple[int, int] | None = None
    """None: any size is supported, by resizing to the network's size."""
    multiple = 1
    has_fixed_search = True
    halo = 64
    """Rows around a band, as the receptive field is unknown."""
    signed = False
    """Keep disparities below 0, for trials in which the sign is unknown."""

    def __init__(self, description: Description, runner: Runner, initial: Session | None = None) -> None:
        """Use a runner; `initial` estimates the initial flow. Raises ModelError for unknown port names."""
        self.spec, self.runner, self.initial = description, runner, initial
        self.compute: Compute = runner.compute
        if runner.interface is None:
            return
        known = {port.name for port in runner.interface.inputs}
        outputs = {port.name for port in runner.interface.outputs}
        if known != description.inputs.keys() or not outputs >= description.outputs.keys():
            raise ModelError(
                f"{runner.name} does not have the inputs and outputs of its description: {runner.interface}",
                "pam weights describe writes another",
            )

    @classmethod
    def load(cls, path: Path, device: str, precision: str, network_from: str | None) -> "ForeignModel":
        """Load a network by its description, or an ONNX file of a known family.

        Raises ModelError, DeviceError, UsageError.
        """
        if path.suffix == ".onnx":
            session = Session.load(path, device, precision)
            described = recognised(session, path.name)
            if described is None:
                raise ModelError(
                    f"{path} is a network of no family that pam knows by its inputs and outputs: "
                    f"{session.interface}",
                    "pam weights describe NET.onnx -o NET.toml, then --weights NET.toml",
                )
            return cls(described, session)
        described = read_description(path)
        runner = open_runner(described.network, network_from, device, precision, path)
        initial = Session.load(Path(described.initial), device) if described.initial else None
        return cls(described, runner, initial)

    @property
    def has_confidence(self) -> bool:
        """True if one of the outputs is a confidence."""
        return "confidence" in self.spec.outputs.values()

    @property
    def says(self) -> str:
        """Runtime and device, for people."""
        return f"{self.runner.says} ({self.spec.architecture})"

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """Return the matching resolution; raise UsageError for search settings, which are not supported."""
        if max_disparity is not None:
            raise UsageError(
                f"{self.runner.name} has no maximum disparity to set", "leave `max_disparity` out"
            )
        return size

    def fitting(self, height: int, width: int) -> tuple[int, int]:
        """Return rows and columns of the network's input images, reduced if they exceed its size."""
        if self.spec.fixed_size is None:
            return height, width
        rows, columns = self.spec.fixed_size
        times = min(1.0, rows / height, columns / width)
        return max(1, round(times * height)), max(1, round(times * width))

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a note on the number of tiles for images of this size; None for one tile."""
        count = len(self._tiles(height, width))
        if count == 1 or self.spec.fixed_size is None:
            return None
        rows, columns = self.spec.fixed_size
        return f"images of {width}x{height} are processed in {count} tiles of {columns}x{rows}"

    def memory(self, height: int, width: int) -> int:
        """Return 0: the memory requirement is unknown."""
        return 0

    def match(
        self,
        left: Pixels,
        right: Pixels,
        *,
        max_disparity: int | None = None,
        confidence: bool = False,
        attended: bool = False,
        progress: Progress | None = None,
    ) -> Match:
        """Match a pair, see `model.StereoModel`."""
        maps = self._compute(left, right, 1, progress)
        if not self.signed:  # small negative values, which most file formats cannot store
            maps |= {name: np.maximum(each, 0) for name, each in maps.items() if name in DISPARITIES}
        sure = maps["confidence"].clip(0, 1) if confidence and "confidence" in maps else None
        return Match(maps["disparity"], sure, None, maps.get("right disparity"))

    def upscale(
        self, left: Pixels, right: Pixels, *, both: bool = True, progress: Progress | None = None
    ) -> tuple[Pixels, ...]:
        """Upscale a pair, see `model.StereoModel`."""
        assert self.spec.scale is not None
        maps = self._compute(left, right, self.spec.scale, progress)
        made = []
        for name, image in (("left", left), ("right", right))[: 2 if both else 1]:
            planes = torch.from_numpy(maps[name]).movedim(-1, 0)
            made.append(to_pixels(planes, image.dtype).numpy().astype(image.dtype, copy=False))
        return tuple(made)

    def _compute(self, left: Pixels, right: Pixels, scale: int, progress: Progress | None) -> Maps:
        """Return the outputs for a pair, (scale H, scale W) or with channels last, tile by tile."""
        pair = torch.cat([to_network(torch.from_numpy(plain_array(each))) for each in (left, right)]).numpy()
        parts = self._tiles(*left.shape[:2])

        def compute(rows: slice, columns: slice, progress: Progress) -> Maps:
            found = self._of_tile(pair[:, :, rows, columns], scale)
            if len(parts) > 1:
                found.pop("right disparity", None)  # each tile sees a different part of the right image
            return {
                name: values[0] if len(values) == 1 else np.moveaxis(values, 0, -1)
                for name, values in found.items()
            }

        return join(parts, compute, scale=scale, progress=progress)

    def _tiles(self, height: int, width: int) -> list[Tile]:
        size = self.spec.fixed_size or (height, width)
        shared = self.spec.shared if self.spec.fixed_size else (0, 0)
        middle = LEANING if self.spec.task == "disparity" else 0.5
        return list(tiles(height, width, size, shared, middle))

    def _of_tile(self, pair: NDArray[np.float32], scale: int) -> Maps:
        """Return the outputs for a pair not larger than the network's input."""
        height, width = pair.shape[2:]
        sides = self._padding(height, width)
        padded = np.pad(pair, ((0, 0), (0, 0), *sides), mode="edge") if np.any(sides) else pair
        rows, columns = (
            slice(scale * before, scale * (before + side))
            for (before, _), side in zip(sides, (height, width), strict=True)
        )
        return {
            name: np.ascontiguousarray(found[:, rows, columns])
            for name, found in self._read(self.runner.run(self._fed(padded)), padded.shape[2:], scale).items()
        }

    def _padding(self, height: int, width: int) -> list[tuple[int, int]]:
        """Return the padding as rows above and below, columns left and right."""
        size, multiple = self.spec.fixed_size, self.spec.multiple
        full = size or tuple(-(-side // multiple) * multiple for side in (height, width))
        more = [large - side for large, side in zip(full, (height, width), strict=True)]
        if self.spec.padding == "centre":
            return [(each // 2, each - each // 2) for each in more]
        return [(more[0], 0) if self.spec.padding == "top right" else (0, more[0]), (0, more[1])]

    def _fed(self, pair: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return the inputs by name for a padded pair (2, 3, H, W) in [0, 1]."""
        spec = self.spec
        views = self._in_its_numbers(pair)
        halved = None
        fed = {}
        for name, given in spec.inputs.items():
            if given.endswith("/2") and halved is None:
                halved = _resized(views, (views.shape[2] // 2, views.shape[3] // 2), corners=True)
            source = views if halved is None or not given.endswith("/2") else halved
            if given == "flow/2":
                assert halved is not None
                values = self._initial_flow(halved)
            elif "+" in given:
                values = np.concatenate(source[::-1] if given == "right+left" else source)[None]
            else:
                values = source[:1] if given.startswith("left") else source[1:]
            if spec.layout == "channels last":
                values = values.transpose(0, 2, 3, 1)
            fed[name] = np.ascontiguousarray(values)
        return fed

    def _in_its_numbers(self, pair: NDArray[np.float32]) -> NDArray[np.float32]:
        spec = self.spec
        if spec.channels == "grey":
            pair = np.tensordot(pair, np.array(GREY, np.float32), (1, 0))[:, None]
        elif spec.channels == "BGR":
            pair = pair[:, ::-1]
        count = pair.shape[1]
        mean, deviation = (
            np.array(each[:count], np.float32)[:, None, None] for each in (spec.mean, spec.deviation)
        )
        return np.asarray((pair * np.float32(spec.white) - mean) / deviation, np.float32)

    def _in_our_numbers(self, picture: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert a network's image (3, H, W) to [0, 1] RGB, the inverse of `_in_its_numbers`."""
        spec = self.spec
        mean, deviation = (np.array(each, np.float32)[:, None, None] for each in (spec.mean, spec.deviation))
        picture = (picture * deviation + mean) / np.float32(spec.white)
        return picture[::-1] if spec.channels == "BGR" else picture

    def _initial_flow(self, halved: NDArray[np.float32]) -> NDArray[np.float32]:
        assert isinstance(self.initial, Session)
        names = [port.name for port in self.initial.interface.inputs]
        if len(names) != 2:
            raise ModelError(f"{self.initial.name} does not take two views: {self.initial.interface}")
        found = self.initial.run(dict(zip(names, (halved[:1], halved[1:]), strict=True)))
        flow: NDArray[np.float32] = next(iter(found.values())).astype(np.float32)
        return flow

    def _read(self, found: dict[str, NDArray[Any]], shape: tuple[int, ...], scale: int) -> Maps:
        """Return the output contents for padded images of `shape` (H, W), at `scale` times their size."""
        maps: Maps = {}
        for name, held in self.spec.outputs.items():
            if held == "unused":
                continue
            if name not in found:
                raise ModelError(f"{self.runner.name} gives no output {name!r}: {', '.join(found)}")
            if self.spec.task == "superres":
                values = self._picture(found[name], name, (scale * shape[0], scale * shape[1]))
                if held == "left+right":
                    maps["left"], maps["right"] = map(self._in_our_numbers, (values[:3], values[3:6]))
                else:
                    maps[held] = self._in_our_numbers(values)
                continue
            if held == "confidence":
                values = self._picture(np.squeeze(found[name]), name, np.squeeze(found[name]).shape)
            else:
                sides = tuple(round(self.spec.resolution * side) for side in shape)
                values = self._picture(found[name], name, sides)[:1]
                width, columns = float(shape[1]), values.shape[2]
                pixels = {"pixels": 1.0, "output pixels": width / columns, "width": width}[self.spec.unit]
                values = values * np.float32(self.spec.sign * pixels)
            if values.shape[1:] != shape:
                values = _resized(values[None], shape)[0]
            maps[held] = values
        return maps

    def _picture(self, values: NDArray[Any], name: str, sides: tuple[int, ...]) -> NDArray[np.float32]:
        """Return an output as (C, *sides), whatever its axis order."""
        shape = values.shape
        if len(shape) == 4 and shape[0] == 1:
            values = values[0]
        if values.shape == sides:
            values = values[None]
        if values.ndim == 3 and values.shape[:2] == sides and values.shape[1:] != sides:
            values = values.transpose(2, 0, 1)
        if values.ndim != 3 or values.shape[1:] != sides:
            raise ModelError(
                f"{self.runner.name} gives {name} as {' x '.join(map(str, shape))}, not with "
                f"{' x '.join(map(str, sides))} rows and columns",
                "resolution, scale or size in its description are others",
            )
        return np.asarray(values, np.float32)


def recognised(session: Session, network: str, initial: str = "") -> Description | None:
    """Describe a network of a known family by its static shapes, or those of a run on black images.

    Otherwise as `families.recognise`.
    """
    described = recognise(session.interface, network, initial=initial)
    if described is None and any(
        None in (port.picture or (None,)) for port in (*session.interface.inputs, *session.interface.outputs)
    ):
        interface, scale = session.probed()
        described = recognise(interface, network, initial=initial, scale=scale)
    return described


def _resized(
    values: NDArray[np.float32], sides: tuple[int, ...], *, corners: bool = False
) -> NDArray[np.float32]:
    """Resize (N, C, H, W) bilinearly; `corners` aligns the corner pixels."""
    found = F.interpolate(
        torch.from_numpy(np.ascontiguousarray(values)), tuple(sides), mode="bilinear", align_corners=corners
    )
    return found.numpy()
