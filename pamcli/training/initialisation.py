"""Create the initial network of a run: trained weights, or random ones from the recipe's seed."""

from importlib.util import find_spec
from typing import cast

import torch
from torch import Tensor, nn

from pamcli.errors import DeviceError, ModelError, UsageError
from pamcli.networks.blocks import ResidualBlock as RefinementBlock
from pamcli.networks.pasmnet import PASMnet, Refinement
from pamcli.networks.passrnet import PASSRnet, ResidualASPP, ResidualBlock
from pamcli.networks.passrnet2 import Exchange, GatedBlock
from pamcli.networks.variants import CascadedASPP
from pamcli.registry.architectures import PAPER, parse_variant
from pamcli.registry.catalog import ModelSpec, locate, read_header
from pamcli.registry.load import Network, build_network, load_network
from pamcli.training.recipe import Recipe

DAMPING = 0.1  # factor for the last layers of the residual branches of a plain upscaler

# Two windows per scale, not normalised, whose composition makes copied pixels bilinear.
SMOOTHING = {2: ((1, 2, 1), (0, 1, 0)), 3: ((1, 1, 1), (0, 1, 0)), 4: ((1, 2, 1), (1, 0, 1))}
SMOOTHING[8] = SMOOTHING[4]


def initial_network(recipe: Recipe) -> Network:
    """Create the initial network on the CPU, in float32; seed torch's generators by the recipe."""
    torch.manual_seed(recipe.seed)
    network = _build_random(recipe) if recipe.start is None else _load_weights(recipe.start, recipe)
    if recipe.reinitialise is not None:
        fresh = _build_random(recipe)
        if isinstance(fresh, PASMnet) and recipe.reinitialise == "refine":
            initialise_as_upsampling(fresh.refine)
        begun = {k: v for k, v in fresh.state_dict().items() if recipe.row.get_part(k) == recipe.reinitialise}
        network.load_state_dict(begun, strict=False)
    for key, parameter in network.named_parameters():
        parameter.requires_grad_(recipe.get_rate(key) > 0)
    for module in network.modules() if recipe.task == "superres" else ():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def compile_blocks(network: nn.Module, device: torch.device, backend: str = "inductor") -> None:
    """Compile the blocks of PASSRnet 2 in place; on an H200, a step takes 115 ms instead of 197 ms."""
    blocks = [module for module in network.modules() if isinstance(module, GatedBlock | Exchange)]
    if not blocks:
        raise UsageError("`compile` supports only passrnet2", "omit it")
    if backend == "inductor":
        if device.type != "cuda":
            raise UsageError(f"`compile` requires a CUDA GPU, got device {device}", "omit it")
        if find_spec("triton") is None:
            raise DeviceError("`compile` requires Triton, which is not installed", "omit it")
    for block in blocks:  # blocks of one kind share the compiled code
        block.compile(dynamic=False, backend=backend)


def _build_random(recipe: Recipe) -> Network:
    network = build_network(recipe.model_spec())
    if recipe.initialisation == "xavier":
        initialise_by_xavier(network)
    elif recipe.row.begins_as_upscaler and recipe.initialisation == "upscaler":
        initialise_as_upscaler(cast(PASSRnet, network))
    return network


def _load_weights(weights: str, recipe: Recipe) -> Network:
    network, spec = load_network(locate(weights))
    check_weights(weights, spec, recipe)
    state = network.state_dict()
    if recipe.scale is not None and spec.scale != recipe.scale:
        state = halve_scale(state)
    begun = build_network(recipe.model_spec())
    if parse_variant(spec.architecture, spec.variant).weights_variant != recipe.form.weights_variant:
        state = deepen(state, begun.state_dict())
    begun.load_state_dict(state)
    return begun.eval()


def check_start(recipe: Recipe) -> None:
    """Raise UsageError or ModelError unless a run can start, by the header of its initial weights."""
    if recipe.start is not None:
        check_weights(recipe.start, read_header(locate(recipe.start)).spec, recipe)
        if recipe.losses.estimate and recipe.reinitialise != "refine":
            problem = "the loss term estimate requires reinitialise=refine: a trained network may ignore it"
            raise UsageError(problem, "set losses.estimate=0, or use the recipe refine")
    elif recipe.freeze_batch_norm or recipe.after is not None:
        weights = f"the recipe {recipe.after}" if recipe.after is not None else recipe.row.name
        hint = f"set `from` to weights of {weights}"
        raise UsageError(f"the recipe {recipe.name} requires initial weights", hint)


def check_weights(weights: str, spec: ModelSpec, recipe: Recipe) -> None:
    """Raise ModelError or UsageError unless the recipe can start from weights of this description."""
    wanted = recipe.row.name
    if spec.architecture != wanted:
        hint = f"set `from` to weights of {wanted}, or `network` {spec.architecture}"
        raise ModelError(f"{weights} has weights of {spec.architecture}, but the run trains {wanted}", hint)
    form = parse_variant(spec.architecture, spec.variant).weights_variant
    trained = recipe.form.weights_variant
    if form != trained and (form, trained) != (PAPER, "blocks=32"):
        hint = f"set `variant` {spec.variant}; only a passrnet2 of 16 blocks can be extended, to 32"
        raise UsageError(
            f"{weights} has the variant {spec.variant}, but the run trains {recipe.form.text}", hint
        )
    if spec.scale != recipe.scale and (spec.scale, recipe.scale) != (4, 2):
        problem = f"{weights} upscales by {spec.scale}, but the run trains x{recipe.scale}"
        raise UsageError(problem, "only x4 weights can be converted, to x2")


def halve_scale(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert weights of x4 to x2 by averaging each 2 x 2 group of the finer grid."""
    halved = dict(state)
    for key in state.keys() & {"upscale.4.weight", "last.weight", "last.bias"}:
        last = state[key]  # (C * 4 * 4, ...): channel, row and column of the shuffle
        groups = last.reshape(-1, 2, 2, 2, 2, *last.shape[1:])  # channel, row // 2, row % 2, column // 2, ...
        halved[key] = groups.mean((2, 4)).flatten(0, 2)
    return halved


def deepen(state: dict[str, Tensor], fresh: dict[str, Tensor]) -> dict[str, Tensor]:
    """Extend a PASSRnet 2 by blocks of the deeper network `fresh` that add nothing yet."""
    numbers = ({key.split(".")[1] for key in one if key.startswith("blocks.")} for one in (fresh, state))
    blocks, before = map(len, numbers)
    times = blocks // before
    deeper = {key: torch.zeros_like(value) if ".scale" in key else value for key, value in fresh.items()}
    for key, value in state.items():
        part, *rest = key.split(".", 2)
        if part == "blocks":
            key = f"blocks.{times * int(rest[0])}.{rest[1]}"
        elif part == "exchanges":
            key = f"exchanges.{times * (int(rest[0]) + 1) - 1}.{rest[1]}"
        deeper[key] = value
    return deeper


@torch.no_grad()
def initialise_by_xavier(network: nn.Module) -> None:
    """Initialise all convolutions by Xavier's normal distribution, biases by zero (Section 5.4)."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d):
            nn.init.xavier_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


@torch.no_grad()
def initialise_as_upscaler(network: PASSRnet) -> None:
    """Initialise PASSRnet as bilinear interpolation, because it has no skip connection for the image.

    The image travels in the first three feature channels, to which residual branches add nothing.
    """
    colours = range(3)
    itself = {channel: channel for channel in colours}
    _copy_channels(network.init_feature[0], itself)
    for module in network.modules():
        if isinstance(module, ResidualBlock):
            _damp(module.body[2])
        elif isinstance(module, CascadedASPP):
            for group in (1, 2, 3):
                _copy_channels(getattr(module, f"conv1_{group}")[0], itself)
                _copy_channels(getattr(module, f"b_{group}"), itself)
        elif isinstance(module, ResidualASPP):
            for group in (1, 2, 3):
                _damp(getattr(module, f"b_{group}"))
    if "pam" in dict(network.named_children()):  # it uses both views
        width = network.pam.fusion.out_channels
        _copy_channels(network.pam.fusion, {channel: width + channel for channel in colours})

    spread, blend, last = (_convolution(network.upscale[place]) for place in (4, 6, 7))
    places = network.scale**2
    _copy_channels(spread, {channel * places + k: channel for channel in colours for k in range(places)})
    blend.weight.mul_(DAMPING)
    last.weight.zero_()
    for channel in colours:
        blend.weight[channel, :3] = 0
        for layer, row in zip((blend, last), SMOOTHING[network.scale], strict=True):
            window = torch.tensor(row) / sum(row)
            layer.weight[channel, channel] = torch.outer(window, window)


@torch.no_grad()
def initialise_as_upsampling(refine: Refinement) -> None:
    """Initialise a refinement to estimate the bilinearly upsampled initial disparity.

    The disparity travels in the first channel. This holds while batch norm is frozen.
    """
    for coder in (refine.E0, refine.D3, refine.D4, refine.D5):
        unit, block = cast("tuple[nn.Sequential, RefinementBlock]", tuple(coder.body))
        first = _convolution(unit[0])
        behind_deeper = first.in_channels - first.out_channels if coder is refine.D3 else 0
        _copy_channels(first, {0: behind_deeper})
        _convolution(block.body[3]).weight[0] = 0
    _copy_channels(refine.disp[0], {0: 0})
    _copy_channels(refine.disp[3], {0: 0})


def _convolution(layer: nn.Module) -> nn.Conv2d:
    assert isinstance(layer, nn.Conv2d)
    return layer


def _copy_channels(module: nn.Module, sources: dict[int, int]) -> None:
    layer = _convolution(module)
    middle = layer.kernel_size[0] // 2
    for output, source in sources.items():
        layer.weight[output] = 0
        layer.weight[output, source, middle, middle] = 1
        if layer.bias is not None:
            layer.bias[output] = 0


def _damp(module: nn.Module) -> None:
    """Damp the last convolution of a residual branch: zero on the image's channels, small elsewhere."""
    layer = _convolution(module)
    layer.weight.mul_(DAMPING)
    layer.weight[:3] = 0
