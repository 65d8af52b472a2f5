"""Files of pairs, and what pairing says of them."""

from __future__ import annotations

from pathlib import Path

from pamcli.files.pairing import PairPaths


def make(*names: str) -> None:
    """Files of these names, each with its name inside."""
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def triples(pairs: tuple[PairPaths, ...]) -> list[tuple[str, str, str]]:
    return [(str(pair.left), str(pair.right), pair.key) for pair in pairs]
