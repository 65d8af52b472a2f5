"""Read JSON that pam wrote, checked by declared types like any other input.

A type is a pydantic dataclass, or a list of what it has fields of; a text is not accepted for a number.
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


def _check_text(text: str) -> str:
    text.encode("utf-8", "surrogateescape")  # names are bytes, not necessarily UTF-8
    if len(text) > 4096 or "\0" in text:
        raise ValueError("a path has at most 4096 characters, and none of them is NUL")
    return text


Text = Annotated[str, Strict(), AfterValidator(_check_text)]
Whole = Annotated[int, Field(strict=True, ge=0, le=10**15)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


def load_json(kind: type[Kind], path: Path, hint: str) -> Kind:
    """Read a JSON file as a value of type `kind`. Raises InputError with the first error and the hint."""
    return check_json(kind, read_json(path, hint), path, hint)


def read_json(path: Path, hint: str) -> Any:
    """Read a JSON file of any content. Raises InputError with the hint if it is unreadable or not JSON."""
    try:
        text = read_text(path)
    except InputError as error:
        raise InputError(error.message, hint) from None
    return parse_stored_json(text, path, hint)


def parse_stored_json(text: str, path: Path | str, hint: str) -> Any:
    """Parse the text of the JSON file `path`. Raises InputError with the hint if it is damaged."""
    try:
        return parse_json(text)
    except ValueError:
        raise InputError(f"{quote(path)} is damaged: it is not valid JSON", hint) from None


def check_json(kind: type[Kind], value: Any, path: Path | str, hint: str) -> Kind:
    """Convert a value of the JSON file `path` to type `kind`. Raises InputError with the hint."""
    type_: Any = kind
    try:
        found: Kind = _make_adapter(type_).validate_python(value)
        return found
    except ValidationError as error:
        raise InputError(f"{quote(path)} is damaged: {describe_first_error(error, kind)}", hint) from None


@lru_cache
def _make_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
