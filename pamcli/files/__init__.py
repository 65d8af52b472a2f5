"""File names and files: pairing by name, planning results, safe reading and atomic writing.

Pairing and planning need only the standard library, so a mistyped command is answered at once.
"""
