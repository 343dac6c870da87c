"""Reads signatures from source files, since importing the modules would import torch.

Nothing is imported or run: modules are found by their files, and type hints are evaluated only
where they consist of built-in types and those of ``typing``.
"""

import ast
import builtins
import inspect
import pathlib
import sys
import typing
from collections import abc
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from oversmoothing.lab.config.types import Signature

Argument = tuple[Any, bool]  # type hint, whether there is a default
TYPES = {"typing": vars(typing), "collections.abc": vars(abc), "pathlib": vars(pathlib)}
HINT = (ast.Name, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.BinOp, ast.BitOr, ast.Load)


@cache
def signature(target: str) -> Signature | None:
    """Reads the signature of a class or function; returns None if its source does not show it.

    Args:
        target: dotted name of the class or function.
    """
    try:
        arguments = _arguments(*target.rsplit(".", 1))
    except Exception:  # a user's package may raise any error; the import reports it later
        return None
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    defaults = {name: ... if given else empty for name, (_, given) in arguments.items()}
    known = {name: inspect.Parameter(name, kind, default=d) for name, d in defaults.items()}
    return known, {name: hint for name, (hint, _) in arguments.items()}


def _arguments(module: str, name: str) -> dict[str, Argument]:
    """Reads the arguments of a class or function; raises any error if they cannot be read."""
    node = _definition(module, name)
    if isinstance(node, ast.FunctionDef):
        return _of_function(module, node)
    is_dataclass = _decorated(node, "dataclass")
    methods = {getattr(statement, "name", ""): statement for statement in node.body}
    if "__new__" in methods or node.keywords:
        raise LookupError("a class with __new__ or class keywords")
    if "__init__" in methods:
        own = _of_function(module, methods["__init__"])
        return dict([*own.items()][1:])  # without self
    inherited: dict[str, Argument] = {}
    for base in (base.id for base in node.bases):
        inherited |= _arguments(*_imported(module, base)) if base != "ABC" else {}
    fields = [n for n in node.body if is_dataclass and isinstance(n, ast.AnnAssign)]
    fields = [n for n in fields if "ClassVar" not in ast.unparse(n.annotation)]
    own = {n.target.id: (_hint(module, n.annotation), n.value is not None) for n in fields}
    fixed = {n.target.id for n in fields if n.value and "init=False" in ast.unparse(n.value)}
    return {name: argument for name, argument in (inherited | own).items() if name not in fixed}


def _of_function(module: str, node: ast.FunctionDef) -> dict[str, Argument]:
    if node.args.kwarg:
        raise LookupError("takes any argument")
    _decorated(node, "cache", "lru_cache", "kept")
    positional = [*node.args.posonlyargs, *node.args.args]
    optional = {a.arg for a in positional[len(positional) - len(node.args.defaults) :]}
    keywords = zip(node.args.kwonlyargs, node.args.kw_defaults)
    optional |= {argument.arg for argument, default in keywords if default}
    every = [*positional, *node.args.kwonlyargs]
    return {a.arg: (_hint(module, a.annotation), a.arg in optional) for a in every}


def _decorated(node: ast.FunctionDef | ast.ClassDef, *known: str) -> bool:
    """Whether there are decorators; raises LookupError for one that may change the signature."""
    names = {ast.unparse(d).split("(")[0].split(".")[-1] for d in node.decorator_list}
    if names - {*known}:
        raise LookupError(f"decorated by {names}")
    return bool(names)


def _hint(module: str, annotation: ast.expr | None) -> Any:
    """Evaluates a type hint; Any if it is neither built in nor defined in the same package."""
    if annotation is None:
        return Any
    if not all(isinstance(node, HINT) for node in ast.walk(annotation)):
        return Any  # a call or an attribute of a module would have to be evaluated
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    known = {name: _value(module, name) for name in names}
    try:
        return eval(compile(ast.Expression(annotation), module, "eval"), known)
    except (TypeError, AttributeError):
        return Any


def _value(module: str, name: str) -> Any:
    """Resolves a name in a type hint: ``str``, ``Literal``, or an alias of a hint."""
    if isinstance(getattr(builtins, name, None), type):
        return getattr(builtins, name)
    where, name = _imported(module, name)
    if where in TYPES:
        return TYPES[where].get(name, Any)
    same = where.split(".")[0] == module.split(".")[0]
    try:
        found = _definition(where, name) if same else None
    except LookupError:  # a module, such as torch
        return Any
    return _hint(where, found.value) if isinstance(found, ast.Assign) else Any


def _imported(module: str, name: str) -> tuple[str, str]:
    """Returns the module that a name is imported from, and the name in that module."""
    for node in _tree(module).body:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if (alias.asname or alias.name) == name:
                return node.module, alias.name
    return module, name


def _definition(module: str, name: str) -> Any:
    """Returns the statement that defines a name."""
    for node in reversed(_tree(module).body):
        targets = [getattr(t, "id", "") for t in getattr(node, "targets", ())]
        if name in (getattr(node, "name", None), *targets):
            return node
    raise LookupError(f"{module} does not define {name}")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(_spec(module).origin).read_text("utf-8"))


def _spec(module: str) -> ModuleSpec:
    """Finds a module; unlike importlib's ``find_spec``, it does not import its parent packages."""
    parent, found = module.rpartition(".")[0], sys.modules.get(module)
    if found is not None and found.__spec__ is not None:
        return found.__spec__
    places = _spec(parent).submodule_search_locations if parent else None
    spec = PathFinder.find_spec(module, places)
    if spec is None:
        raise LookupError(f"no module {module}")
    return spec
