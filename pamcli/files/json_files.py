"""What pam wrote and reads again: JSON, checked by declared types as anything is that comes from outside.

A type is a pydantic dataclass, or a list of what it has fields of; a text is not taken for a number.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, Strict, TypeAdapter, ValidationError

from pamcli.errors import InputError
from pamcli.files.paths import quote
from pamcli.files.safe_reading import parse_json, read_text
from pamcli.validation import describe_first_error

Kind = TypeVar("Kind")


def _of_a_file(text: str) -> str:
    text.encode("utf-8", "surrogateescape")  # names need not be UTF-8, but be of bytes
    if len(text) > 4096:
        raise ValueError("it is longer than a path can be")
    if "\0" in text:
        raise ValueError("it holds a NUL character")
    return text


Text = Annotated[str, Strict(), AfterValidator(_of_a_file)]
Whole = Annotated[int, Field(strict=True, ge=0, le=10**15)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


def load_json(kind: type[Kind], path: Path, hint: str) -> Kind:
    """Read a JSON file as a value of a type.

    hint: what to do where it is damaged. Raises InputError naming the file and the first thing that is wrong:
    unreadable, no JSON, a value that is missing, of another type or out of its range.
    """
    return check_json(kind, read_json(path, hint), path, hint)


def read_json(path: Path, hint: str) -> Any:
    """Whatever a JSON file holds. Raises InputError naming it: unreadable, no JSON; hint: what to do then."""
    try:
        text = read_text(path)
    except InputError as error:
        raise InputError(error.message, hint) from None
    return parse_stored_json(text, path, hint)


def parse_stored_json(text: str, path: Path | str, hint: str) -> Any:
    """Whatever a JSON text says. path, hint: as of `load_json`. Raises InputError."""
    try:
        return parse_json(text)
    except ValueError:
        raise InputError(f"{quote(path)} is damaged: it is no JSON", hint) from None


def check_json(kind: type[Kind], value: Any, path: Path | str, hint: str) -> Kind:
    """A value out of JSON as one of a type. path, hint: as of `load_json`. Raises InputError."""
    type_: Any = kind
    try:
        found: Kind = _adapter(type_).validate_python(value)
        return found
    except ValidationError as error:
        raise InputError(f"{quote(path)} is damaged: {describe_first_error(error, kind)}", hint) from None


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
