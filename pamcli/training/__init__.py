"""Train networks: recipes, examples, steps and checkpoints; `pamcli.losses` computes the losses.

| topic | module |
| --- | --- |
| assembly of a run | `run` |
| the values that define it; named recipes | `recipe`; `recipes`, `recipes.toml` |
| the initial network | `initialisation` |
| one step; loss, average and optimizer | `loop`: `Trainer.take_step`; `tasks`, `muon` |
| the example at a position | `examples`: `Examples.at`; `scene_cache`, `crops`, `augmentation` |
| occluder augmentation, synthesized right views | `occluders`, `view_synthesis` |
| pseudo-labels for pairs without ground truth | `labels`; within a training run: `unlabelled_pairs` |
| validation of the averaged weights | `validation` |
| run folder, log and checkpoints | `journal`, `checkpoints` |
| several processes; convolutions on CPUs | `distributed`; `convolutions` |
"""
