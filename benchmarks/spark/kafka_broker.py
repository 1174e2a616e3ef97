"""Apache Kafka as a peer: one broker in a JVM of its own, and the jars of Spark's source for it.

Maven brings both on first use, into `kafka/target`.
"""

import base64
import os
import subprocess
import time
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.java import BUILD_TIMEOUT_S, refuse, require_java
from tests.support.ports import free_ports, is_free

KIT = Path(__file__).parent / "kafka"
JARS = KIT / "target" / "lib"
CONNECTOR = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""What Spark needs beside its own jars."""
START_S = 120


@cache
def connector_jars() -> tuple[Path, ...]:
    """The jars for Spark. Skips the case where Maven cannot bring them."""
    require_java()
    built = JARS / "built"
    if not built.exists():
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(KIT / "pom.xml"), "dependency:copy-dependencies",
             f"-DoutputDirectory={JARS}"],
            capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            refuse(f"Maven cannot bring Kafka: {done.stdout[-300:]}")
        built.touch()
    return tuple(jar for jar in sorted(JARS.glob("*.jar")) if jar.name.startswith(CONNECTOR))


class KafkaBroker(AbstractContextManager["KafkaBroker"]):
    """A broker that is its own controller, with Kafka's defaults, on loopback."""

    def __init__(self, folder: Path, partitions: int) -> None:
        folder.mkdir()
        self.port, controller = free_ports(2)
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": folder / "log",
            "num.partitions": partitions,
            "offsets.topic.replication.factor": 1,
        }
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        subprocess.run(
            [*self._command("kafka.tools.StorageTool"), "format", "-t", f"A{cluster[1:]}",
             "-c", str(self._settings)],
            check=True, capture_output=True,
        )  # fmt: skip
        self._output = (folder / "output").open("wb")
        self.process = subprocess.Popen(
            [*self._command("kafka.Kafka"), str(self._settings)], stdout=self._output, stderr=self._output
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @staticmethod
    def _command(main: str) -> list[str]:
        return ["java", "-Xmx1g", "-cp", f"{JARS}/*", main]

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_S
        while is_free(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no Kafka broker: {Path(self._output.name).read_text()[-500:]}")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(START_S)
        self._output.close()
