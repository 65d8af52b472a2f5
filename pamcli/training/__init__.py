"""Train networks: recipes, examples, steps and checkpoints; `pamcli.losses` computes the losses.

| topic | module |
| --- | --- |
| start or resume a run; from Python | `run`; `train` |
| the values that define it; named recipes | `recipe`; `recipes`, `recipes.toml` |
| the initial network | `initialisation` |
| the loop; one step: loss, optimizer, average | `loop`; `trainer`: `Trainer.take_step`; `muon` |
| the example at a position | `examples`: `Examples.at`; `augmentation` |
| occluders, synthesized right views, faults of cameras | `view_synthesis`, `camera_faults` |
| pseudo-labels for pairs without ground truth | `labels`; within a training run: `unlabelled_pairs` |
| validation of the averaged weights | `validation` |
| run folder and log; checkpoints | `journal`; `trainer` |
| several processes; convolutions on CPUs | `distributed`; `convolutions.make_faster` |
"""
