"""The rules for documents: links resolve, one title each, nothing lies about unlinked."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import ROOT, check, files, name_of, tracked


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
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
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
