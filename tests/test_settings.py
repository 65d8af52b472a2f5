"""Settings: each option is said once, and what contradicts itself is named."""

from pathlib import Path
from typing import Any

import pytest

import pamcli

COMMANDS = {
    "disparity": (pamcli.match_files, pamcli.MatchSettings),
    "superres": (pamcli.upscale_files, pamcli.UpscaleSettings),
    "rectify": (pamcli.rectify_files, pamcli.RectifySettings),
    "depth": (pamcli.depth_files, pamcli.DepthSettings),
    "live": (pamcli.live, pamcli.LiveSettings),
    "eval disparity": (pamcli.evaluate_disparity, pamcli.EvaluateDisparitySettings),
    "eval superres": (pamcli.evaluate_superres, pamcli.EvaluateSuperresSettings),
    "train disparity": (pamcli.train_disparity, pamcli.TrainDisparitySettings),
    "train superres": (pamcli.train_superres, pamcli.TrainSuperresSettings),
    "dataset prepare-flickr1024": (pamcli.prepare_flickr1024, pamcli.PrepareSettings),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_settings_have_the_options_of_their_command(command: str) -> None:
    from pamcli.cli import app
    from pamcli.settings.options import list_options

    _, settings = COMMANDS[command]
    declared = {name for each in list_options(settings).values() for name in each.names}
    group: Any = app
    for name in command.split():
        group = group.get_command(None, name)
    options = {name for each in group.params if each.opts[0].startswith("-") for name in each.opts}
    about_talking = {"--json", "--jsonl", "--quiet", "-q", "--verbose", "-v"}
    assert declared == options - about_talking


def test_settings_and_keywords_are_the_same_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lefts/one.png", "rights/one.png"):
        Path(name).parent.mkdir()
        Path(name).touch()
    settings = pamcli.MatchSettings(output="o/", color_map="o/", range=(0, 64))
    one = pamcli.match_files("lefts/", "rights/", settings).plan.settings
    other = pamcli.match_files("lefts/", "rights/", output="o/", color_map="o/", range=(0, 64)).plan.settings
    assert one == other
    assert one.inputs == ("lefts/", "rights/")
    with pytest.raises(pamcli.PamError, match="cannot use both MatchSettings and `output`"):
        pamcli.match_files("lefts/", "rights/", settings, output="o/")  # type: ignore[call-arg]
    depth: Any = pamcli.DepthSettings(inputs=["d.pfm"], depth="z.tif", focal=1.0, baseline=1.0)
    with pytest.raises(pamcli.PamError, match="MatchSettings must be given, got DepthSettings"):
        pamcli.match_files("lefts/", "rights/", depth)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"overwrite": True, "skip_existing": True}, "`overwrite` and `skip_existing`"),
        ({"workers": 2, "engine": "ray"}, "`workers` and `engine`"),
        ({"range": (0, 9)}, "`range` requires `color_map`"),
        ({"depth": "z.tif"}, "`depth` requires `calibration` or `focal`"),
        ({"precision": "fp8"}, "unknown `precision` 'fp8'"),
        ({"min_confidence": 1.5}, "`min_confidence` must be from 0 to 1, got 1.5"),
        ({"max_depth": "-2m", "depth": "z.tif"}, "`max_depth` '-2m' is not a length above 0"),
        ({"max_depth": float("nan"), "depth": "z.tif"}, "`max_depth` must be finite, got nan"),
        ({"match_size": "full"}, "`match_size` must be auto, .*, got 'full'"),
        ({"shard": (3, 2)}, r"`shard` must be \(I, N\)"),
        ({"device": "gpu"}, "`device` 'gpu'"),
        ({"output": "d.png", "min_disparity": -9}, "`output` d.png: .* `min_disparity` -9"),
        ({"max_memory": "lots"}, "`max_memory` must be a number and MB, .* got 'lots'"),
        ({"stride": "2"}, "`stride` must be a number, got '2'"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(pamcli.PamError, match=said) as caught:
        pamcli.MatchSettings(**values)
    assert caught.value.exit_code == 2


def test_a_new_option_is_one_field() -> None:
    from pamcli.cli.groups import make_command
    from pamcli.settings.options import option, takes

    class Extended(pamcli.MatchSettings):
        blur: float | None = option("Blur both images first, px.", metavar="PX", min=0, max=9)

    def run(settings: Extended) -> None:
        """Stand in for a command."""

    hints = {"settings": Extended, "return": None}
    run.__annotations__ = hints
    (parameter,) = [each for each in make_command("run", "", run).params if each.name == "blur"]
    assert parameter.help == "Blur both images first, px."  # type: ignore[attr-defined]
    settings = takes(Extended)(lambda settings: settings)("l.png", "r.png", blur=2.0, output=Path("d.pfm"))
    assert settings.to_json() == {"blur": 2.0, "inputs": ["l.png", "r.png"], "output": "d.pfm"}
    with pytest.raises(pamcli.PamError, match="`blur` must be from 0 to 9, got 10"):
        Extended(blur=10.0)


def test_texts_are_converted_as_on_the_command_line() -> None:
    settings = pamcli.EvaluateDisparitySettings(
        data="pairs:a", method="ours=net.toml", max_memory="4GB", resize="64x32", protocol="kitti"
    )
    assert settings.data == ("pairs:a",)
    assert settings.method == (("ours", "net.toml"),)
    assert (settings.max_memory, settings.resize, settings.protocol) == (4 * 10**9, (64, 32), ("kitti",))
    methods = ["opencv", ("b", "pasmnet2")]
    several = pamcli.EvaluateDisparitySettings(data=["pairs:a"], method=methods)
    assert several.method == (("opencv", "opencv"), ("b", "pasmnet2"))


def test_names_of_options_are_keywords() -> None:
    from pamcli.settings.options import takes

    options: Any = {"val": "pairs:b", "set": "ema=0", "from": "pasmnet2", "output": "run"}
    settings = takes(pamcli.TrainDisparitySettings)(lambda settings: settings)("pairs:a", **options)
    assert (settings.validation, settings.settings) == (("pairs:b",), (("ema", "0"),))
    assert settings.start == "pasmnet2"


@pytest.mark.parametrize("wrong", [["a.png", "b.png"], bytearray(9)])
def test_inputs_that_are_no_paths_are_named(wrong: Any) -> None:
    with pytest.raises(pamcli.PamError, match=f"must be a path or a name, got {type(wrong).__name__}"):
        pamcli.match_files(wrong, wrong, output="o/")
