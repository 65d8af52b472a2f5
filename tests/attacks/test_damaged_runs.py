"""Records and checkpoints of a training run with other values in them: the file is named, and what to do.

`pytest tests/attacks/test_damaged_runs.py --seeds 2000` takes so many seeds a file; a failure names it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from damage import ODD, damaged, places
from torch import nn

from pamcli.errors import PamError
from pamcli.inference.device import Compute
from pamcli.training.checkpoints import newest_checkpoint, save_checkpoint
from pamcli.training.distributed import Processes
from pamcli.training.journal import read_entries
from pamcli.training.recipes import RECIPES, read_made_with, read_recipe, recipe_json
from pamcli.training.trainer import Trainer

RECIPE = RECIPES["scenes"]
RECORD = json.loads(recipe_json(RECIPE, {"data": ["0123456789abcdef"], "precision": "fp32", "threads": 1}))


def error_of(act: Callable[[], object]) -> PamError | None:
    """The error of pam's own that ends it, if one does."""
    try:
        act()
    except PamError as error:
        return error
    return None


def test_the_recipe_of_a_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "recipe.json"
    for seed in range(10 * request.config.getoption("--seeds")):
        path.write_text(json.dumps(damaged(RECORD, seed)))
        for read in (read_recipe, read_made_with):
            if error := error_of(lambda read=read: read(path)):  # type: ignore[misc]
                assert (error.exit_code, str(path) in error.message) == (3, True), seed


LOG = [
    {"step": 1, "loss": 0.5, "losses": {"refined": 0.5}, "time": "2026-01-01"},
    {"step": 2, "figure": 7.5, "validation": {"a": {"D1": 7.5}}},
]


def test_the_log_of_a_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    log = tmp_path / "log.jsonl"
    for seed in range(10 * request.config.getoption("--seeds")):
        lines = [json.dumps(entry) for entry in LOG]
        number = seed % 2
        lines[number] = json.dumps(damaged(LOG[number], seed))
        log.write_text("\n".join(lines) + "\n")
        if error := error_of(
            lambda: [entry["step"] + (entry.get("figure") or 0) for entry in read_entries(log)]
        ):
            assert (error.exit_code, f"line {number + 1} of {log}" in error.message) == (3, True), seed


@pytest.mark.parametrize(
    "line", ["", "{", "null", "[1]", '{"step": "2"}', '{"loss": 1}', '{"step": 2, "figure": "good"}']
)
def test_a_damaged_line_of_a_log_is_named_unless_it_is_the_last_and_has_no_end(
    tmp_path: Path, line: str
) -> None:
    log, good = tmp_path / "log.jsonl", '{"step": 1}\n'
    log.write_text(good + line)
    assert read_entries(log) == [{"step": 1}]
    log.write_text(good + line + "\n" + good)
    with pytest.raises(
        PamError, match=r"line 2 of .*log\.jsonl is damaged: .* \(remove the line\)"
    ) as caught:
        read_entries(log)
    assert caught.value.exit_code == 3


def trainer() -> Trainer:
    torch.manual_seed(5)
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    compute = Compute(torch.device("cpu"), "fp32")

    def loss(batch: Any) -> Any:
        raise AssertionError

    made = Trainer(RECIPE, 10, network, loss, compute, Processes())
    network(torch.rand(2, 3, 4, 4)).square().mean().backward()
    made.optimizer.step()
    return made


def odd_tensors(state: dict[str, Any], seed: int) -> dict[str, Any]:
    """A checkpoint with something of another kind or shape in it."""
    draw = random.Random(seed)
    root = dict(state)
    *way, last = draw.choice([place for place in places(root) if place])
    holder: Any = root
    for key in way:
        holder[key] = copy.copy(holder[key])
        holder = holder[key]
    shapes = ((2,), (3, 5), (0,), (4, 3, 1, 1))
    holder[last] = copy.deepcopy(draw.choice([*ODD, *map(torch.zeros, shapes)]))
    return root


def test_checkpoints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = save_checkpoint(tmp_path, trainer().make_checkpoint(), keep=1)
    whole = torch.load(path, weights_only=True)
    noticed = 0
    for seed in range(request.config.getoption("--seeds")):
        torch.save(odd_tensors(whole, seed), path)
        found, wrong = newest_checkpoint(tmp_path)
        if found is None:
            assert wrong == [path]
            noticed += 1
            continue
        if error := error_of(lambda found=found: trainer().restore(found)):  # type: ignore[misc]
            assert (error.exit_code, path.name in error.message) == (4, True), seed
            noticed += 1
    assert noticed
