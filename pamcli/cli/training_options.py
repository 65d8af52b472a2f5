"""Options of pam train, for both networks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="NAME[/SPLIT]:PATH[?key=value&...]",
        help="What to learn from: a data set of `pam dataset list`; several are mixed, ?weight= says how.",
    ),
]
Validation = Annotated[
    list[str] | None,
    typer.Option("--val", metavar="DATA", help="What to measure on; the best weights are kept as best."),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe", metavar="NAME|FILE.json", help="Of this pam, or of a run folder. Options change it."
    ),
]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="How many batches to learn from.")]
Epochs = Annotated[float | None, typer.Option("--epochs", help="The same, in passes over the data.")]
Batch = Annotated[
    int | None, typer.Option("--batch", min=1, help="Pairs in a step, over all processes of torchrun.")
]
Crop = Annotated[
    str | None,
    typer.Option("--crop", metavar="WxH", help="Of the pictures that the network is given, pixels."),
]
LearningRate = Annotated[float | None, typer.Option("--learning-rate", help="The highest of the schedule.")]
Average = Annotated[
    float | None,
    typer.Option(
        "--ema", metavar="DECAY", help="Of the average of weights, which is kept; 0.99 for short runs."
    ),
]
From = Annotated[
    str | None, typer.Option("--from", metavar="WEIGHTS", help="Weights to begin with, as of --weights.")
]
Only = Annotated[
    str | None,
    typer.Option("--only", metavar="PART", help="Let one part of the network learn, as refine or pam."),
]
Anew = Annotated[
    str | None,
    typer.Option("--anew", metavar="PART", help="Begin a part with fresh weights in spite of --from."),
]
FreezeBatchNorm = Annotated[
    bool | None,
    typer.Option("--freeze-batch-norm", help="Normalise by the statistics that the weights came with."),
]
Loss = Annotated[
    list[str] | None,
    typer.Option("--loss", metavar="NAME=WEIGHT", help="Weigh a term of the loss; 0 switches it off."),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Of the fresh weights and of the examples.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=0, help="Processes that prepare examples (0: none of their own)."),
]
Precision = Annotated[
    Literal["auto", "fp32", "bf16", "fp16"] | None,
    typer.Option("--precision", help="auto: the fastest that the processor has."),
]
MaxMinutes = Annotated[
    float | None, typer.Option("--max-minutes", help="Then stop cleanly; --resume goes on.")
]
ValidateEvery = Annotated[int | None, typer.Option("--validate-every", min=1, metavar="STEPS")]
CheckpointEvery = Annotated[int | None, typer.Option("--checkpoint-every", min=1, metavar="STEPS")]
Keep = Annotated[int | None, typer.Option("--keep", min=1, help="Checkpoints that stay.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="RUN", help="The new run's folder.")]
Resume = Annotated[
    Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
]
Json = Annotated[bool, typer.Option("--json", help="Every line of the log on stdout, as JSON.")]
