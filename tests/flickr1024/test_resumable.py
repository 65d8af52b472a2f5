"""Tests of resuming: work is continued only if the request is the same."""

from __future__ import annotations

from typing import Any

import pytest

from pamcli.flickr1024.resumable import Request, describe_difference

ASKED = Request({"scale": 2, "split": "train"}, [["a", 9, 8], ["b", 9, 8]])


@pytest.mark.parametrize(
    ("options", "pictures", "said"),
    [
        ({"scale": 2, "split": "train"}, [["a", 9, 8], ["b", 9, 8]], ""),
        ({"scale": 4, "split": "train"}, [["a", 9, 8], ["b", 9, 8]], "another scale: 4, now 2"),
        ({"split": "train"}, [["a", 9, 8], ["b", 9, 8]], "another scale: None, now 2"),
        ({"scale": 2, "split": "train", "x": 1}, [["a", 9, 8], ["b", 9, 8]], "another x: 1, now None"),
        ({"scale": 2, "split": "train"}, [["a", 9, 8]], "other images: 1, now 2"),
        ({"scale": 2, "split": "train"}, [["a", 9, 8], ["b", 9, 7]], "other images: 2, now 2 of other names"),
        ({"scale": 2, "split": "x\n\x1b[2J"}, [], "another split: 'x\\n\\x1b[2J', now train"),
    ],
)
def test_a_difference_is_told(options: dict[str, Any], pictures: list[Any], said: str) -> None:
    assert describe_difference(Request(options, pictures), ASKED)[: len(said) or None] == said
