"""Declare the options of every command, once, with default, range, unit and help text."""
