"""pam weights: which networks there are, what a file holds, importing, exporting, describing others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pamcli.cli.console import JSON, JSONL, Console, Messages, listen
from pamcli.cli.groups import command, group
from pamcli.errors import PamError, UsageError
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import join_names, pluralize
from pamcli.inference.weights_files import check_complete, describe_weights, find_non_finite
from pamcli.registry.catalog import REGISTERED, check_network_files, list_network_files, locate, sha256
from pamcli.settings import parsing
from pamcli.settings.options import Settings, argument, flag, option
from pamcli.settings.shared import WEIGHTS, Device, NewFile

if TYPE_CHECKING:
    from pamcli.inference.describing import Described

app = group("List, show, check, import and export the networks' weights.")

ONE = argument(
    "Name of `pam weights list`, a file, or an address on the Hugging Face Hub.", default=..., **WEIGHTS
)


@command(app, "list", "List the networks that come with pam.")
def list_weights(jsonl: bool = JSONL) -> None:
    """Show the networks that come with pam.

    $ pam weights list
    $ pam weights list --jsonl
    """
    console = Console(jsonl=jsonl)
    line = "{name:<21}{size:<9}{precision:<8}{version:<9}{licence:<13}{purpose}"
    if not jsonl:
        titles = {"name": "NAME", "size": "SIZE", "precision": "STORED", "version": "VERSION"}
        console.result(line.format(**titles, licence="LICENCE", purpose="PURPOSE"))
    for name, purpose in REGISTERED.items():
        row = {"name": name, "purpose": purpose, **describe_weights(locate(name, check=False))}
        console.answer(row, line.format(**{**row, "size": f"{row['bytes'] / 1e6:.1f} MB"}))


@command(app, "info", "Show what a file says about itself.")
def info(weights: str = ONE, json: bool = JSON) -> None:
    """Show what a weights file says about itself.

    $ pam weights info pasmnet2
    $ pam weights info passrnet2-x4 --json
    """
    console, path = listen(Console(jsonl=json)), locate(weights, check=False)
    values = {"name": weights, **describe_weights(path), "path": path, "sha256": sha256(path)}
    if unsound := find_non_finite(path):
        values["not_finite"] = (
            f"NaN or infinite values in {pluralize(len(unsound), 'tensor')}: {join_names(unsound)}"
        )
    shown = {key: value for key, value in values.items() if value not in (None, "")}
    if "parameters" in shown:
        shown["parameters"] = f"{values['parameters']} ({values['parameters'] / 1e6:.2f}M)"
    console.answer(values, *(f"{key.replace('_', ' '):14} {value}" for key, value in shown.items()))


@command(app, "verify", "Check whether weights are whole.")
def verify(
    weights: list[str] | None = argument("Weights to check; by default all that come with pam.", **WEIGHTS),
) -> None:
    """Check that weights are whole.

    Weights that come with pam must have the recorded sha256, other files the tensors of their network; an
    ONNX file must be as it was written, and ONNX Runtime must be able to load it.

    $ pam weights verify
    $ pam weights verify passrnet-x2
    """
    console = listen(Console())
    failures: list[PamError] = []
    for name in weights or REGISTERED:
        try:
            path = locate(name)
            check_complete(path)
        except PamError as error:
            failures.append(error)
            console.error(str(error) if error.message.startswith(name) else f"{name}: {error}")
        else:
            console.result(f"{name}: ok, sha256 {sha256(path)}")
    if failures:
        raise typer.Exit(failures[0].exit_code)


class Imported(NewFile):
    """The file that a checkpoint becomes, and what it says about itself."""

    output: Path = option("The file to write.", "-o", default=..., metavar="FILE.safetensors")
    max_disparity: int | None = option(
        "Store the largest disparity that a matcher was trained with; its tensors cannot show it.",
        metavar="N|none",
        parse=parsing.parse_number_or_none,
        show_default="none",
    )
    training: str = option("Store in words what data and recipe the weights come from.", default="")
    licence: str = option("Store the licence of the weights.", default="unknown")
    version: str = option("Store the version of the weights.", default="")
    half: bool = flag("Store half precision, in half the bytes.")


@command(app, "import", "Convert checkpoints of the authors.")
def import_checkpoint(
    given: Imported,
    checkpoint: Path = argument(
        "A .pth or .pth.tar file in the authors' layout.", default=..., metavar="CHECKPOINT"
    ),
) -> None:
    """Convert a checkpoint of the authors, or of PASMnet 2.

    The result is a safetensors file. Nothing in the checkpoint is executed.

    $ pam weights import PASMnet_KITTI2015.pth.tar -o pasmnet_kitti.safetensors
    $ pam weights import PASMnet_192.pth.tar -o pasmnet_192.safetensors --max-disparity 192
    """
    check_new_file(given.output, ".safetensors", overwrite=given.overwrite)
    from pamcli.registry.convert import read_checkpoint
    from pamcli.registry.load import save_network

    about = {name: getattr(given, name) for name in ("max_disparity", "training", "licence", "version")}
    found = read_checkpoint(checkpoint, **about)
    save_network(found.state, found.spec, given.output, half=given.half)
    scale = "" if found.spec.scale is None else f" x{found.spec.scale}"
    console = Console()
    console.inform(f"{checkpoint} holds a {found.spec.architecture}{scale}, {len(found.state)} tensors")
    console.path(given.output)


class Exported(NewFile):
    """The ONNX file that a network becomes."""

    output: Path = option("The file to write.", "-o", default=..., metavar="FILE.onnx")
    size: tuple[int, int] | None = option(
        "Fix the size of the pictures, as in 1248x384; dynamic: leave both sides open.",
        metavar="WIDTHxHEIGHT|dynamic",
        show_default="dynamic",
        parse=parsing.parse_export_size,
    )
    half: bool = flag("Store convolutions in half precision.")


@command(app, "export", "Write a network as ONNX, for other runtimes.")
def export_network(given: Exported, messages: Messages, weights: str = ONE) -> None:
    """Write a network as an ONNX file, which `--weights` takes too, and hold it against PyTorch.

    Whole attention maps bound the size of its pictures: pam guide onnx.

    $ pam weights export pasmnet2 -o net.onnx --size 1248x384
    $ pam weights export passrnet-x2 -o larger.onnx
    """
    check_new_file(given.output, ".onnx", overwrite=given.overwrite)
    console, path = messages.console(), locate(weights)
    check_extra_output(given.output, [path])
    with console.starting(weights):
        from pamcli.files.atomic import write_atomically
        from pamcli.inference.onnx_file import export
        from pamcli.registry.load import load_network

    source = {"name": weights, "weights_sha256": sha256(path)}
    size = given.size and given.size[::-1]
    made = export(*load_network(path), size, half=given.half, source=source)
    write_atomically(given.output, made.data)
    quick, slow = made.seconds
    console.inform(
        f"{made.size[1]} x {made.size[0]} pixels: {made.mean:.2g} {made.unit} from PyTorch in the mean, "
        f"{made.largest:.2g} at most; {quick:.2f} s, PyTorch {slow:.2f} s"
    )
    console.path(given.output)


class Written(NewFile):
    """Where the description goes."""

    output: Path = option(
        "The description to write; its picture goes beside it.", "-o", default=..., metavar="NET.toml"
    )


class Known(Settings, panel="Network"):
    """What is known of the network."""

    network_from: str | None = option(
        "Describe the PyTorch network that this function makes; the module's code runs.",
        metavar="MODULE:FUNCTION",
    )
    settings: list[tuple[str, str]] | None = option(
        "Set a value of the description, as in white=255, channels=BGR or sign=-1 (pam guide own-network).",
        "--set",
        metavar="KEY=VALUE",
        parse=parsing.parse_setting,
    )


@command(app, "describe", "Find out how any stereo network is fed and read.")
def describe(
    to: Written,
    known: Known,
    compute: Device,
    messages: Messages,
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
    if network is not None and network.suffix == ".onnx" and known.network_from:
        raise UsageError("cannot use both NET.onnx and `network_from`", "give one of them")
    if network is None and known.network_from is None:
        raise UsageError("no network is named", "NET.onnx, or --network-from MODULE:FUNCTION")
    if network is not None and network.suffix not in (".onnx", ".toml"):
        raise UsageError(
            f"{network} is neither an .onnx file nor a description (.toml)",
            "a PyTorch network is described by --network-from MODULE:FUNCTION: pam guide own-network",
        )
    picture = to.output.with_suffix(".png")
    check_new_file(to.output, ".toml", overwrite=to.overwrite or to.output == network)
    check_new_file(picture, ".png", overwrite=to.overwrite)
    settings = dict(known.settings or ())
    read = [*list_network_files(network), settings.get("initial")]
    check_network_files([picture], *read)
    check_network_files([to.output], *(each for each in read if each != network))  # which may be written anew
    with console.starting(str(network or known.network_from)):
        from pamcli.files.atomic import write_atomically
        from pamcli.imaging.images import write_image
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
    for line in found.doubts():
        console.warn(line)
    write_image(picture, describing.picture_of(found.tried))
    write_atomically(to.output, to_toml(described).encode())
    console.path(to.output)
    console.path(picture)


def _answers(found: Described) -> dict[str, str]:
    """Ask a person at a terminal what could not be told; stdout is for results. Raises UsageError."""
    settings: dict[str, str] = {}
    for question, choices in found.questions():
        known, answer = ", ".join(f"{number}: {choice}" for number, choice in enumerate(choices, 1)), ""
        while not (answer.isdecimal() and 1 <= int(answer) <= len(choices)):
            typer.echo(f"{question} ({known}): ", nl=False, err=True)
            if not (line := sys.stdin.readline()):
                raise UsageError("no answer", "--set says it beforehand: pam guide own-network")
            answer = line.strip()
        settings |= list(choices.values())[int(answer) - 1]
    return settings
