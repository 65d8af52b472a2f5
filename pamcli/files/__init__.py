"""Names of files: which pictures belong together, where results go, and writing them whole.

Standard library only, so that a mistyped command is answered at once.
"""
