"""Take training steps: loss, optimizer, moving average; save and load their state for runs to resume."""

import copy
import io
import math
import os
import pickle
import re
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pydantic
import torch
from pydantic import ConfigDict
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from pamcli.convolutions import make_faster
from pamcli.data.source import format_size
from pamcli.errors import ModelError, OutputError, UsageError
from pamcli.files.atomic import report_write_errors, write_atomically
from pamcli.inference.device import Compute, catch_memory_errors
from pamcli.losses.total import matching_terms, superres_terms, total_loss
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.training.distributed import Loss, Processes
from pamcli.training.examples import StepBatch
from pamcli.training.muon import Muon
from pamcli.training.recipe import Recipe, learning_rate

FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})\.pt")
_DAMAGE = (RuntimeError, ValueError, LookupError, AttributeError, TypeError, NotImplementedError)


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class Checkpoint:
    """The state of a run after `step` steps; values of other types raise ValidationError, a ValueError."""

    step: int
    network: dict[str, Tensor]
    average: dict[str, Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]  # state of the gradient scaler; empty unless in fp16
    random: dict[str, Tensor]  # states of torch's random generators, by kind of device
    pairs: int = 0  # number of pairs processed so far


class Trainer:
    """A network in training, on the device of its tensors."""

    def __init__(
        self,
        recipe: Recipe,
        steps: int,
        network: nn.Module,
        loss: Loss,
        compute: Compute,
        processes: Processes,
    ) -> None:
        self.recipe, self.steps, self.network, self.loss = recipe, steps, network, loss
        self.compute, self.processes = compute, processes
        if compute.device.type == "cpu":
            make_faster(network)
        self.step, self.pairs, self.rate = 0, 0, 0.0
        self.optimizer = make_optimizer(recipe, network)
        mean_from = math.inf if recipe.average_from is None else recipe.average_from * steps
        self.average = None if recipe.ema is None else make_average(network, recipe.ema, mean_from)
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision == "fp16")

    @property
    def result_weights(self) -> dict[str, Tensor]:
        return (self.network if self.average is None else self.average.module).state_dict()

    def take_step(self, batch: StepBatch) -> tuple[dict[str, Tensor], Tensor]:
        """Take one step; return this process's shares of the terms and the gradient norm, on the device."""
        set_training_mode(self.recipe, self.network, self.step / self.steps)
        self.rate = learning_rate(self.recipe.schedule, self.recipe.learning_rate, self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * group["factor"]
        # Use full float32 also in the backward pass, which runs outside of `autocast`.
        exact = self.compute.full_precision() if self.compute.precision == "fp32" else nullcontext()
        figures: dict[str, Tensor] = {}
        height, width = batch.left.shape[-2:]
        problem = f"a batch of {len(batch.left)} pairs of {width}x{height} does not fit into memory"
        with catch_memory_errors(problem, "use a smaller `batch` or `crop`"), exact:
            self.optimizer.zero_grad(set_to_none=True)
            for part in batch.parts(self.recipe.accumulate, self.compute.device):
                share, values = self.loss(part)
                if not share.requires_grad:
                    raise UsageError(f"no loss term depends on {self.recipe.only}, the only trained part")
                counts = len(part.left) / len(batch.left)
                self.scaler.scale(share * counts).backward()  # type: ignore[no-untyped-call]
                for name, value in values.items():
                    figures[name] = figures.get(name, 0) + value * counts
            self.scaler.unscale_(self.optimizer)
            largest = math.inf if self.recipe.clip is None else self.recipe.clip
            norm = nn.utils.clip_grad_norm_(self.network.parameters(), largest)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.step += 1
        self.pairs += len(batch.left) * self.processes.world
        if self.average is not None:
            self.average.update_parameters(self.network)
        return figures, norm

    def make_checkpoint(self) -> Checkpoint:
        """Return the complete state for `restore`."""
        weights = dict(self.network.state_dict()), dict(self.result_weights)
        random = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            random["cuda"] = torch.cuda.get_rng_state()
        states = self.optimizer.state_dict(), self.scaler.state_dict(), random
        return Checkpoint(self.step, *weights, *states, self.pairs)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint of the same recipe; raise ModelError if it is damaged or does not fit."""
        try:
            self.network.load_state_dict(checkpoint.network)
            if self.average is not None:
                self.average.module.load_state_dict(checkpoint.average)
                self.average.n_averaged.fill_(checkpoint.step + 1)
            self.optimizer.load_state_dict(checkpoint.optimizer)
            for parameter, moments in self.optimizer.state.items():
                for moment in moments.values():
                    moment.expand_as(parameter)  # raises for wrong shapes; step counts pass
            muon = self.recipe.optimizer == "muon"
            if any(group["muon"] != muon for group in self.optimizer.param_groups):
                raise KeyError("the moments belong to another optimizer")
            if checkpoint.scaler and self.scaler.is_enabled():
                self.scaler.load_state_dict(checkpoint.scaler)
            torch.set_rng_state(checkpoint.random["cpu"])
            if "cuda" in checkpoint.random and torch.cuda.is_available():
                torch.cuda.set_rng_state(checkpoint.random["cuda"])
        except _DAMAGE as error:
            name = f"step-{checkpoint.step:08d}.pt"
            problem = f"the checkpoint {name} is damaged, or belongs to another network or recipe"
            hint = "restore the recipe, or remove the checkpoint to continue from the one before it"
            raise ModelError(problem, hint) from error
        self.step, self.pairs = checkpoint.step, checkpoint.pairs


def compute_loss(
    recipe: Recipe, compute: Compute, processes: Processes, network: nn.Module, batch: StepBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return this process's share of the loss of a batch on its device, and of its terms."""
    left, right = batch.left, batch.right
    assert batch.truth is not None
    if recipe.task == "superres":
        assert batch.left_high is not None
        # Channels last, like the weights: a step takes half to three quarters of the time on a CPU.
        views = [view.contiguous(memory_format=torch.channels_last) for view in (left, right)]
        with compute.autocast():
            result = network(*views, both=recipe.views == "both")
        images = left, right, batch.left_high, batch.right_high
        terms = superres_terms(result, *images, recipe.losses, batch.truth)
    else:
        if recipe.row.normalised:
            left, right = normalise(left), normalise(right)
        with compute.autocast():
            matching = network(left, right, recipe.max_disparity, all_stages=True)
        terms = matching_terms(matching, left, right, recipe.losses, batch.truth)
    return total_loss(terms, processes.sum_counts)


def normalise(view: Tensor) -> Tensor:
    """Normalise (B, 3, H, W) in [0, 1] for matching networks."""
    # Computed on the device: copying a table there would delay every step.
    channels = []
    for channel, mean, std in zip(view.unbind(1), IMAGE_MEAN, IMAGE_STD, strict=True):
        channels.append((channel - mean) / std)
    return torch.stack(channels, 1)


def make_optimizer(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """Create the optimizer of all trained parameters, grouped by learning-rate factor."""
    groups: dict[float, dict[str, Any]] = {}
    for key, parameter in network.named_parameters():
        if parameter.requires_grad:
            factor = recipe.get_rate(key)
            group = {"params": [], "factor": factor, "muon": recipe.optimizer == "muon"}
            groups.setdefault(factor, group)["params"].append(parameter)
    kinds: dict[str, type[torch.optim.Adam]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "muon": Muon,
    }
    return kinds[recipe.optimizer](
        groups.values(), recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay
    )


def set_training_mode(recipe: Recipe, network: nn.Module, done: float = 0.0) -> None:
    """Set training mode, except frozen batch norm; `done` is the completed fraction of the run."""
    network.train()
    frozen = recipe.freeze_batch_norm or done >= recipe.freeze_from
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.SyncBatchNorm):
            module.momentum = recipe.batch_norm_momentum
            if frozen or not module.weight.requires_grad:
                module.eval()


def check_batch_norm(recipe: Recipe, network: nn.Module, processes: Processes, device: torch.device) -> None:
    """Raise UsageError if batch norm would get one value per channel, from which it cannot learn."""
    smallest = recipe.row.multiple, recipe.row.multiple  # at least one pixel remains of this at any depth
    batch = recipe.count_pairs(recipe.batch // processes.world, smallest)
    joined = processes.world if device.type == "cuda" else 1  # processes whose pairs count as one batch
    together = joined * (batch // min(recipe.accumulate, batch))
    is_smallest = recipe.crop == smallest
    for size in recipe.sizes:
        is_smallest |= size.crop == smallest and max(size.shares) > 0
    if recipe.task == "superres" or not is_smallest or together > 1:
        return
    tried = copy.deepcopy(network)  # its running statistics change
    set_training_mode(recipe, tried)
    view = torch.zeros(1, 3, *smallest, device=device)
    try:
        with torch.no_grad():
            tried(view, view, recipe.max_disparity, all_stages=True)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        problem = f"{recipe.row.name} cannot learn from one pair of {format_size(smallest)} px at a time"
        hint = "batch norm needs more values: use a larger `crop` or `batch`"
        raise UsageError(problem, hint) from error


def make_average(network: nn.Module, decay: float, mean_from: float = math.inf) -> AveragedModel:
    """Return a moving average of all tensors, with a decay per step of min(decay, (1 + n) / (10 + n)).

    From the step `mean_from` on, all steps weigh the same, and the average so far as much as
    1 / (1 - decay) steps. Counters are copied.
    """

    def mix(averages: Sequence[Tensor], lives: Sequence[Tensor], steps: Tensor | int) -> None:
        count = int(steps)  # once per step, because a GPU must synchronise
        kept = min(decay, (1 + count) / (10 + count))
        if count > mean_from:
            kept = 1 - 1 / (count - mean_from + 1 / (1 - decay))
        for average, live in zip(averages, lives, strict=True):
            if average.is_floating_point():
                average.lerp_(live, 1 - kept)
            else:
                average.copy_(live)

    model = AveragedModel(network, multi_avg_fn=mix, use_buffers=True)
    model.n_averaged.fill_(1)  # the initial weights count as the first step
    return model


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`; a kill at any time leaves an intact one."""
    path, buffer = folder / f"step-{checkpoint.step:08d}.pt", io.BytesIO()
    torch.save({"format": FORMAT, **vars(checkpoint)}, buffer)
    write_atomically(path, buffer.getvalue())
    with report_write_errors(path):  # wait until the file and its name are safe from a power failure
        with path.open("rb") as file:
            os.fsync(file.fileno())
        with suppress(OSError):  # some systems cannot open folders
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    remove_older(folder, checkpoint.step, keep=keep)
    return path


def remove_older(folder: Path, step: int, *, keep: int) -> None:
    """Remove all checkpoints before `step` except the newest `keep` - 1; raise OutputError on failure."""
    for other, file in reversed(list_checkpoints(folder)):
        if other >= step:
            continue
        keep -= 1
        if keep > 0:
            continue
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"cannot remove {file}: {error.strerror or error}") from error


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return steps and files, oldest first; empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    found = []
    for file in folder.iterdir():
        if match := _NAME.fullmatch(file.name):
            found.append((int(match[1]), file))
    return sorted(found)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[Path]]:
    """Load the newest intact checkpoint on the CPU; also return the newer, damaged files."""
    damaged: list[Path] = []
    for step, path in reversed(list_checkpoints(folder)):
        checkpoint = read_checkpoint(path)
        if checkpoint is not None and checkpoint.step == step:
            return checkpoint, damaged
        damaged.append(path)
    return None, damaged


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Load a checkpoint on the CPU; return None if the file is damaged."""
    try:
        # torch ignores the checksums that the archive has for each of its parts.
        with zipfile.ZipFile(path) as archive:
            # A flipped bit can mark a part as a folder; torch then reads uninitialised memory.
            if archive.testzip() is not None or any(part.external_attr for part in archive.infolist()):
                return None
        content = torch.load(path, map_location="cpu", weights_only=True)
        return Checkpoint(**content) if content.pop("format") == FORMAT else None
    except (zipfile.BadZipFile, pickle.UnpicklingError, OSError, EOFError, *_DAMAGE):
        return None
