"""Compute the training losses: the paper's terms, supervised terms, their sum and its weights.

| equation (section) | what | function |
| --- | --- | --- |
| 10 (4.2.1) | L_p, photometric | `unsupervised.photometric_loss` |
| 11 (4.2.2) | L_s, edge-aware smoothness | `unsupervised.smoothness_loss` |
| 12 (4.2.3) | L_PAM of a scale | `total._pam_terms` |
| 13 (4.2.3) | L_PAM-p | `unsupervised.attention_photometric` |
| 14 (4.2.3) | L_PAM-s | `unsupervised.attention_smoothness` |
| 15 (4.2.3) | L_PAM-c | `unsupervised.attention_cycle` |
| 16 (4.2.3) | L_unsup, PASMnet's sum | `total._unsupervised_matching` |
| 17 (5.2) | L_SR | `unsupervised.squared_error_loss` |
| 18 (5.2) | L, PASSRnet's sum | `total.superres_terms` |
| none | supervised by ground truth | `supervised` |
| the lambdas (4.3.2, 5.2) | weights of all terms | `weights.LossWeights` |
"""
