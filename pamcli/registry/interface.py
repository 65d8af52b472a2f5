"""Inputs and outputs of a network as it tells them: names, shapes, types. No torch here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """An input or an output."""

    name: str
    shape: tuple[int | None, ...]
    """Sides, None where they are free; () where nothing is known."""
    type: str = "tensor(float)"

    @property
    def picture(self) -> tuple[int | None, int | None, int | None] | None:
        """Channels, rows, columns of a 1 x C x H x W or 1 x H x W x C; None: it is of neither form.

        Channels last is what has few of them at the end alone.
        """
        if len(self.shape) != 4:
            return None
        _, first, rows, last = self.shape
        if self.channels_last:
            return last, first, rows
        return first, rows, last

    @property
    def channels(self) -> int | None:
        """Channels of a picture, 1 of what is none."""
        return 1 if self.picture is None else self.picture[0]

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of a picture or a map, 0 where they are free; of what is neither, too."""
        sides = self.shape[-2:] if len(self.shape) in (2, 3) else (0, 0)
        rows, columns = sides if self.picture is None else self.picture[1:]
        return rows or 0, columns or 0

    @property
    def channels_last(self) -> bool:
        """Whether the axes are 1 x H x W x C."""
        few = (1, 2, 3, 4, 6)
        return len(self.shape) == 4 and self.shape[3] in few and self.shape[1] not in few

    def __str__(self) -> str:
        return f"{self.name} ({' x '.join('?' if side is None else str(side) for side in self.shape)})"


@dataclass(frozen=True)
class Interface:
    """What goes in and what comes out."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"
