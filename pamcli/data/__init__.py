"""Stereo data sets as their publishers ship them, read one sample at a time."""
