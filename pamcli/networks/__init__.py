"""Define the networks, one module each for training, inference and export, without input or output.

"Parallax Attention for Unsupervised Stereo Correspondence Learning" (TPAMI 2020) and its implementation:

| paper | part | module |
| --- | --- | --- |
| Section 3.1 | matching cost, attention along the row | `parallax.matching_cost`, `parallax.attention` |
| 3.2, Equation 1 | left-right consistency: warp one view to the other, M (x) I | `parallax.gather_features` |
| Equations 2, 3 | cycle attention, and confidence by it | `parallax.cycle_map`, `cycle_confidence` |
| Section 3.3, Equation 4 | valid mask | `parallax.received_mass`, `valid_mask`, `clean_mask` |
| (not the paper's) | visibility: the disparities of both views agree | `parallax.find_consistent` |
| Section 4.1, Figure 7 | PASMnet | `pasmnet.PASMnet` |
| Figure 7a | hourglass of features | `pasmnet.Hourglass`, blocks in `blocks` |
| Equations 5 to 7, Figures 7b, 8 | cascade of costs | `pasmnet.Stage`, `CascadedParallaxAttention` |
| Figure 7c, Equation 8 | output module | `parallax.parallax_maps`, `regress_disparity`, `fill_occlusions` |
| Equation 9 | refinement | `pasmnet.Refinement`, `pasmnet.blend_estimates` |
| (not the paper's) | PASMnet 2: attention of both directions | `pasmnet2.PASMnet2`, `symmetric_attention` |
| Section 5.1, Figure 13 | PASSRnet | `passrnet.PASSRnet`, `ResidualASPP`, `ParallaxAttention` |
| Tables 1, 2, 4, 10, 11 | parts of the ablation studies | `variants` |
| (not the paper's) | PASSRnet 2: attention between gated blocks | `passrnet2.PASSRnet2`, `subpixel` |
| (not the paper's) | results consistent with bicubic downscaling | `bicubic.Consistency` |

Other parts of the paper, in `pamcli/`:

| paper | part | module |
| --- | --- | --- |
| Sections 4.2, 5.2, Equations 10 to 18 | losses | `losses/` |
| Sections 4.3.2, 5.4.2 | rates, crops, start | `training/recipes.toml`, `training/initialisation.py` |
| Section 4.3.1, Table 8 | end-point error, >t px, D1 | `evaluation/disparity_metrics.py` |
| Section 4.3.4, Tables 6, 7 | studies of resolution and disparity range | `evaluation/disparity_tables.py` |
| Section 5.3.1 | a stereogram to a rectified pair | `flickr1024/rectify_stereogram.py` |
| Section 5.4.2 | training patches | `flickr1024/stores.py` |
| Section 5.4.2 | PSNR, SSIM | `evaluation/superres_metrics.py` |
| (not the paper's) | running the networks on a device, in bands of rows | `inference/` |
"""
