"""pam weights: list, show, check, import, export and describe networks."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pamcli.cli.console import Console
from pamcli.errors import PamError, UsageError
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import join_names, pluralize
from pamcli.inference.weights_files import check_complete, describe_weights, find_non_finite
from pamcli.registry.catalog import (
    REGISTERED,
    check_network_files,
    list_network_files,
    locate,
    read_header,
    sha256,
)
from pamcli.settings.options import Settings, argument, flag, option
from pamcli.settings.parsing import CountOrNone, ExportSize, Form, KeyValue
from pamcli.settings.shared import Device, NewFile

if TYPE_CHECKING:
    from pamcli.inference.describing import Findings

WeightsName = Annotated[str, Form("NAME|PATH|hf:...", complete="weights")]
ONE = argument("Name of `pam weights list`, a file, or hf:owner/repo/file.", default=...)


def list_weights(console: Console) -> None:
    """List the shipped weights.

    $ pam weights list
    $ pam weights list --jsonl
    """
    line = "{name:<21}{size:<9}{precision:<8}{version:<9}{licence:<13}{purpose}"
    if not console.jsonl:
        titles = {"name": "NAME", "size": "SIZE", "precision": "STORED", "version": "VERSION"}
        console.result(line.format(**titles, licence="LICENCE", purpose="PURPOSE"))
    for name, purpose in REGISTERED.items():
        row = {"name": name, "purpose": purpose, **describe_weights(locate(name, check=False))}
        console.answer(row, line.format(**{**row, "size": f"{row['bytes'] / 1e6:.1f} MB"}))


def info(console: Console, weights: WeightsName = ONE) -> None:
    """Show what a weights file contains: network, training, licence, checksum.

    $ pam weights info pasmnet2
    $ pam weights info passrnet2-x4 --json
    """
    path = locate(weights, check=False)
    values = {"name": weights, **describe_weights(path), "path": path, "sha256": sha256(path)}
    if unsound := find_non_finite(path):
        values["not_finite"] = (
            f"NaN or infinite values in {pluralize(len(unsound), 'tensor')}: {join_names(unsound)}"
        )
    shown = {key: value for key, value in values.items() if value not in (None, "")}
    if "parameters" in shown:
        shown["parameters"] = f"{values['parameters']} ({values['parameters'] / 1e6:.2f}M)"
    console.answer(values, *(f"{key.replace('_', ' '):14} {value}" for key, value in shown.items()))


def verify(
    console: Console,
    weights: Sequence[WeightsName] | None = argument("Weights to check; by default all shipped ones."),
) -> None:
    """Check that weights are undamaged.

    Shipped weights must have the recorded sha256, other files the tensors of their network. ONNX files must
    be unchanged and load in ONNX Runtime.

    $ pam weights verify
    $ pam weights verify passrnet-x2
    """
    failures: list[PamError] = []
    for name in weights or REGISTERED:
        try:
            path = locate(name)
            check_complete(path)
        except PamError as error:
            failures.append(error)
            console.error(str(error) if error.message.startswith(name) else f"{name}: {error}")
        else:
            digest = sha256(path)
            console.answer({"name": name, "sha256": digest}, f"{name}: ok, sha256 {digest}")
    if failures:
        raise typer.Exit(failures[0].exit_code)


class Imported(NewFile):
    """The weights file to write, and its metadata."""

    output: Path = option("Write this file.", "-o", default=..., metavar="FILE.safetensors")
    max_disparity: CountOrNone | None = option(
        "Store the maximum disparity of the training, px; the checkpoint does not state it [default: none]."
    )
    training: str = option("Store a description of the training data and recipe.", default="")
    licence: str = option("Store the licence of the weights.", default="unknown")
    version: str = option("Store the version of the weights.", default="")
    half: bool = flag("Store half precision, for half the file size.")


def import_checkpoint(
    given: Imported,
    console: Console,
    checkpoint: Path = argument(
        "Checkpoint of the authors, .pth or .pth.tar.", default=..., metavar="CHECKPOINT"
    ),
) -> None:
    """Convert a checkpoint of the authors, or of PASMnet 2, to a safetensors file.

    Code in the checkpoint is never executed.

    $ pam weights import PASMnet_KITTI2015.pth.tar -o pasmnet_kitti.safetensors
    $ pam weights import PASMnet_192.pth.tar -o pasmnet_192.safetensors --max-disparity 192
    """
    check_new_file(given.output, ".safetensors", overwrite=given.overwrite)
    from pamcli.registry.convert import read_checkpoint
    from pamcli.registry.load import save_network

    facts = {name: getattr(given, name) for name in ("max_disparity", "training", "licence", "version")}
    state, spec = read_checkpoint(checkpoint, **facts)
    save_network(state, spec, given.output, half=given.half)
    scale = "" if spec.scale is None else f" x{spec.scale}"
    console.inform(f"{checkpoint} holds a {spec.architecture}{scale}, {len(state)} tensors")
    console.path(given.output)


class Exported(NewFile):
    """The ONNX file to write."""

    output: Path = option("Write this file.", "-o", default=..., metavar="FILE.onnx")
    size: ExportSize | None = option(
        "Fix the size of the images, such as 1248x384; dynamic: any size [default: dynamic]."
    )
    half: bool = flag("Use half precision for convolutions.")


def export_network(given: Exported, console: Console, weights: WeightsName = ONE) -> None:
    """Export a network to an ONNX file for `--weights` or other programs, and compare it with PyTorch.

    The file needs more memory than PyTorch for large images: pam guide onnx.

    $ pam weights export pasmnet2 -o net.onnx --size 1248x384
    $ pam weights export passrnet-x2 -o upscaler.onnx
    """
    check_new_file(given.output, ".onnx", overwrite=given.overwrite)
    path = locate(weights)
    check_extra_output(given.output, [path])
    if path.suffix in (".onnx", ".toml") and path.is_file():
        raise UsageError(
            f"only pam's own networks can be exported, got {path}",
            "export networks of other projects with PyTorch: pam guide own-network",
        )
    with console.starting(weights):
        from pamcli.files.atomic import write_atomically
        from pamcli.inference.onnx_file import export
        from pamcli.registry.load import load_network

    network, spec = load_network(path)
    source = {"name": weights, "weights_sha256": sha256(path)}
    console.inform(f"exporting {weights} and comparing it with PyTorch, which takes up to a minute")
    made = export(network, spec, given.size and given.size[::-1], half=given.half, source=source)
    write_atomically(given.output, made.data)
    quick, slow = made.seconds
    console.inform(
        f"difference from PyTorch at {made.size[1]}x{made.size[0]}: {made.mean:.2g} {made.unit} on average, "
        f"{made.largest:.2g} {made.unit} at most; time {quick:.2f} s, PyTorch {slow:.2f} s"
    )
    console.path(given.output)


class Published(Settings, panel="Output"):
    """Options for publishing weights."""

    card: Path | None = option(
        "Upload this model card [default: the .md file next to the weights, else one from their metadata].",
        metavar="FILE.md",
    )
    private: bool = flag("Create the repository as a private one.")


def push(
    given: Published,
    console: Console,
    weights: Path = argument("Weights file to upload.", default=..., metavar="FILE.safetensors"),
    repository: str = argument("Repository of the Hub.", default=..., metavar="hf:OWNER/REPO"),
) -> None:
    """Publish weights, such as runs/mine/best.safetensors, with a model card on the Hugging Face Hub.

    The repository is created if necessary. Log in first: hf auth login.

    $ pam weights push mine.safetensors hf:owner/repo
    $ pam weights push mine.safetensors hf:owner/repo --card card.md --private
    """
    with console.starting(str(weights)):
        from pamcli.registry.downloads import publish

        spec = read_header(weights).spec
        address = publish(weights, spec, repository, card=given.card, private=given.private)
    console.inform(f"published; use it with --weights {address}")
    console.answer({"address": address}, address)


class Written(NewFile):
    """The description to write."""

    output: Path = option(
        "Write this description, and an image with the result next to it.",
        "-o",
        default=...,
        metavar="NET.toml",
    )


class Known(Settings, panel="Network"):
    """Known facts about the network."""

    network_from: str | None = option(
        "Describe the PyTorch network that this function returns; its code runs.", metavar="MODULE:FUNCTION"
    )
    settings: Sequence[KeyValue] | None = option(
        "Set a value of the description, such as white=255 or channels=BGR (pam guide own-network).",
        "--set",
    )


def describe(
    to: Written,
    known: Known,
    compute: Device,
    console: Console,
    network: Path | None = argument(
        "An ONNX file, or a description to test again.", metavar="NET.onnx", show_default=False
    ),
) -> None:
    """Find the inputs and outputs of a network of another project, and write them to a description file.

    Published networks are recognised by their inputs and outputs. For others, pam tries value ranges, channel
    orders and signs on a sample pair with ground truth, and asks if several work equally well. It prints the
    error on the sample pair and writes an image of the result.

    $ pam weights describe stereo.onnx -o stereo.toml
    $ pam weights describe stereo.onnx -o stereo.toml --set white=255 --set channels=BGR --overwrite
    """
    if network is not None and network.suffix == ".onnx" and known.network_from:
        raise UsageError("cannot use both NET.onnx and `network_from`", "omit one of them")
    if network is None and known.network_from is None:
        raise UsageError("a network is required", "add NET.onnx, or --network-from MODULE:FUNCTION")
    if network is not None and network.suffix not in (".onnx", ".toml"):
        what = f"{network} must be an .onnx file or a description (.toml)"
        raise UsageError(what, "for PyTorch networks: --network-from MODULE:FUNCTION (pam guide own-network)")
    image = to.output.with_suffix(".png")
    check_new_file(to.output, ".toml", overwrite=to.overwrite or to.output == network)
    check_new_file(image, ".png", overwrite=to.overwrite)
    settings = dict(known.settings or ())
    read = [*list_network_files(network), settings.get("initial")]
    check_network_files([image], *read)
    check_network_files([to.output], *(each for each in read if each != network))  # may be overwritten
    with console.starting(str(network or known.network_from)):
        from pamcli.files.atomic import write_atomically
        from pamcli.imaging.images import write_image
        from pamcli.inference.describing import Candidate
        from pamcli.registry.description import to_toml

        candidate = Candidate(
            network, known.network_from, settings, device=compute.device, description=to.output
        )
    console.inform(candidate.runner.note)
    found = candidate.describe(settings)
    if found.undecided and sys.stdin.isatty() and sys.stderr.isatty():
        found = candidate.describe({**settings, **_ask(found)})
    found.check()
    description = found.result.description
    family = description.family and f"recognised as {description.family} by its inputs and outputs"
    console.inform("; ".join([family or "the family is unknown", *found.decided]))
    console.inform(f"sample pair: {found.result}")
    for line in found.warnings():
        console.warn(line)
    write_image(image, found.render())
    write_atomically(to.output, to_toml(description).encode())
    console.path(to.output)
    console.path(image)


def _ask(findings: "Findings") -> dict[str, str]:
    """Ask for undecided values on stderr; raise UsageError at the end of the input."""
    settings: dict[str, str] = {}
    for question, choices in findings.questions():
        known, answer = ", ".join(f"{number}: {choice}" for number, choice in enumerate(choices, 1)), ""
        while not (answer.isdecimal() and 1 <= int(answer) <= len(choices)):
            typer.echo(f"{question} ({known}): ", nl=False, err=True)
            if not (line := sys.stdin.readline()):
                raise UsageError("a question was not answered", "answer with --set: pam guide own-network")
            answer = line.strip()
        settings |= list(choices.values())[int(answer) - 1]
    return settings
