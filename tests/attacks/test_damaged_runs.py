"""Records and checkpoints of a training run with other values in them: the file is named, and what to do.

`pytest tests/attacks/test_damaged_runs.py --seeds 2000` takes so many checkpoints; a failure names its seed.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pamcli.errors import PamError
from pamcli.inference.device import Compute
from pamcli.training.distributed import Processes
from pamcli.training.journal import read_entries
from pamcli.training.recipes import RECIPES, read_made_with, read_recipe, recipe_json
from pamcli.training.trainer import Trainer, newest_checkpoint, save_checkpoint

ODD: list[Any] = [
    *(None, True, 0, -1, 3, 10**18, 0.5, float("nan"), float("inf"), "", "2", "x" * 5000, "\ud800"),
    *("a\n\x1b[2Jb", [], [None], {}, {"": 0}, [1, 2], ["a", "b"]),
]
RECIPE = RECIPES["scenes"]
RECORD = json.loads(recipe_json(RECIPE, {"data": ["0123456789abcdef"], "precision": "fp32", "threads": 1}))


def error_of(act: Callable[[], object]) -> PamError | None:
    """The error of pam's own that ends it, if one does."""
    try:
        act()
    except PamError as error:
        return error
    return None


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything in a value."""
    yield above
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*above, key))


def replaced(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    """Return a copy of a value with another one in a place."""
    if not place:
        return odd
    made = copy.copy(value)
    made[place[0]] = replaced(made[place[0]], place[1:], odd)
    return made


def test_the_recipe_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    for number, place in enumerate(places(RECORD)):
        path.write_text(json.dumps(replaced(RECORD, place, ODD[number % len(ODD)])))
        for read in (read_recipe, read_made_with):
            if error := error_of(lambda read=read: read(path)):  # type: ignore[misc]
                assert (error.exit_code, str(path) in error.message) == (3, True), place


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


def test_checkpoints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = save_checkpoint(tmp_path, trainer().make_checkpoint(), keep=1)
    whole = torch.load(path, weights_only=True)
    noticed, values = 0, [*ODD, *map(torch.zeros, ((2,), (3, 5), (0,), (4, 3, 1, 1)))]
    for seed in range(request.config.getoption("--seeds")):
        draw = random.Random(seed)
        torch.save(replaced(whole, draw.choice([*places(whole)][1:]), draw.choice(values)), path)
        found, wrong = newest_checkpoint(tmp_path)
        if found is None:
            assert wrong == [path]
            noticed += 1
            continue
        if error := error_of(lambda found=found: trainer().restore(found)):  # type: ignore[misc]
            assert (error.exit_code, path.name in error.message) == (4, True), seed
            noticed += 1
    assert noticed
