"""The rules for documents: links resolve, one title each, nothing lies about unlinked."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import ROOT, check, files, name_of, tracked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOME = PROJECT["urls"]["Homepage"]
RAW = HOME.replace("https://github.com", "https://raw.githubusercontent.com")
OUR_FILE = re.compile(rf"(?:{HOME}/blob/main|{RAW}/main)/(.*)")
"""The address of a file of the project, outside of a checkout."""


def prose(path: Path) -> str:
    """Markdown without its code blocks and inline code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)


def anchors(path: Path) -> set[str]:
    headings = re.findall(
        r"^#+ +(.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


def links(path: Path) -> Iterator[tuple[str, Path, str]]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        file, _, anchor = target.partition("#")
        if ours := OUR_FILE.match(file):
            yield target, ROOT / ours[1], anchor
        elif not re.match(r"[a-z]+:", target):
            yield target, (path.parent / file).resolve() if file else path, anchor


def test_every_doc_link_resolves() -> None:
    def problems() -> Iterator[str]:
        for path in files(".md"):
            for target, file, anchor in links(path):
                if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                    yield f"{name_of(path)}: {target}"

    check(problems(), "every link between documents resolves")


def test_every_document_has_one_title() -> None:
    def problems() -> Iterator[str]:
        for path in files(".md"):
            count = len(
                re.findall(r"^# ", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
            )
            if count != 1:
                yield f"{name_of(path)}: {count} titles"

    check(problems(), "a markdown file has one title")


def test_no_document_is_unreferenced() -> None:
    linked = {file for path in files(".md") for _, file, _ in links(path)}
    check(
        (name_of(p) for p in files(".md", ".png", ".svg", under="docs") if p not in linked),
        "every file in docs/ is linked from another document",
    )


def test_every_document_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached, left = {index}, [index]
    while left:
        found = {file for _, file, _ in links(left.pop()) if file.suffix == ".md" and file.exists()}
        left += found - reached
        reached |= found
    check(
        (name_of(p) for p in files(".md", under="docs") if p not in reached),
        "links lead from docs/index.md to every document",
    )


def test_no_place_outside_the_project_is_named() -> None:
    xml_namespace = r"(?!maven\.apache\.org/(?:POM|xsd))"
    host = rf"https?://{xml_namespace}[\w.:-]*(?:pypi|pythonhosted|artifact|nexus|maven|registry)[\w.:-]*"
    pattern = re.compile(r"(?<![\w.])(?:/work/|/root/|/Users/\w|/home/(?!user\b)\w)|" + host)
    binary = {".png", ".bin", ".gz", ".so", ".jar"}

    def problems() -> Iterator[str]:
        for path in tracked():
            if path.suffix in binary or path == Path(__file__):
                continue
            if match := pattern.search(path.read_text(errors="replace")):
                yield f"{name_of(path)}: {match[0]}"

    check(problems(), "no path of one machine and no registry host in the project")


def test_the_readme_can_be_read_on_an_index() -> None:
    relative = re.findall(r"\]\((?!https://)([^)\s]+)\)", prose(ROOT / "README.md"))
    check(iter(relative), "README.md is shown by package indexes too: its links are absolute")


def test_addresses_of_the_project_begin_with_its_home() -> None:
    urls = [*PROJECT["urls"].values(), *(url for url, *_ in links(ROOT / "README.md") if ":" in url)]
    wrong = (url for url in urls if not url.startswith(HOME) and not OUR_FILE.match(url))
    check(wrong, "the home of the project is named in pyproject.toml")
    named = [ROOT / ours[1] for url in PROJECT["urls"].values() if (ours := OUR_FILE.match(url))]
    check(
        (name_of(path) for path in named if not path.exists()), "an address of a file names one that is there"
    )
