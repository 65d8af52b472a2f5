"""pam weights describe: how a network that is not pam's own is fed and read, found out and written down."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pamcli.cli import options, parsing
from pamcli.cli.groups import OptionGroup, argument, flag, option
from pamcli.cli.network import keep_networks
from pamcli.errors import UsageError
from pamcli.registry.catalog import files_behind

if TYPE_CHECKING:
    from pamcli.inference.describing import Described


class Written(OptionGroup, panel="Output"):
    """Where the description goes."""

    output: Path = option(
        "The description to write; its picture goes beside it.", "-o", default=..., metavar="NET.toml"
    )
    overwrite: bool = flag("Replace results that exist.")


class Known(OptionGroup, panel="Network"):
    """What is known of the network."""

    network_from: str | None = option(
        "Describe the PyTorch network that this function makes; the module's code runs.",
        metavar="MODULE:FUNCTION",
    )
    settings: list[tuple[str, str]] | None = option(
        "Set a value of the description, as in white=255, channels=BGR or sign=-1 (pam guide own-network).",
        "--set",
        metavar="KEY=VALUE",
        parse=parsing.setting,
    )


def command(
    to: Written,
    known: Known,
    compute: options.Device,
    messages: options.Messages,
    network: Path | None = argument(
        "An ONNX file, or a description that is to be tried again.", metavar="NET.onnx", show_default=False
    ),
) -> None:
    """Find out how a network for stereo matching or super-resolution is fed and read, and write it down.

    Networks of known families are recognised by their inputs and outputs. Of others, what shapes do not tell
    is tried on the pair that comes with pam; what that does not tell either is asked for. Shows how far the
    network is from the truth there, and writes a picture of it.

    $ pam weights describe stereo.onnx -o stereo.toml
    $ pam weights describe stereo.onnx -o stereo.toml --set white=255 --set channels=BGR --overwrite
    """
    console = messages.console()
    if (network is None) == (known.network_from is None):
        hint = "give one of them" if network else "NET.onnx, or --network-from MODULE:FUNCTION"
        raise UsageError(
            "NET.onnx and --network-from contradict each other" if network else "no network is named", hint
        )
    if network is not None and network.suffix not in (".onnx", ".toml"):
        raise UsageError(
            f"{network} is neither an .onnx file nor a description (.toml)",
            "a PyTorch network is described by --network-from MODULE:FUNCTION: pam guide own-network",
        )
    picture = to.output.with_suffix(".png")
    options.check_new_file(to.output, ".toml", overwrite=to.overwrite or to.output == network)
    options.check_new_file(picture, ".png", overwrite=to.overwrite)
    settings = dict(known.settings or ())
    read = [*files_behind(network), settings.get("initial")]
    keep_networks([picture], *read)
    keep_networks([to.output], *(each for each in read if each != network))  # which may be written anew
    with console.starting(str(network or known.network_from)):
        from pamcli.files.atomic import write_atomically
        from pamcli.imaging.images import Picture, encode_picture
        from pamcli.inference import describing
        from pamcli.registry.description import to_toml

        asked = describing.opened(
            network, known.network_from, settings, device=compute.device, beside=to.output
        )
    console.inform(asked.runner.says)
    found = asked.describe(settings)
    if found.undecided and sys.stdin.isatty() and sys.stderr.isatty():
        found = asked.describe({**settings, **_answers(found)})
    describing.require_settled(found)
    described = found.tried.description
    name = described.family and f"recognised as {described.family} by its inputs and outputs"
    console.inform("; ".join([name or "not of a known family", *found.settled]))
    console.inform(f"sample pair: {found.tried}")
    for line in (*found.contradictions, *found.close):
        console.warn(line)
    if not found.tried.works:
        console.warn(
            "on the sample pair the network finds nothing so: is it for other pictures, or is something else "
            "of its description wrong?"
        )
    write_atomically(
        picture, encode_picture(Picture(describing.picture_of(found.tried)), ".png", name=str(picture))
    )
    write_atomically(to.output, to_toml(described).encode())
    console.path(to.output)
    console.path(picture)


def _answers(found: Described) -> dict[str, str]:
    """What a person at a terminal says of what could not be told, as settings."""
    settings: dict[str, str] = {}
    for question, choices in found.questions():
        known = ", ".join(f"{number}: {choice}" for number, choice in enumerate(choices, 1))
        settings |= list(choices.values())[_answer(f"{question} ({known}): ", len(choices)) - 1]
    return settings


def _answer(question: str, most: int) -> int:
    """Ask for a number from 1 to `most`, until it is one; stdout is for results. Raises UsageError."""
    while True:
        typer.echo(question, nl=False, err=True)
        if not (line := sys.stdin.readline()):
            raise UsageError("no answer", "--set says it beforehand: pam guide own-network")
        if line.strip().isdecimal() and 1 <= int(line) <= most:
            return int(line)
