"""Count the uses of retired words, and lower the ceilings in tests/retired_words.toml that have fallen.

Ends with 1 when a count is above its ceiling; such a ceiling is not changed.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "retired_words.toml"
COMMENT_OR_STRING = {
    "python": re.compile(r'"""(?s:.*?)"""|"(?:\\.|[^"\\\n])*"|#[^\n]*'),
    "c": re.compile(r'/\*(?s:.*?)\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"'),
}
LANGUAGE = {".py": "python", ".pyi": "python", ".pyx": "python", ".pxd": "python", ".h": "c", ".c": "c"}
INLINE_CODE = re.compile(r"``?[^`\n]*``?")
PART = re.compile(r"ZooKeeper|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""A word of a name in camel case or with underscores."""
MARKDOWN_CODE = re.compile(r"```(?s:.*?)```|``?[^`\n]*``?")


def split(path: Path, innocent: Iterable[str] = ()) -> tuple[str, str]:
    """Return the code of a file, and its prose: comments and strings, or text without code.

    Innocent phrases are left out of both.
    """
    text = path.read_text()
    for phrase in innocent:
        text = text.replace(phrase, " ")
    pattern = MARKDOWN_CODE if path.suffix == ".md" else COMMENT_OR_STRING[LANGUAGE[path.suffix]]
    marked = "\n".join(pattern.findall(text))
    rest = pattern.sub(" ", text)
    if path.suffix == ".md":
        return marked, rest
    return rest + "\n".join(INLINE_CODE.findall(marked)), INLINE_CODE.sub(" ", marked)


def count(paths: Iterable[Path]) -> dict[str, dict[str, int]]:
    """Uses of each retired pattern, by column: names in all code, words in documents and the product.

    Words inside names are counted in the code of the product only.
    """
    table = tomllib.loads(TABLE.read_text())
    parts: Counter[str] = Counter()
    names: dict[str, Counter[str]] = {"code": Counter(), "docs": Counter()}
    prose: dict[str, list[str]] = {"code": [], "docs": []}
    for path in paths:
        if path.suffix != ".md" and path.suffix not in LANGUAGE:
            continue
        column = "docs" if path.suffix == ".md" else "code"
        code, read = split(path, table.get("innocent", {}).get(str(path.relative_to(ROOT)), ()))
        names[column].update(re.findall(r"\w+", code))
        of_product = path.relative_to(ROOT).parts[0] in {"src", "spark_ext"}
        if of_product:
            parts.update(part.lower() for part in PART.findall(code))
        if column == "docs" or of_product:
            prose[column].append(" ".join(read.split()))
    found: dict[str, dict[str, int]] = {}
    for word in table["names"]:
        whole = re.compile(word)
        found[word] = {c: sum(n for name, n in names[c].items() if whole.fullmatch(name)) for c in names}
    for word in table["parts"]:
        whole = re.compile(word)
        found[word] = {"code": sum(n for part, n in parts.items() if whole.fullmatch(part)), "docs": 0}
    texts = {column: "\n".join(parts).lower() for column, parts in prose.items()}
    for word in table["words"]:
        whole = re.compile(rf"\b(?:{word})\b")
        found[word] = {column: len(whole.findall(text)) for column, text in texts.items()}
    return found


def ceilings() -> dict[str, dict[str, int | str]]:
    """The rows of the table: names, parts of names, and words."""
    table = tomllib.loads(TABLE.read_text())
    return {**table["names"], **table["parts"], **table["words"]}


def lowered(text: str, word: str, counts: dict[str, int]) -> str:
    """The table with the counts of one word."""
    row = re.compile(rf"^('{re.escape(word)}' = \{{ .*code = )\d+(, docs = )\d+", re.MULTILINE)
    return row.sub(rf"\g<1>{counts['code']}\g<2>{counts['docs']}", text, count=1)


def main() -> int:
    """Lower the ceilings that can be, and name the counts that rose."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    text, risen = TABLE.read_text(), 0
    found = count(path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file())
    for word, row in ceilings().items():
        counts = {column: min(found[word][column], int(row[column])) for column in ("code", "docs")}
        text = lowered(text, word, counts)
        for column in ("code", "docs"):
            if found[word][column] > int(row[column]):
                risen += 1
                sys.stderr.write(f"{word}: {found[word][column]} uses in {column}, at most {row[column]}\n")
    TABLE.write_text(text)
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main())
