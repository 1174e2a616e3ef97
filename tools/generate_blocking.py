"""Write src/pyledger/client/blocking/: synchronous classes that delegate to the asynchronous ones.

Each public method of an `Async...` class becomes one with the same signature, defaults and documentation that
runs the asynchronous method on the shared loop and waits. Ends with 1 when a file was out of date.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
FOLDER = SOURCE / "pyledger" / "client" / "blocking"


@dataclass(frozen=True)
class Twin:
    """One asynchronous class."""

    module: str
    """Where it is defined, below `pyledger.client`."""
    name: str
    """Without `Async`."""
    made_by_user: bool = True
    """Whether programs call its constructor; other objects are results of methods."""
    twin_of_base: str = ""
    """Synchronous class that it extends."""


MODULES: Mapping[str, tuple[str, tuple[Twin, ...]]] = {
    "admin": ("Administration", (Twin("admin.admin", "Admin"),)),
    "bookkeeper": (
        "Clients of ledgers",
        (
            Twin("bookkeeper.writer", "LedgerWriter", made_by_user=False),
            Twin(
                "bookkeeper.writer",
                "AdvancedLedgerWriter",
                made_by_user=False,
                twin_of_base="LedgerWriter",
            ),
            Twin("bookkeeper.reader", "LedgerReader", made_by_user=False),
            Twin("bookkeeper.client", "LedgerClient"),
        ),
    ),
    "managed_ledger": (
        "Logs over many ledgers",
        (
            Twin("bookkeeper.managed_ledger", "ManagedLedger"),
            Twin("bookkeeper.managed_ledger", "ManagedCursor"),
        ),
    ),
    "consumer": (
        "Consumers",
        (
            Twin("consumer.group_consumer", "GroupConsumer", made_by_user=False),
            Twin("consumer.push_consumer", "PushConsumer", twin_of_base="GroupConsumer"),
            Twin("consumer.lite_pull_consumer", "LitePullConsumer", twin_of_base="GroupConsumer"),
            Twin("consumer.pull_consumer", "PullConsumer"),
        ),
    ),
    "producer": (
        "Producers",
        (
            Twin("producer.producer", "Producer"),
            Twin("producer.transaction_producer", "TransactionProducer", twin_of_base="Producer"),
        ),
    ),
}
"""What the files are about, and their classes."""
TWINS = {f"Async{twin.name}": twin.name for _, twins in MODULES.values() for twin in twins}
NAMES = {**TWINS, "AsyncIterator": "Iterator", "AsyncGenerator": "Iterator", "__aiter__": "__iter__"}
FASTER = {("Producer", "send"): "_start_send"}
"""Methods that also exist as a plain function that returns a future: it costs no task."""
FETCHED = {("LedgerReader", "read"): 64, ("LedgerClient", "ledgers"): 64}
"""How many values an iterator fetches at a time; the others fetch one."""
LEFT_OUT: Mapping[str, set[str]] = {
    # The client instance calls these, and the requests of brokers that it takes.
    "GroupConsumer": {
        *("topics", "entry", "rebalance", "persist_offsets", "reset_offsets", "status", "running"),
        *("consume_directly", "wanted", "commit_offset", "arrived", "passed", "misplaced"),
    },
    "PushConsumer": {"consume_directly"},
    "LitePullConsumer": {"rebalance", "persist_offsets", "consume_directly", "passed"},
    "Producer": {"topics", "check_transaction"},
    "TransactionProducer": {"check_transaction"},
    # Commands and servers, which run on asyncio, use these.
    "Admin": {"request"},
    "LedgerClient": {"repairs"},
}
"""Public methods that a class has for other parts of PyLedger."""
WORDS = (
    (r" *(?:B|b)elongs to one event loop[^.]*\.", ""),
    (r"`async with`", "`with`"),
    (r"\bAsync(?=[A-Z])", ""),
    (r": a coroutine function, or one that runs on a thread", ": a function, or a coroutine function"),
)
"""What documentation says otherwise."""


def parsed(module: str) -> ast.Module:
    """The syntax tree of a module below `pyledger.client`."""
    path = SOURCE / "pyledger" / "client" / f"{module.replace('.', '/')}.py"
    return ast.parse(path.read_text())


def class_of(module: str, name: str) -> ast.ClassDef:
    """The definition of a class."""
    return next(one for one in parsed(module).body if isinstance(one, ast.ClassDef) and one.name == name)


class Renamed(ast.NodeTransformer):
    """Puts names of synchronous classes for those of asynchronous ones."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rename a class."""
        return ast.Name(NAMES.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Rename a class with arguments: a generator has two, an iterator one."""
        kind = ast.unparse(node.value)
        if kind == "AsyncGenerator" and isinstance(node.slice, ast.Tuple):
            node.slice = node.slice.elts[0]
        if kind == "asyncio.Future":
            node.value = ast.Name("Future")
        self.generic_visit(node)
        return node


def source_of(node: ast.AST | None) -> str:
    """The source of an annotation, default or argument list, renamed."""
    return "" if node is None else ast.unparse(Renamed().visit(deepcopy(node)))


def documentation(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: str) -> str:
    """The docstring of a class or function as source, for programs without asyncio."""
    text = ast.get_docstring(node) or ""
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text)
    first, *others = text.strip().splitlines()
    below = [f"{indent}{line}".rstrip() for line in others]
    return "\n".join([f'{indent}"""{first}', *below, f'{indent}"""']) if below else f'{indent}"""{first}"""'


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The arguments that pass all parameters of a function on."""
    listed = node.args
    found = [unwrapped(one) for one in listed.args[1:]]
    if listed.vararg is not None:
        found.append(f"*{listed.vararg.arg}")
    found += [f"{one.arg}={unwrapped(one)}" for one in listed.kwonlyargs]
    if listed.kwarg is not None:
        found.append(f"**{listed.kwarg.arg}")
    return ", ".join(found)


def unwrapped(parameter: ast.arg) -> str:
    """A parameter as an argument; of a synchronous object the asynchronous one."""
    is_twin = parameter.annotation is not None and ast.unparse(parameter.annotation) in TWINS
    return f"{parameter.arg}._async" if is_twin else parameter.arg


def is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function gives an asynchronous iterator."""
    returns = "" if node.returns is None else ast.unparse(node.returns)
    return returns.startswith(("AsyncIterator[", "AsyncGenerator["))


def body_of(twin: Twin, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The statement that delegates."""
    given, returned = arguments(node), ast.unparse(node.returns) if node.returns else "None"
    faster = FASTER.get((twin.name, node.name))
    if is_generator(node):
        called = f"self._iterate(self._async.{node.name}({given}), {FETCHED.get((twin.name, node.name), 1)})"
    elif faster is not None:
        called = f"self._wait_for(partial(self._async.{faster}, {given}))"
    elif isinstance(node, ast.AsyncFunctionDef):
        called = f"self._wait(self._async.{node.name}({given}))"
    else:
        way = "_start" if returned.startswith("asyncio.Future[") else "_call"
        called = f"self.{way}(partial(self._async.{node.name}, {given}))"
    if returned in TWINS:
        called = f"{TWINS[returned]}({called})"
    return called if returned == "None" else f"return {called}"


def method(twin: Twin, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The lines of one method."""
    returns = source_of(node.returns)
    if any(ast.unparse(one) == "property" for one in node.decorator_list):
        yield "    @property"
        body = f"return self._async.{node.name}"
    elif node.name == "__init__":
        body = f"self._async = Async{twin.name}({arguments(node)})"
    else:
        body = body_of(twin, node)
    yield f"    def {NAMES.get(node.name, node.name)}({source_of(node.args)}) -> {returns}:"
    yield documentation(node, " " * 8)
    yield f"        {body}\n"


def attribute(node: ast.AnnAssign, below: ast.stmt) -> Iterator[str]:
    """A property for a public attribute that the class declares and documents."""
    if not isinstance(node.target, ast.Name) or node.target.id.startswith("_"):
        return
    assert isinstance(below, ast.Expr), f"{node.target.id} has no docstring"
    yield "    @property"
    yield f"    def {node.target.id}(self) -> {source_of(node.annotation)}:"
    yield f'        """{ast.literal_eval(below.value)}"""'
    yield f"        return self._async.{node.target.id}\n"


def members(twin: Twin) -> Iterator[str]:
    """The lines of all public attributes and methods of a class."""
    left_out = LEFT_OUT.get(twin.name, set())
    body = class_of(twin.module, f"Async{twin.name}").body
    for node, below in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign):
            yield from attribute(node, below)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in left_out:
            is_public = not node.name.startswith("_") or node.name == "__aiter__"
            if is_public or (node.name == "__init__" and twin.made_by_user):
                yield from method(twin, node)


def definition(twin: Twin) -> Iterator[str]:
    """The lines of one class."""
    yield f"class {twin.name}({twin.twin_of_base or f'Blocking[Async{twin.name}]'}):"
    yield documentation(class_of(twin.module, f"Async{twin.name}"), "    ") + "\n"
    if twin.twin_of_base:
        yield f"    _async: Async{twin.name}\n"
    yield from members(twin)


def imports(twins: tuple[Twin, ...]) -> Iterator[str]:
    """Import lines of all that the classes may name; what is not used is dropped later."""
    yield "from collections.abc import Iterator"
    yield "from concurrent.futures import Future"
    yield "from functools import partial"
    yield "from pyledger.client.blocking.base import Blocking"
    here = {twin.name for twin in twins}
    for name, (_, others) in MODULES.items():
        yield from (
            f"from pyledger.client.blocking.{name} import {one.name}" for one in others if one not in twins
        )
    for module in dict.fromkeys(twin.module for twin in twins):
        for node in parsed(module).body:
            if isinstance(node, ast.Import):
                yield ast.unparse(node)
            elif isinstance(node, ast.ImportFrom):
                yield from (
                    f"from {node.module} import {one.name}" for one in node.names if one.name not in here
                )
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.ClassDef):
                targets = node.targets if isinstance(node, ast.Assign) else [node]
                for name in names_in(targets):
                    if not name.startswith("_") and name != "log":
                        yield f"from pyledger.client.{module} import {name}"


def names_in(targets: Sequence[ast.AST]) -> Iterator[str]:
    """Names that a statement binds."""
    for target in targets:
        if isinstance(target, ast.ClassDef):
            yield target.name
            continue
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def source(name: str) -> str:
    """The whole file of a module of `client/blocking`."""
    about, twins = MODULES[name]
    head = f'''"""{about} for programs without asyncio: each call waits. Any thread may use them.

Generated by tools/generate_blocking.py from the asynchronous classes; do not edit.
"""
'''
    classes = [line for twin in twins for line in definition(twin)]
    text = "\n".join([head, *dict.fromkeys(imports(twins)), "", *classes])
    for step in (["check", "--fix", "--select", "I,F401", "--quiet"], ["format"]):
        tool = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(FOLDER / f"{name}.py"), "-"]
        text = subprocess.run(tool, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    """Write the files that have changed."""
    stale = False
    for name in MODULES:
        path, made = FOLDER / f"{name}.py", source(name)
        if not path.exists() or path.read_text() != made:
            path.write_text(made)
            sys.stderr.write(f"{path.name} was out of date; it is rewritten\n")
            stale = True
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
