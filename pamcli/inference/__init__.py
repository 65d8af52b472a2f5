"""Arrays in, arrays out: the networks as a program uses them."""
