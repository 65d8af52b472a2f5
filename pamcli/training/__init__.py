"""Training: recipes, examples, steps and checkpoints; what is minimised stands in `pamcli.losses`.

| to find | open |
| --- | --- |
| a run, put together | `run` |
| what decides about it, as plain values; those that have names | `recipe`; `recipes`, `recipes.toml` |
| the network that it begins with | `starting` |
| one step; loss, average and optimizer | `loop`: `Trainer.take_step`; `tasks`, `muon` |
| the example at a position | `examples`: `Examples.at`; `kept_scenes`, `crops`, `augmentation` |
| things put before real pairs, views drawn anew | `inserting`, `redrawing` |
| labels for pairs without a truth | `labels`; in a run of its own: `own_pairs` |
| figures of kept weights on the way | `validation` |
| the run's folder, its log, what a stopped run goes on from | `journal`, `checkpoints` |
| several processes; convolutions of a processor | `distributed`; `convolutions` |
"""
