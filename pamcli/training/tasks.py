"""Define the tasks in training: loss of a batch, moving average, and description in the weights file."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from pamcli.inference.device import Compute
from pamcli.losses.total import Terms, matching_terms, superres_terms, total_loss
from pamcli.registry.architectures import ARCHITECTURES, IMAGE_MEAN, IMAGE_STD
from pamcli.registry.spec import ModelSpec
from pamcli.training.distributed import Loss, Processes
from pamcli.training.examples import StepBatch
from pamcli.training.muon import Muon
from pamcli.training.recipe import Recipe


def loss_function(recipe: Recipe, compute: Compute, processes: Processes) -> Loss:
    """Return the loss of a network and a `StepBatch` on its device: this process's share, and its terms."""

    def loss(network: nn.Module, batch: StepBatch) -> tuple[Tensor, dict[str, Tensor]]:
        terms = _superres(network, batch) if recipe.task == "superres" else _disparity(network, batch)
        return total_loss(terms, processes.sum_counts)

    def _disparity(network: nn.Module, batch: StepBatch) -> Terms:
        left, right = batch.left, batch.right
        if ARCHITECTURES[recipe.architecture].normalised:
            left, right = normalise(left), normalise(right)
        with compute.autocast():
            matching = network(left, right, recipe.max_disparity, all_stages=True)
        assert batch.truth is not None
        return matching_terms(matching, left, right, recipe.losses, batch.truth)

    def _superres(network: nn.Module, batch: StepBatch) -> Terms:
        assert batch.left_high is not None
        assert batch.truth is not None
        # Channels last, like the weights: a step takes half to three quarters of the time on a CPU.
        views = [view.contiguous(memory_format=torch.channels_last) for view in (batch.left, batch.right)]
        with compute.autocast():
            result = network(*views, both=recipe.views == "both")
        images = batch.left, batch.right, batch.left_high, batch.right_high
        return superres_terms(result, *images, recipe.losses, batch.truth)

    return loss


def normalise(view: Tensor) -> Tensor:
    """Normalise (B, 3, H, W) in [0, 1] for matching networks."""
    # Computed on the device: copying a table there would delay every step.
    channels = zip(view.unbind(1), IMAGE_MEAN, IMAGE_STD, strict=True)
    return torch.stack([(channel - mean) / std for channel, mean, std in channels], 1)


def make_optimizer(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """Create the optimizer of all trained parameters, grouped by learning-rate factor."""
    groups: dict[float, list[nn.Parameter]] = {}
    for key, parameter in network.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(recipe.get_rate(key), []).append(parameter)
    kinds: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    muon = recipe.optimizer == "muon"
    parts = [{"params": each, "factor": factor, "muon": muon} for factor, each in groups.items()]
    kind = Muon if muon else kinds[recipe.optimizer]
    return kind(parts, recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay)


def set_training_mode(recipe: Recipe, network: nn.Module, done: float = 0.0) -> None:
    """Set training mode, except frozen batch norm; `done` is the completed fraction of the run."""
    network.train()
    frozen = recipe.freeze_batch_norm or done >= recipe.freeze_from
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = recipe.batch_norm_momentum
            if frozen or not module.weight.requires_grad:
                module.eval()


def model_spec(recipe: Recipe, training: str) -> ModelSpec:
    """Return the description for a run's weights file. `training`: a sentence on data and accuracy."""
    return ModelSpec(
        recipe.architecture,
        variant=str(recipe.form),
        scale=recipe.scale,
        max_disparity=recipe.max_disparity,
        training=training,
    )


def make_average(
    network: nn.Module, decay: float | None, remembers_from: float = math.inf
) -> AveragedModel | None:
    """Return a moving average of all tensors, with a decay per step of min(decay, (1 + n) / (10 + n)).

    From the step `remembers_from` on, all steps weigh the same, and the average so far as much as
    1 / (1 - decay) steps. Counters are copied.
    """
    if decay is None:
        return None

    def mix(averages: Sequence[Tensor], lives: Sequence[Tensor], steps: Tensor | int) -> None:
        count = int(steps)  # once per step, because a GPU must synchronise
        kept = min(decay, (1 + count) / (10 + count))
        if count > remembers_from:
            kept = 1 - 1 / (count - remembers_from + 1 / (1 - decay))
        for average, live in zip(averages, lives, strict=True):
            if average.is_floating_point():
                average.lerp_(live, 1 - kept)
            else:
                average.copy_(live)

    model = AveragedModel(network, multi_avg_fn=mix, use_buffers=True)
    resume_average(model, 0)
    return model


def resume_average(average: AveragedModel, steps: int) -> None:
    """Set the number of steps in the average; the next update is number `steps` + 1."""
    average.n_averaged.fill_(steps + 1)
