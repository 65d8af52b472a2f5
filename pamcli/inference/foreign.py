"""Networks that are not pam's own, made to look like pam's: fed and read as their description says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import ModelError, UsageError
from pamcli.inference.device import Compute
from pamcli.inference.match_size import MatchSize
from pamcli.inference.runners import Runner, Session, open_runner
from pamcli.inference.tiling import tiles
from pamcli.registry.description import Description, read_description
from pamcli.registry.families import recognise
from pamcli.streaming.footprint import Footprint
from pamcli.streaming.matching import Progress, StreamedMatching
from pamcli.streaming.passrnet import Write
from pamcli.streaming.rolling import Rows

GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue."""
LEANING = 0.75
"""Where, in the columns that two tiles share, the left one gives way: what is on the left of a tile has its
match on its left, where the tile may have ended already."""

DISPARITIES = ("disparity", "right disparity")
"""Outputs that are none below 0."""

Maps = dict[str, NDArray[np.float32]]
"""What outputs hold, (C, H, W) each."""


@dataclass(frozen=True)
class ForeignMatching(StreamedMatching):
    """What a foreign network finds: confidence, if any, has the size of the disparity."""

    right: Tensor | None = None
    """Disparity of the right view (1, 1, H, W), where the network finds it, too."""


class ForeignNetwork:
    """A network and its description; `match` and `enlarge` are those of the streamed networks."""

    size: tuple[int, int] | None = None
    """None: pictures of any size are taken, and brought to that of the network here."""
    signed = False
    """Whether disparities below 0 are left: as long as nobody knows which sign they have."""

    def __init__(self, description: Description, runner: Runner, initial: Session | None = None) -> None:
        """`initial`: what finds the initial flow. Raises ModelError for names that it does not have."""
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
    def load(cls, path: Path, device: str, precision: str, network_from: str | None) -> "ForeignNetwork":
        """Load a network by its description, or an ONNX file of a family that is known.

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

    def checked(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """The match size itself. Raises UsageError: what is searched is the network's own affair."""
        if max_disparity is not None:
            raise UsageError(
                f"{self.runner.name} has no maximum disparity to set", "leave `max_disparity` out"
            )
        return size

    def fitting(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of pictures reduced, where they are larger, to what the network takes at once."""
        if self.spec.fixed_size is None:
            return height, width
        rows, columns = self.spec.fixed_size
        times = min(1.0, rows / height, columns / width)
        return max(1, round(times * height)), max(1, round(times * width))

    def departure(self, height: int, width: int) -> str | None:
        """Say in how many tiles pictures of so many rows and columns are worked on; None: in one."""
        count = len(list(self._tiles(height, width)))
        if count == 1 or self.spec.fixed_size is None:
            return None
        rows, columns = self.spec.fixed_size
        return f"pictures of {width} x {height} px are worked on in {count} tiles of {columns} x {rows}"

    def footprint(self, width: int, height: int, **asked: bool) -> Footprint:
        """Nothing is known of the memory that it takes."""
        return Footprint(lambda strip: 0, rows=(height, height, height))

    def match(
        self,
        rows: Rows,
        height: int,
        width: int,
        max_disparity: int | None = None,
        *,
        strip: int | None = None,
        confidence: bool = False,
        progress: Progress | None = None,
    ) -> ForeignMatching:
        """Match a pair of rows in [0, 1] of any size, as `StreamedPASMnet.match` does."""
        maps = self._found(rows(0, height), 1, progress)
        if not self.signed:  # below 0 by a hundredth, most likely, for which files have no place
            maps |= {name: np.maximum(each, 0) for name, each in maps.items() if name in DISPARITIES}
        sure = maps.get("confidence")
        right = maps.get("right disparity")
        return ForeignMatching(
            torch.from_numpy(maps["disparity"])[None],
            torch.ones(1, -(-height // 4), -(-width // 4)),
            None if sure is None or not confidence else torch.from_numpy(sure).clamp(0, 1),
            None if right is None else torch.from_numpy(right)[None],
        )

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """Enlarge a pair, as `StreamedPASSRnet.enlarge` does."""
        assert self.spec.scale is not None
        maps = self._found(rows(0, height), self.spec.scale, None)
        for view, side in enumerate(("left", "right")[: 2 if both else 1]):
            write(view, 0, torch.from_numpy(maps[side]))

    def _found(self, both: Tensor, scale: int, progress: Progress | None) -> Maps:
        """What is found of a pair (2, 3, H, W) in [0, 1], tile by tile."""
        pair = both.cpu().numpy()
        height, width = pair.shape[2:]
        cut = list(self._tiles(height, width))
        if len(cut) == 1:
            return self._of_tile(pair, scale)
        maps: Maps = {}
        for count, tile in enumerate(cut, 1):
            weights = tile.weights.repeat(scale, 0).repeat(scale, 1)
            rows, columns = (
                slice(scale * part.start, scale * part.stop) for part in (tile.rows, tile.columns)
            )
            found_here = self._of_tile(pair[:, :, tile.rows, tile.columns], scale)
            found_here.pop("right disparity", None)  # of which each tile sees the other end
            for name, found in found_here.items():
                shape = len(found), scale * height, scale * width
                maps.setdefault(name, np.zeros(shape, np.float32))[:, rows, columns] += weights * found
            if progress is not None:
                progress(count / len(cut))
        return maps

    def _tiles(self, height: int, width: int) -> Any:
        size = self.spec.fixed_size or (height, width)
        shared = self.spec.shared if self.spec.fixed_size else (0, 0)
        middle = LEANING if self.spec.task == "disparity" else 0.5
        return tiles(height, width, size, shared, middle)

    def _of_tile(self, pair: NDArray[np.float32], scale: int) -> Maps:
        """What is found of a pair that is no larger than the network takes."""
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
        """Rows above and below, columns before and behind."""
        size, multiple = self.spec.fixed_size, self.spec.multiple
        full = size or tuple(-(-side // multiple) * multiple for side in (height, width))
        more = [large - side for large, side in zip(full, (height, width), strict=True)]
        if self.spec.padding == "centre":
            return [(each // 2, each - each // 2) for each in more]
        return [(more[0], 0) if self.spec.padding == "top right" else (0, more[0]), (0, more[1])]

    def _fed(self, pair: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Inputs by name, of a padded pair (2, 3, H, W) in [0, 1]."""
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
        """A picture (3, H, W) of the network's, in [0, 1] RGB: what `_in_its_numbers` did, undone."""
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
        """What the outputs hold, for padded views of `shape` (H, W), at `scale` times their size."""
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
        """An output as (C, *sides), whatever the order of its axes."""
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
    """Describe a network of a known family, by its shapes, or by those that a run on black pictures shows.

    As `families.recognise` otherwise.
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
    """(N, C, H, W) interpolated between pixels. corners: those of the picture stay where they are."""
    found = F.interpolate(
        torch.from_numpy(np.ascontiguousarray(values)), tuple(sides), mode="bilinear", align_corners=corners
    )
    return found.numpy()
