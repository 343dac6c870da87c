"""Every YAML composes, runs, and names exactly the options that its target has."""

import inspect
import itertools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from oversmoothing.errors import Problems
from oversmoothing.lab.data.planetoid import FOLDERS
from oversmoothing.lab.launch.check import PARTS
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.config import CONFIGS, base, compose_config, is_group, parse
from oversmoothing.lab.report.tables import load

ROOT = Path(__file__).parents[2]
EVERY = [
    path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("[!_]*.yaml")
]
PLUGINS = {"hydra/launcher/processes": "joblib", "hydra/launcher/slurm": "submitit"}
SIMULATION = ["task=rank", "data=none", "trainer=none", "backbone=transformer", "task.gammas=null"]
SCENES = ["experiment=wsss_scenes"]
VOC = ["experiment=wsss_voc", "backbone.weights=none", "task.evaluation.crf=null"]
PATCHES = ["task=wsss", "data=scenes", "trainer=toco_scratch", "task.evaluation.crf=null"]
PATCHES += ["backbone.weights=none"]
PIXELS = ["task=segmentation", "data=scenes", "backbone=resnet18", "trainer=emanet"]
PIXELS += ["backbone.weights=none"]
IMAGES = ["experiment=cls_scenes"]
CURVES = ["experiment=cls_eval", "data=scenes", "backbone.weights=none", "backbone.sha256=null"]
TEXT = ["experiment=glue_sst2_small"]
FEW = ["data.num_train=8", "data.num_val=4"]  # generated pictures
OF_TOKENS = ("em", "em_gradient", "external", "external_multihead", "hem", "self_attention")
OF_ATTENTION = ("gated_attention", "neutreno", "re_attention", "value_residual")
SUITS = {  # start of a name -> what it is composed with; all others suit the default
    **{f"aggregator/{name}": SIMULATION for name in OF_TOKENS},
    **{f"aggregator/{name}": SCENES for name in OF_ATTENTION},
    **dict.fromkeys(("backbone/albert", "backbone/bert"), [*TEXT, "backbone.weights=none"]),
    "backbone/minilm": [*TEXT, "backbone.weights=none"],
    **dict.fromkeys(("backbone/resnet", "backbone/mobilenet"), PIXELS),
    **dict.fromkeys(("backbone/deit", "backbone/vit_b"), PATCHES),
    "backbone/t2t": PATCHES[:-1],
    "backbone/transformer": SIMULATION,
    **dict.fromkeys(("data/scene_crops", "data/imagenet", "data/digits", "trainer/deit"), IMAGES),
    **dict.fromkeys(("data/voc", "data/coco_voc"), VOC),
    **dict.fromkeys(("data/context", "data/coco_stuff", "trainer/emanet", "task/seg"), PIXELS),
    "data/scenes": SCENES,
    "data/none": SIMULATION,
    **dict.fromkeys(("data/glue", "task/glue", "trainer/bert"), TEXT),
    "task/classification_eval": CURVES,
    "task/classification": IMAGES,
    "task/propositions": ["experiment=prop1"],
    "task/rank": SIMULATION,
    "task/wsss": SCENES,
    "trainer/minibatch": ["backbone=pyg"],
    "trainer/none": SIMULATION,
    "trainer/toco": SCENES,
}
NEEDS = FOLDERS.keys() | {"voc_subset", "glue"}  # data sets that DATA_ROOT has
DATA, WEIGHTS = "or VOCdevkit/", "timm's weights are not available"
FOLDER, DIGITS = "cannot be listed", "come with scikit-learn"
HUB = "the hub's weights are not available"
TRANSFORMERS = "needs transformers"
NOT_HERE = {  # whole data sets and weights that only a user's machine has: what is missing is said
    "data/voc": (DATA,),
    "hydra/sweeper/optuna": ("needs a metric",),
    "data/coco_voc": (DATA,),
    "data/pyg": ("data.options.name: HeterophilousGraphDataset needs it",),
    "data/ogb": ("no such file; download",),
    "experiment/wsss_voc": (DATA, WEIGHTS),
    "experiment/wsss_coco": (DATA, WEIGHTS),
    **{f"data/{name}": (FOLDER,) for name in ("imagenet", "imagenet100")},
    **{f"experiment/cls_{name}": (FOLDER,) for name in ("imagenet", "imagenet100")},
    "experiment/cls_imagenet_eamlp": (FOLDER,),
    **{name: (DIGITS,) for name in ("data/digits", "experiment/cls_digits")},
    "experiment/cls_digits_eamlp": (DIGITS,),
    **{f"experiment/glue_{name}": (HUB, TRANSFORMERS) for name in ("bert", "albert")},
    **{
        f"backbone/{name}": (TRANSFORMERS,)
        for name in ("bert_base", "bert_small", "bert_small_prenorm", "albert_base", "minilm")
    },
    **{name: (TRANSFORMERS,) for name in ("experiment/glue_sst2_small", "trainer/bert")},
    **{name: (TRANSFORMERS,) for name in ("trainer/bert_scratch", "task/glue", "data/glue")},
    "logger/tensorboard": ("needs the package tensorboard",),
    "data/context": (DATA,),
    "data/coco_stuff": (DATA,),
    **{f"experiment/seg_voc_{name}": (DATA, WEIGHTS) for name in ("fcn", "ema", "hem", "ea")},
    **{f"experiment/seg_{name}_hem": (DATA, WEIGHTS) for name in ("context", "coco_stuff")},
}
# arguments with defaults that a task gives a backbone
BY_THE_TASK = {"copies", "device", "dtype", "weights"}


@pytest.mark.parametrize("name", [name for name in EVERY if name != "config"])
def test_every_yaml_composes_and_passes(
    name: str,
    tmp_path: Path,
    generated: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, _, option = name.rpartition("/")
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    if name in PLUGINS:
        pytest.importorskip(f"hydra_plugins.hydra_{PLUGINS[name]}_launcher")
    words = in_its_place(name, f"{group}={option}")
    words += [f"paths.cache={generated}", f"paths.outputs={tmp_path}"]  # where nothing is finished
    if data_of(words) in NEEDS:
        words.append(f"paths.data={request.getfixturevalue('data_root')}")
    elif DATA in NOT_HERE.get(name, ()):
        words.append(f"paths.data={tmp_path}")  # as on a machine without it
    try:
        assert configs(words, multirun=group.startswith("hydra"))
    except Problems as refused:
        assert name in NOT_HERE, refused.lines
        assert all(any(why in line for why in NOT_HERE[name]) for line in refused.lines)


def in_its_place(name: str, word: str) -> list[str]:
    """The words of a command in which a YAML can be chosen by a word."""
    suits = [words for start, words in SUITS.items() if name.startswith(start)]
    words = [*(suits[0] if suits else []), word]
    return [*words, *(FEW if data_of(words) in ("scenes", "scene_crops") else [])]


def data_of(words: list[str]) -> str | None:
    chosen = (override.input_line for override in parse(words)[0] if is_group(override))
    return base(tuple(chosen)).hydra.runtime.choices.data


@pytest.mark.parametrize("name", ["centered", "contranorm", "hem", "neutreno", "re_attention"])
def test_an_aggregator_of_any_kind_can_be_the_second(
    name: str, tmp_path: Path, generated: Path
) -> None:
    name = f"aggregator/{name}"
    words = in_its_place(name, f"aggregator@then={name.removeprefix('aggregator/')}")
    assert configs([*words, f"paths.outputs={tmp_path}", f"paths.cache={generated}"])


@pytest.mark.parametrize("name", [name for name in EVERY if name.split("/")[0] in PARTS])
def test_a_yaml_names_every_option_of_its_target_and_no_other(name: str) -> None:
    """It can name them itself or take them from the YAML that it extends."""
    part, option = name.split("/", 1)
    content = composed([f"{part}={option}"])[part]
    if option == "none" and not content:
        return
    _check_inner(content)
    parameters = inspect.signature(get_object(content["_target_"])).parameters
    named = {
        k: p for k, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    required = {k for k, p in named.items() if p.default is p.empty}
    by_task = BY_THE_TASK - content.keys()  # weights are an option of pretrained networks
    given = required | by_task if PARTS[part] is None else set(PARTS[part])
    assert content.keys() - {"_target_", "_partial_"} == named.keys() - given


def _check_inner(content: dict) -> None:
    """Nested nodes also name every option of their target."""
    for inner in content.values():
        if isinstance(inner, dict) and "_target_" in inner:
            _check_inner(inner)
            named = inspect.signature(get_object(inner["_target_"])).parameters.keys()
            assert inner.keys() - {"_target_"} == named


def composed(words: list[str]) -> dict:
    return OmegaConf.to_container(compose_config(words), resolve=False)


def test_every_default_of_the_main_config_is_read() -> None:
    """Its keys are the parts and the settings that are checked."""
    from oversmoothing.lab.launch.check import settings

    main = OmegaConf.load(CONFIGS / "config.yaml")
    own = main.keys() - {"defaults", "hydra"}
    assert own == inspect.signature(settings).parameters.keys()
    named = [str(next(iter(entry))) for entry in main.defaults if OmegaConf.is_dict(entry)]
    filled = {place.split("@")[-1] for place in named if "/" not in place}
    assert filled == {*PARTS, "experiment"}


def test_the_lock_holds_every_package_in_the_range_of_pyproject() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(r.name): [s.version for s in r.specifier] for r in pins}
    assert all(f"{r.specifier}".startswith("==") and "*" not in f"{r.specifier}" for r in pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    del extras["notebook"]  # Jupyter is not needed to reproduce anything
    for text in itertools.chain(project["dependencies"], *extras.values()):
        wanted = Requirement(text)
        assert wanted.extras <= extras.keys()
        if wanted.name != project["name"]:
            [version] = versions[canonicalize_name(wanted.name)]
            assert wanted.specifier.contains(version), text


def test_make_lists_every_target_and_table() -> None:
    read = {"cwd": ROOT, "capture_output": True, "text": True}
    rules = subprocess.run(["make", "--print-data-base", "--dry-run", "help"], **read).stdout
    shown = {part: subprocess.run(["make", part], **read).stdout for part in ("help", "tables")}
    targets = re.findall(r"^  make (\S+)  ", shown["help"], re.MULTILINE)
    tables = re.findall(r"^  (\S+)  ", shown["tables"], re.MULTILINE)
    phony = {*re.search(r"^\.PHONY: (.*)$", rules, re.MULTILINE)[1].split()}
    assert {*targets} <= phony <= {*targets, *tables, *shown["help"].split()}
    assert {*tables} == {cell.table for cell in load(ROOT / "results/expected")}
