"""pam weights: what networks there are, what a file holds, whether it is whole, import and export."""

from pathlib import Path

import typer

from pamcli.cli import parsing
from pamcli.cli.console import Console, listen, said
from pamcli.cli.groups import OptionGroup, argument, command, flag, group, option
from pamcli.cli.network import WEIGHTS
from pamcli.cli.options import JSON, JSONL, Messages, check_new_file
from pamcli.errors import PamError, UsageError
from pamcli.files.outputs import check_beside
from pamcli.inference.weights_files import require_whole, weights_facts
from pamcli.registry.catalog import REGISTERED, locate, sha256

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
        row = {"name": name, "purpose": purpose, **weights_facts(locate(name, check=False))}
        console.answer(row, line.format(**{**row, "size": f"{row['bytes'] / 1e6:.1f} MB"}))


@command(app, "info", "Show what a file says about itself.")
def info(weights: str = ONE, json: bool = JSON) -> None:
    """Show what a weights file says about itself.

    $ pam weights info pasmnet2
    $ pam weights info passrnet2-x4 --json
    """
    console, path = listen(Console(jsonl=json)), locate(weights, check=False)
    values = {"name": weights, **weights_facts(path), "path": path, "sha256": sha256(path)}
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
            require_whole(path)
        except PamError as error:
            failures.append(error)
            console.error(said(error) if error.message.startswith(name) else f"{name}: {said(error)}")
        else:
            console.result(f"{name}: ok, sha256 {sha256(path)}")
    if failures:
        raise typer.Exit(failures[0].exit_code)


class Imported(OptionGroup, panel="Output"):
    """The file that a checkpoint becomes, and what it says about itself."""

    output: Path = option("The file to write.", "-o", default=..., metavar="FILE.safetensors")
    max_disparity: int | None = option(
        "Store the largest disparity that a matcher was trained with; its tensors cannot show it.",
        metavar="N|none",
        parse=parsing.number_or_none,
        show_default="none",
    )
    training: str = option("Store in words what data and recipe the weights come from.", default="")
    licence: str = option("Store the licence of the weights.", default="unknown")
    version: str = option("Store the version of the weights.", default="")
    half: bool = flag("Store half precision, in half the bytes.")
    overwrite: bool = flag("Replace results that exist.")


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
    output, prior = given.output, given.max_disparity
    if prior is not None and prior % 16:
        raise UsageError(f"--max-disparity {prior} is not a multiple of 16, as those of checkpoints are")
    check_new_file(output, ".safetensors", overwrite=given.overwrite)
    from pamcli.registry.convert import read_checkpoint
    from pamcli.registry.load import save_network

    found = read_checkpoint(
        checkpoint, max_disparity=prior, training=given.training, licence=given.licence, version=given.version
    )
    state = found.state
    if given.half:
        state = {key: value.half() if value.is_floating_point() else value for key, value in state.items()}
    save_network(state, found.spec, output)
    scale = "" if found.spec.scale is None else f" x{found.spec.scale}"
    console = Console()
    console.inform(f"{checkpoint} holds a {found.spec.architecture}{scale}, {len(found.state)} tensors")
    console.path(output)


class Exported(OptionGroup, panel="Output"):
    """The ONNX file that a network becomes."""

    output: Path = option("The file to write.", "-o", default=..., metavar="FILE.onnx")
    size: tuple[int, int] | None = option(
        "Fix the pictures to rows x columns, as in 384x1248; dynamic: leave both open.",
        metavar="HxW|dynamic",
        show_default="dynamic",
        parse=parsing.rows_by_columns,
    )
    half: bool = flag("Store convolutions in half precision.")
    overwrite: bool = flag("Replace results that exist.")


@command(app, "export", "Write a network as ONNX, for other runtimes.")
def export_network(given: Exported, messages: Messages, weights: str = ONE) -> None:
    """Write a network as an ONNX file, which `--weights` takes too, and hold it against PyTorch.

    Whole attention maps bound the size of its pictures: pam guide onnx.

    $ pam weights export pasmnet2 -o net.onnx --size 384x1248
    $ pam weights export passrnet-x2 -o larger.onnx
    """
    check_new_file(given.output, ".onnx", overwrite=given.overwrite)
    console, path = messages.console(), locate(weights)
    check_beside(given.output, [path])
    with console.starting(weights):
        from pamcli.files.atomic import write_atomically
        from pamcli.inference.onnx_file import export
        from pamcli.registry.load import load_network

    source = {"name": weights, "weights_sha256": sha256(path)}
    made = export(*load_network(path), given.size, half=given.half, source=source)
    write_atomically(given.output, made.data)
    quick, slow = made.seconds
    console.inform(
        f"{made.size[1]} x {made.size[0]} pixels: {made.mean:.2g} {made.unit} from PyTorch in the mean, "
        f"{made.largest:.2g} at most; {quick:.2f} s, PyTorch {slow:.2f} s"
    )
    console.path(given.output)
