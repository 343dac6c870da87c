"""Finds unknown groups and options of a command line, and suggests similar names."""

import os
from pathlib import Path

from hydra.core.override_parser.types import Override

from oversmoothing.errors import install, meant
from oversmoothing.lab.config.compose import choices, loader
from oversmoothing.lab.config.folders import options

MORE = {  # what a group offers beside its options
    "backbone": "; convolutions of torch-geometric: backbone=pyg backbone.conv=GATConv",
    "data": "; data sets of torch-geometric: data=pyg data.dataset=Planetoid "
    "data.options.name=PubMed",
}


def group_problem(override: Override, folders: list[Path]) -> str | None:
    """Returns the mistake in an override that chooses an option of a group; None if it is valid."""
    where, is_hydra = override.get_key_element().lstrip("+~"), override.is_hydra_override()
    known, value = options(override.key_or_group, folders), override.value()
    if is_hydra:  # plugins add options and groups
        known = sorted({*known, *loader().get_group_options(override.key_or_group)})
    if where not in choices() and not (is_hydra and known):
        return _no_such_place(override, where)
    if override.is_add() or override.is_force_add():
        return f"{override.get_key_element()}: it exists already; write {where}=… without the +"
    if value is None:
        way_out = "leave it out" if choices().get(where) is None else meant("none", known)
        return f"{where}: cannot be null; {way_out}"
    shown = value if isinstance(value, str) else override.get_value_string()
    if value not in known:
        files = [folder / override.key_or_group / f"{shown}.yml" for folder in folders]
        if misnamed := [file for file in files if os.path.isfile(file)]:
            return f"{where}: {misnamed[0]} is not read; rename it to {shown}.yaml"
        way_out = meant(shown, known)
        if way_out.startswith("known"):
            way_out += (
                f"; plugins bring more: {install('sweeps')}" if is_hydra else MORE.get(where, "")
            )
        return f"{where}: there is no {shown!r}; {way_out}"
    if known.count(value) > 1:
        return f"{where}: several folders have a {value}.yaml, and the first wins; rename yours"
    return None


def _no_such_place(override: Override, where: str) -> str:
    if override.package and "." in override.package:
        return f"{where}: to set a key, leave the group out: {override.package}=…"
    ours = [c for c in choices() if c.startswith("hydra/") == where.startswith("hydra/")]
    own = [place for place in ours if place.split("@")[0] == override.key_or_group]
    return f"{where}: there is no such group; {meant(where, own or ours)}"
