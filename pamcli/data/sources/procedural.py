"""Provide procedural scenes as a data set, rendered on demand with exact disparity of both views.

The listed scenes are one series; training renders others, so the listed scenes can always validate a network.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pamcli.data.source import LARGEST_SEED, Files, Key, Sample, Source, digest, make_info
from pamcli.errors import InputError, UsageError
from pamcli.scenes.hard_cases import CASES, NONE, HardCases

if TYPE_CHECKING:
    from pamcli.scenes.textures import TextureLibrary

LENGTH = 1000  # number of listed scenes
ALL = "hard"  # key that sets the share of every hard case
CHECK_SERIES = LARGEST_SEED + 1  # series of the listed scenes, never used in training


class Scenes(Source):
    """A data set whose samples are rendered. Torch is needed to render, but not to list."""

    endless = True

    def __init__(
        self,
        library: TextureLibrary,
        height: int,
        width: int,
        length: int = LENGTH,
        hard: HardCases | None = None,
    ) -> None:
        """List scenes of `height` x `width` px; `hard` is None if the specification sets no hard cases."""
        # A scene may need any texture. Each gets a share, so that every texture is listed and checked once.
        textures = library.photos + library.cutouts
        shares = [textures[index::length] for index in range(length)]
        self.names = tuple(f"{index:06d}" for index in range(length))
        files = []
        for name, share in zip(self.names, shares, strict=True):
            first = share[0] if share else Path(name)
            files.append(Files(name, first, first, {str(i): path for i, path in enumerate(share)}))
        self._files = tuple(files)
        self._library, self._height, self._width, self._hard = library, height, width, hard

    @property
    def files(self) -> tuple[Files, ...]:
        return self._files

    def load(self, index: int) -> Sample:
        """Render a listed scene, always the same one."""
        name = self.names[index]
        return replace(self.render(CHECK_SERIES, int(name), self._height, self._width), name=name)

    def render(self, series: int, number: int, height: int, width: int) -> Sample:
        """Render scene `number` of a series (a seed below `CHECK_SERIES`) with exact ground truth."""
        from pamcli.scenes.scene import scene_pair

        pair = scene_pair(self._library, series, number, height, width, self._hard or NONE)
        return Sample(f"{number:06d}", **pair._asdict())

    def with_hard_cases(self, hard: HardCases) -> Scenes:
        if self._hard:
            return self
        harder = copy.copy(self)
        harder._hard = hard
        return harder

    def has_truth(self) -> bool:
        return True

    def fingerprint(self) -> str:
        """Return a digest of the textures' names."""
        return digest([path.name for files in self.files for path in files.parts.values()])

    def first(self, count: int) -> Scenes:
        length = min(count, len(self))
        scenes = Scenes(self._library, self._height, self._width, length, self._hard)
        scenes.spec = self.spec
        return scenes

    checks_itself = True

    def check(self, index: int) -> str | None:
        """Return the damaged textures among a scene's share; its rendered ground truth needs no check."""
        from pamcli.scenes.textures import read_texture

        damaged = []
        for path in self.files[index].parts.values():
            try:
                read_texture(path)
            except InputError as error:
                damaged.append(error.message)
        return "; ".join(damaged) or None


def open_source(root: Path | None, split: str, keys: Mapping[str, str]) -> Scenes:
    from pamcli.scenes.textures import TextureLibrary, find_textures

    width, height = map(int, keys.get("size", "512x256").split("x"))
    shares = {name: _parse_share(name, keys[name]) for name in (ALL, *CASES) if name in keys}
    hard = HardCases(**dict.fromkeys(CASES, shares.pop(ALL, 0.0)) | shares) if shares else None
    return Scenes(TextureLibrary() if root is None else find_textures(root), height, width, hard=hard)


def _parse_share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{name} must be a share of the scenes from 0 to 1, got {text[:40]}")
    return share


_SHARES = (Key(name, f"share with {what}", (), "0") for name, what in CASES.items())
INFO = make_info("procedural", open_source, *_SHARES)
