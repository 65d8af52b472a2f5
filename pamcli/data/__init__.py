"""Read stereo data sets in their publishers' layout, one sample at a time."""
