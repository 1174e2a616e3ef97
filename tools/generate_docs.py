"""Write config.md and errors.md of docs/reference from the classes, diagrams from the tables of machines, and
in docs/design/simulation.md what each bug does, from its docstring.

Ends with 1 when a file was out of date.
"""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path

from pyledger import errors
from pyledger.config import bookie, broker, namesrv
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookie import BookieConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.config.broker import BrokerConfig
from pyledger.config.client import ClientConfig, ConsumerConfig, ProducerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.dledger import DLedgerConfig
from pyledger.config.dledger_broker import DLedgerBrokerConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.config.fields import Setting, Settings, settings_of
from pyledger.config.ha import HaConfig
from pyledger.config.loader import SECTIONS
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.config.store import StoreConfig

DRAWN = re.compile(r"(<!-- drawn: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A mark names the module that has the table; what is drawn ends at the other mark."""
BUG = re.compile(r"^(\| `(\w+)` \| ).*?( \| (?:\d|more than))", re.MULTILINE)
"""The first two cells of a row in the tables of simulated bugs: name and description."""
ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
KINDS: tuple[type[Settings], ...] = (
    StoreConfig,
    NetConfig,
    TlsConfig,
    DeliveryConfig,
    NamesrvConfig,
    ClientConfig,
    ProducerConfig,
    ConsumerConfig,
    BrokerConfig,
    DLedgerConfig,
    HaConfig,
    DLedgerStoreConfig,
    DLedgerBrokerConfig,
    BookieConfig,
    AutoRecoveryConfig,
    BookkeeperConfig,
)
"""The settings of each section, in the order of `SECTIONS`."""


def field_docstrings(kind: type[Settings]) -> dict[str, str]:
    """The string literal below each field of a class, on one line."""
    body = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def allowed_values(one: Setting) -> str:
    """What a setting may be, for a table cell."""
    if one.choices is not None:
        return ", ".join(f"`{choice}`" for choice in one.choices)
    if one.range is not None:
        return f"{one.range[0]:,} to {one.range[1]:,} {one.unit}"
    return "true or false" if isinstance(one.default, bool) else "text"


def default_value(one: Setting) -> str:
    """The default, as it is written in a TOML file."""
    value = str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
    return f'`"{value}"`' if isinstance(one.default, str) else f"`{value}`"


def config_document() -> str:
    """All of docs/reference/config.md."""
    lines = [
        "# Settings",
        "",
        "Made by `make docs` from `src/pyledger/config/`. Constructors and `MessageStore.open` take our",
        "names as keywords; files and `StoreConfig.from_properties` also take upstream's. A TOML file has",
        "one table per section. A variable is named `PYLEDGER_<SECTION>_<FIELD>` and overrides the file.",
        "An unknown name or section is an error. A section that a server does not read has no effect on",
        "it; one log line names it.",
        "",
        *upstream_files(),
    ]
    for section, kind in zip(SECTIONS, KINDS, strict=True):
        described = field_docstrings(kind)
        lines += ["", f"## [{section}]", "", inspect.cleandoc(kind.__doc__ or ""), ""]
        lines += ["| setting | default | allowed | upstream | |", "|---|---|---|---|---|"]
        for one in settings_of(kind):
            upstream = ", ".join(f"`{name}`" for name in one.names[1:]) or "none"
            upstream += f" × {one.upstream_factor:,}" if one.upstream_factor != 1 else ""
            cells = (f"`{one.name}`", default_value(one), allowed_values(one), upstream, described[one.name])
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def upstream_files() -> list[str]:
    """How a `broker.conf`, `namesrv.conf` or `bk_server.conf` is read."""
    lines = [
        "## Settings files of upstream",
        "",
        "`pyledger broker`, `namesrv` and `bookie serve` read upstream's properties files with `-c`. A",
        "key in the column *upstream* below takes effect. A key of this table concerns the location or",
        "safety of data: with any value but the one given here the server does not start, and the error",
        "contains the remedy. All other keys only tune upstream's servers: they have no effect, and one",
        "log line names them. A misspelt key is an error.",
        "",
        "| file | key | allowed | remedy |",
        "|---|---|---|---|",
    ]
    for name, fixed in (
        ("broker.conf", broker.FIXED),
        ("namesrv.conf", namesrv.FIXED),
        ("bk_server.conf", bookie.FIXED),
    ):
        for key, one in sorted(fixed.items()):
            if one.allowed is not None:
                allowed = ", ".join(f"`{value}`" for value in one.allowed) or "not set"
                lines.append(f"| `{name}` | `{key}` | {allowed} | {one.remedy} |")
    return lines


def error_classes() -> list[type[errors.PyLedgerError]]:
    """Every class of the tree, by code.

    Raises:
        SystemExit: two classes share a code.
    """

    def walk(kind: type[errors.PyLedgerError]) -> Iterator[type[errors.PyLedgerError]]:
        yield kind
        for child in kind.__subclasses__():
            if child.__module__.startswith(errors.__name__):
                yield from walk(child)

    by_code: dict[int, type[errors.PyLedgerError]] = {}
    for kind in walk(errors.PyLedgerError):
        other = by_code.setdefault(kind.code, kind)
        if other is not kind:
            sys.exit(f"{kind.__name__} and {other.__name__} share the code {kind.code}")
    return [by_code[code] for code in sorted(by_code)]


def error_document() -> str:
    """All of docs/reference/errors.md."""
    lines = [
        "# Errors",
        "",
        "Made by `make docs` from `src/pyledger/errors/`. A code never changes its meaning. The command",
        "line ends with the exit code; *again* means that the same call may succeed later.",
        "",
        "| code | class | is a | exit | again | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for kind in error_classes():
        parents = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        meaning = " ".join((inspect.getdoc(kind) or "").split())
        again = "yes" if kind.retriable else "no"
        lines.append(
            f"| {kind.code} | `{kind.__name__}` | {parents} | {kind.exit_code} | {again} | {meaning} |"
        )
    lines += [
        "",
        "`InvariantError` is not a subclass of `PyLedgerError`: it is a bug; please report it.",
    ]
    return "\n".join(lines) + "\n"


def diagram(transitions: Mapping[tuple[Enum, str], Enum]) -> str:
    """A machine as a Mermaid diagram: begins in the state of its first row, ends where no row leads on."""
    begun = {state for state, _ in transitions}
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(transitions))[0].value}"]
    lines += [f"    {state.value} --> {to.value}: {event}" for (state, event), to in transitions.items()]
    ends = dict.fromkeys(to for to in transitions.values() if to not in begun)
    return "\n".join([*lines, *(f"    {end.value} --> [*]" for end in ends)])


def redrawn(path: Path) -> str:
    """A document with its diagrams as the tables are now."""

    def draw(mark: re.Match[str]) -> str:
        table = importlib.import_module(mark[2]).TRANSITIONS
        return f"{mark[1]}```mermaid\n{diagram(table)}\n```\n{mark[3]}"

    return DRAWN.sub(draw, path.read_text())


def simulation_document() -> str:
    """docs/design/simulation.md with the descriptions of bugs that tests/simulator has."""
    described = {
        function.name: " ".join((ast.get_docstring(function) or "").split()).rstrip(".")
        for path in ROOT.glob("tests/simulator/*_bugs.py")
        for function in ast.parse(path.read_text()).body
        if isinstance(function, ast.FunctionDef)
    }
    return BUG.sub(lambda row: f"{row[1]}{described[row[2]]}{row[3]}", (DOCS / SIMULATION).read_text())


HA = "protocols/ha.md"
SIMULATION = "design/simulation.md"
DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "reference/config.md": config_document,
    "reference/errors.md": error_document,
    HA: lambda: redrawn(DOCS / HA),
    SIMULATION: simulation_document,
}


def main() -> int:
    """Write what has changed, and name it."""
    stale = [name for name, make in DOCUMENTS.items() if (DOCS / name).read_text() != make()]
    for name in stale:
        (DOCS / name).write_text(DOCUMENTS[name]())
        sys.stderr.write(f"docs/{name} was out of date; it is rewritten\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
