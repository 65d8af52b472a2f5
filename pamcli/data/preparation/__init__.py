"""Training patches for super-resolution: from published pairs, zipped or not, or from stereograms."""
