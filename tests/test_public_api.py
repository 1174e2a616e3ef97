"""The public modules: what documents import, what importing costs, and that lists of names agree."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, check, files, name_of, tree

PUBLIC = (
    "pyledger",
    "pyledger.store",
    "pyledger.client",
    "pyledger.bookkeeper",
    "pyledger.arrow",
    "pyledger.spark",
    "pyledger.testing",
    "pyledger.errors",
)
LAZY = ("pyledger", "pyledger.store", "pyledger.testing")
IMPORT = re.compile(r"^\s*(?:from (pyledger[\w.]*) import ([^\n#]+)|import (pyledger[\w.]*))", re.MULTILINE)


def imports_of(text: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import line; `from pyledger import arrow` imports a module."""
    for found in IMPORT.finditer(text):
        if found[3]:
            yield found[3], ""
            continue
        for name in re.findall(r"(\w+)(?: as \w+)?", re.sub(r" as \w+", "", found[2])):
            whole = f"{found[1]}.{name}"
            yield (whole, "") if whole in PUBLIC else (found[1], name)


def documents() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted((ROOT / "examples").glob("*.py"))


def test_documents_import_public_names_only() -> None:
    def problems() -> Iterator[str]:
        for path in documents():
            for module, name in imports_of(path.read_text()):
                if module not in PUBLIC:
                    yield f"{name_of(path)}: {module} is not public"
                elif name and name not in importlib.import_module(module).__all__:
                    yield f"{name_of(path)}: {module} does not offer {name}"

    check(problems(), "documents and examples import what docs/reference/public_api.md lists")


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there_and_documented(module: str) -> None:
    there = importlib.import_module(module)
    assert there.__doc__
    assert sorted(there.__all__) == sorted(set(there.__all__))
    for name in there.__all__:
        assert getattr(there, name) is not None, name
    if module in LAZY:
        assert set(there.__all__) <= set(dir(there))


@pytest.mark.parametrize("module", LAZY)
def test_names_for_type_checkers_are_those_at_run_time(module: str) -> None:
    path = ROOT / "src" / f"{module.replace('.', '/')}.py"
    source = tree(path if path.exists() else path.with_suffix("") / "__init__.py")
    (branch,) = (
        node for node in source.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = {
        (node.module, alias.name)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (homes,) = (node for node in ast.walk(branch.orelse[0]) if isinstance(node, ast.Dict))
    table = ast.literal_eval(homes)
    assert typed == {(home, name) for home, names in table.items() for name in names}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Mesage' from 'pyledger'"):
        exec("from pyledger import Mesage")
    with pytest.raises(AttributeError, match=r"module 'pyledger.store' has no attribute 'Stor'"):
        importlib.import_module("pyledger.store").__getattr__("Stor")


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    code = "import sys, pyledger; print(sorted(m for m in sys.modules if m.startswith('pyledger')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "['pyledger', 'pyledger.lazy_names']\n"


def test_the_page_lists_all_public_modules() -> None:
    text = (ROOT / "docs" / "reference" / "public_api.md").read_text()
    assert tuple(re.findall(r"^\| `(pyledger[\w.]*)` \|", text, re.MULTILINE)) == PUBLIC


def test_readers_use_few_import_paths() -> None:
    paths = {module for path in documents() for module, _ in imports_of(path.read_text())}
    assert len(paths) <= 6
    assert files(".py", under="examples")


def members_of(kind: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties that a class has from us, where it defines them."""
    for owner in kind.__mro__:
        if owner.__module__.startswith("pyledger"):
            yield from ((name, one) for name, one in vars(owner).items() if not name.startswith("_"))


def test_every_public_name_and_method_is_documented() -> None:
    def problems() -> Iterator[str]:
        for module in PUBLIC:
            there = importlib.import_module(module)
            for name in there.__all__:
                found = getattr(there, name)
                if not isinstance(found, type):
                    if inspect.isroutine(found) and not inspect.getdoc(found):
                        yield f"{module}.{name}"
                    continue
                if not vars(found).get("__doc__"):
                    yield f"{module}.{name}"
                for member, value in members_of(found):
                    what = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
                    if callable(what) and not inspect.getdoc(what):
                        yield f"{module}.{name}.{member}"

    check(problems(), "help() describes each public name and method")
