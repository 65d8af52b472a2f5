"""Run foreign networks as stereo models, according to their descriptions."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.inference import Report
from pamcli.inference.images import Pixels, to_network, to_pixels, to_plain
from pamcli.inference.protocol import Maps, Names, StereoModel
from pamcli.inference.runners import Runner, Session, open_runner
from pamcli.inference.tiles import Tile, compute_parts, make_tiles
from pamcli.registry.description import Description, read_description
from pamcli.registry.families import recognise
from pamcli.registry.resolution import EFFORTS, MatchSize

GREY = (0.299, 0.587, 0.114)  # luma weights of red, green and blue
LEANING = 0.75
"""Position in the overlap of two tiles where the weight passes to the right one; matches lie to the left,
where the right tile may have ended already."""

DISPARITIES = ("disparity", "right_disparity")  # outputs without negative values


class ForeignModel(StereoModel):
    """A foreign network with its description."""

    has_fixed_search = True
    halo = 64  # the receptive field is unknown
    signed = False  # keep disparities below 0, for trials in which the sign is unknown

    def __init__(self, description: Description, runner: Runner, initial: Session | None = None) -> None:
        """Use a runner; `initial` estimates the initial flow. Raises ModelError for a wrong description."""
        self.spec: Description = description
        self.runner, self.initial, self.compute = runner, initial, runner.compute
        self.has_confidence = "confidence" in description.outputs.values()
        self.runtime_note = f"{runner.note} ({description.architecture})"
        self._statistics = np.array([description.mean, description.deviation], np.float32)[..., None, None]
        """Mean and deviation of the channels, (2, 3, 1, 1)."""
        if runner.interface is None:
            return
        known = {port.name for port in runner.interface.inputs}
        outputs = {port.name for port in runner.interface.outputs}
        if known != description.inputs.keys() or not outputs >= description.outputs.keys():
            raise ModelError(
                f"{runner.name} does not have the inputs and outputs of its description: {runner.interface}",
                "create a new one: pam weights describe",
            )

    @classmethod
    def load(cls, path: Path, device: str, precision: str, network_from: str | None) -> "ForeignModel":
        if path.suffix == ".onnx":
            session = Session.load(path, device, precision)
            description = recognise_session(session, path.name)
            if description is None:
                what = f"{path} is not of a known family of networks: {session.interface}"
                raise ModelError(what, "pam weights describe NET.onnx -o NET.toml, then --weights NET.toml")
            model = cls(description, session)
            model.runtime_note = (
                f"{session.note}, recognised as {description.family} by its inputs and outputs"
            )
            return model
        description = read_description(path)
        runner = open_runner(description.network, network_from, device, precision, path)
        initial = Session.load(Path(description.initial), device) if description.initial else None
        return cls(description, runner, initial)

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        if max_disparity is not None:
            raise UsageError(
                f"{self.runner.name} has no adjustable maximum disparity", "omit `max_disparity`"
            )
        if size in EFFORTS:
            raise UsageError(f"{self.runner.name} has no rule for `effort`", "set `match_size`, or omit both")
        return size

    def reduced_size(self, height: int, width: int) -> tuple[int, int]:
        if self.spec.fixed_size is None:
            return height, width
        rows, columns = self.spec.fixed_size
        factor = min(1.0, rows / height, columns / width)
        return max(1, round(factor * height)), max(1, round(factor * width))

    def adaptation_note(self, height: int, width: int) -> str | None:
        count = len(self._make_tiles(height, width))
        if count == 1 or self.spec.fixed_size is None:
            return None
        rows, columns = self.spec.fixed_size
        return f"processed in {count} tiles of {columns}x{rows}"

    def match(
        self, left: Pixels, right: Pixels, progress: Report, *, max_disparity: int | None, extras: Names
    ) -> Maps:
        maps = self._compute(left, right, 1, progress)
        found = {name: maps[name] for name in DISPARITIES if name in maps}
        if not self.signed:  # small negative values, which most file formats cannot store
            found = {name: np.maximum(each, 0) for name, each in found.items()}
        if "confidence" in extras and self.has_confidence:
            found["confidence"] = maps["confidence"].clip(0, 1)
        return found

    def upscale(self, left: Pixels, right: Pixels, progress: Report, *, both: bool) -> Maps:
        assert self.spec.scale is not None
        maps = self._compute(left, right, self.spec.scale, progress)
        made = {}
        for name, image in (("left", left), ("right", right))[: 2 if both else 1]:
            planes = torch.from_numpy(maps[name]).movedim(-1, 0)
            made[name] = to_pixels(planes, image.dtype).numpy().astype(image.dtype, copy=False)
        return made

    def _compute(self, left: Pixels, right: Pixels, scale: int, progress: Report) -> Maps:
        """Return the outputs for a pair, (scale H, scale W) or with channels last, tile by tile."""
        pair = torch.cat([to_network(torch.from_numpy(to_plain(each))) for each in (left, right)]).numpy()
        tiles = self._make_tiles(*left.shape[:2])

        def compute(tile: Tile, report: Report) -> Maps:
            outputs = self._run_tile(pair[:, :, tile.rows, tile.columns], scale)
            if len(tiles) > 1:
                outputs.pop("right_disparity", None)  # each tile sees another part of the right image
            return {
                name: values[0] if len(values) == 1 else np.moveaxis(values, 0, -1)
                for name, values in outputs.items()
            }

        return compute_parts(tiles, compute, progress, scale)

    def _make_tiles(self, height: int, width: int) -> list[Tile]:
        size, overlap = self.spec.fixed_size or (height, width), self.spec.tile_overlap
        return make_tiles(height, width, size, overlap, LEANING if self.spec.task == "disparity" else 0.5)

    def _run_tile(self, pair: NDArray[np.float32], scale: int) -> Maps:
        """Return the outputs for a pair (2, 3, H, W) not larger than the network's input."""
        height, width = pair.shape[2:]
        multiple, where = self.spec.multiple, self.spec.padding
        full = self.spec.fixed_size or tuple(-(-side // multiple) * multiple for side in (height, width))
        down, across = full[0] - height, full[1] - width
        sides = [(down, 0) if where == "top right" else (0, down), (0, across)]
        if where == "centre":
            sides = [(each // 2, each - each // 2) for each in (down, across)]
        padded = np.pad(pair, ((0, 0), (0, 0), *sides), mode="edge") if np.any(sides) else pair
        rows, columns = (
            slice(scale * before, scale * (before + side))
            for (before, _), side in zip(sides, (height, width), strict=True)
        )
        outputs = self._read(self.runner.run(self._inputs(padded)), padded.shape[2:], scale)
        return {name: np.ascontiguousarray(values[:, rows, columns]) for name, values in outputs.items()}

    def _inputs(self, pair: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return the inputs by name for a padded pair (2, 3, H, W) in [0, 1]."""
        views = self._normalise(pair)
        half = (views.shape[2] // 2, views.shape[3] // 2)
        needs_half = any(content.endswith("/2") for content in self.spec.inputs.values())
        halved = _resize(views, half, corners=True) if needs_half else views
        inputs = {}
        for name, content in self.spec.inputs.items():
            source = halved if content.endswith("/2") else views
            if content == "flow/2":
                values = self._initial_flow(halved)
            elif "+" in content:
                values = np.concatenate(source[::-1] if content == "right+left" else source)[None]
            else:
                values = source[:1] if content.startswith("left") else source[1:]
            if self.spec.layout == "channels last":
                values = values.transpose(0, 2, 3, 1)
            inputs[name] = np.ascontiguousarray(values)
        return inputs

    def _normalise(self, pair: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert images (N, 3, H, W) RGB in [0, 1] to the channels and range of the network."""
        spec = self.spec
        if spec.channels == "grey":
            pair = np.tensordot(pair, np.array(GREY, np.float32), (1, 0))[:, None]
        elif spec.channels == "BGR":
            pair = pair[:, ::-1]
        mean, deviation = (each[: pair.shape[1]] for each in self._statistics)
        return np.asarray((pair * np.float32(spec.white) - mean) / deviation, np.float32)

    def _denormalise(self, image: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert a network's image (3, H, W) to [0, 1] RGB, the inverse of `_normalise`."""
        mean, deviation = self._statistics
        image = (image * deviation + mean) / np.float32(self.spec.white)
        return image[::-1] if self.spec.channels == "BGR" else image

    def _initial_flow(self, halved: NDArray[np.float32]) -> NDArray[np.float32]:
        assert self.initial is not None
        names = [port.name for port in self.initial.interface.inputs]
        if len(names) != 2:
            raise ModelError(f"{self.initial.name} must have two inputs, got {self.initial.interface}")
        outputs = self.initial.run(dict(zip(names, (halved[:1], halved[1:]), strict=True)))
        flow: NDArray[np.float32] = next(iter(outputs.values())).astype(np.float32)
        return flow

    def _read(self, arrays: dict[str, NDArray[Any]], shape: tuple[int, ...], scale: int) -> Maps:
        """Return the outputs by content for padded images of `shape` (H, W), at `scale` times their size."""
        maps: Maps = {}
        for name, content in self.spec.outputs.items():
            if content == "unused":
                continue
            if name not in arrays:
                raise ModelError(f"{self.runner.name} has no output {name!r}, only {', '.join(arrays)}")
            if self.spec.task == "superres":
                values = self._read_map(arrays[name], name, (scale * shape[0], scale * shape[1]))
                if content == "left+right":
                    maps["left"], maps["right"] = map(self._denormalise, (values[:3], values[3:6]))
                else:
                    maps[content] = self._denormalise(values)
                continue
            if content == "confidence":
                values = self._read_map(np.squeeze(arrays[name]), name, np.squeeze(arrays[name]).shape)
            else:
                sides = tuple(round(self.spec.resolution * side) for side in shape)
                values = self._read_map(arrays[name], name, sides)[:1]
                width, columns = float(shape[1]), values.shape[2]
                pixels = {"pixels": 1.0, "output pixels": width / columns, "width": width}[self.spec.unit]
                values = values * np.float32(self.spec.sign * pixels)
            kind = content.replace(" ", "_")
            maps[kind] = values if values.shape[1:] == shape else _resize(values[None], shape)[0]
        return maps

    def _read_map(self, values: NDArray[Any], name: str, sides: tuple[int, ...]) -> NDArray[np.float32]:
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
                f"{self.runner.name}: output {name} has the shape {'x'.join(map(str, shape))}, expected "
                f"{sides[-1]}x{sides[0]} px",
                "correct resolution, scale or size in its description",
            )
        return np.asarray(values, np.float32)


def recognise_session(session: Session, network: str, initial: str = "") -> Description | None:
    """Describe a network of a known family by its static shapes, or those of a run on black images."""
    interface = session.interface
    description = recognise(interface, network, initial=initial)
    if description is None and any(
        None in (port.image_shape or (None,)) for port in (*interface.inputs, *interface.outputs)
    ):
        interface, scale = session.probe()
        description = recognise(interface, network, initial=initial, scale=scale)
    return description


def _resize(
    values: NDArray[np.float32], sides: tuple[int, ...], *, corners: bool = False
) -> NDArray[np.float32]:
    """Resize (N, C, H, W) bilinearly; `corners` aligns the corner pixels."""
    source = torch.from_numpy(np.ascontiguousarray(values))
    return F.interpolate(source, tuple(sides), mode="bilinear", align_corners=corners).numpy()
