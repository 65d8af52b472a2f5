"""Represent the inputs and outputs of a network: names, shapes, types. No torch here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """An input or an output."""

    name: str
    shape: tuple[int | None, ...]
    """Sides, None if free; () if unknown."""
    type: str = "tensor(float)"

    @property
    def image_shape(self) -> tuple[int | None, int | None, int | None] | None:
        """Channels, height, width of a 1 x C x H x W or 1 x H x W x C port, otherwise None.

        A port is channels last if only its last axis is short.
        """
        if len(self.shape) != 4:
            return None
        _, first, second, last = self.shape
        return (last, first, second) if self.channels_last else (first, second, last)

    @property
    def channels(self) -> int | None:
        """Number of image channels; 1 for ports that are not images."""
        return 1 if self.image_shape is None else self.image_shape[0]

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of an image or map; 0 where free or for other ports."""
        sides = self.shape[-2:] if len(self.shape) in (2, 3) else (0, 0)
        rows, columns = sides if self.image_shape is None else self.image_shape[1:]
        return rows or 0, columns or 0

    @property
    def channels_last(self) -> bool:
        """True if the axes are 1 x H x W x C."""
        few = (1, 2, 3, 4, 6)
        return len(self.shape) == 4 and self.shape[3] in few and self.shape[1] not in few

    def __str__(self) -> str:
        return f"{self.name} ({' x '.join('?' if side is None else str(side) for side in self.shape)})"


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a network."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"
