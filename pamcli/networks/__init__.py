"""The two networks of the paper. Tensors in, tensors out: no files, no devices, no printing."""
