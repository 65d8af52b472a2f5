"""Photographs and cut-outs of a folder in one zip of a limited size, for a machine without them.

    python scripts/training/pack_textures.py FOLDER ZIP MEGABYTES

As they are where they fit, else as WebP, reduced until they do.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

from PIL import Image

SIDES = (1024, 768, 640, 512, 448, 384, 320)
QUALITY = 80


def main() -> None:
    """Pack, and say how."""
    folder, archive, megabytes = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in Image.registered_extensions())
    most = megabytes * 1e6 - 200 * len(files)  # what a zip says of each file
    packed, how = {path: path.read_bytes() for path in files}, "as they are"
    for side in SIDES:
        if sum(map(len, packed.values())) <= most:
            break
        packed, how = {path: reduced(path, side) for path in files}, f"at most {side} px"
    else:
        if sum(map(len, packed.values())) > most:
            sys.exit(f"{folder} does not fit into {megabytes:g} MB")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as target:
        for path, content in packed.items():
            suffix = path.suffix if how == "as they are" else ".webp"
            target.writestr(f"{path.relative_to(folder).with_suffix('')}{suffix}", content)
    print(f"{len(files)} textures, {how}: {archive.stat().st_size / 1e6:.1f} MB")


def reduced(path: Path, side: int) -> bytes:
    """A picture as WebP, its longer side at most `side`."""
    with Image.open(path) as picture:
        small = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=QUALITY)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
