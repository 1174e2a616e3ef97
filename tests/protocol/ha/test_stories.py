"""Stories of the HA machines: a master's connection, a slave's, and who waits for whom."""

from pathlib import Path

import pytest

from pyledger.config.ha import HaConfig
from pyledger.protocol.ha.group_transfer import GroupTransfer
from pyledger.protocol.ha.master import REPORT, LogRange, MasterConnection
from pyledger.protocol.ha.slave import FRAME_HEADER, SlaveConnection, SlaveState
from tests.support import datadriven
from tests.support.datadriven import Step

FILES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


class Narrator:
    """Plays the steps of one story; time and ends of logs are what the steps say."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log = LogRange(0, 0, 1000)
        self.master: MasterConnection | None = None
        self.slave: SlaveConnection | None = None
        self.transfer = GroupTransfer(HaConfig(role="sync_master"))
        self.answers: list[str] = []

    def run_step(self, step: Step) -> str:
        self.now_ms = step.integer("at", self.now_ms)
        output: str = getattr(self, "do_" + step.command.replace("-", "_"))(step)
        return output

    # --- the master's side

    def do_log(self, step: Step) -> str:
        self.log = LogRange(step.integer("start", 0), step.integer("end"), step.integer("file", 1000))
        return f"{self.log.start}..{self.log.end}"

    def do_accept(self, step: Step) -> str:
        rate = step.integer("rate", 0)
        config = HaConfig(
            transfer_batch_bytes=step.integer("batch", 1024),
            flow_control=rate > 0,
            transfer_rate_max_bytes=rate or 1 << 20,
        )
        self.master = MasterConnection(config, self.now_ms)
        return self.master.describe()

    def do_report(self, step: Step) -> str:
        """Offsets as a slave sends them; `bytes=` cuts the stream in pieces of that size."""
        assert self.master is not None
        data = b"".join(REPORT.pack(int(word)) for word in step.words)
        size = step.integer("bytes", len(data))
        news = [
            self.master.receive(data[at : at + size], self.log, self.now_ms)
            for at in range(0, len(data), size)
        ]
        return ("progress: " if any(news) else "") + self.master.describe()

    def do_send(self, _step: Step) -> str:
        """Send all there is."""
        assert self.master is not None
        lines = []
        while (transfer := self.master.next_transfer(self.log, self.now_ms)) is not None:
            self.master.sent(transfer, self.now_ms)
            lines.append(f"{transfer.offset}+{transfer.size}")
        if self.master.resume_ms is not None:
            lines.append(f"more at {self.master.resume_ms}")
        return "\n".join(lines) or "nothing"

    def do_master_tick(self, step: Step) -> str:
        assert self.master is not None
        waits_at = step.named.get("waits")
        beat = self.master.tick(self.now_ms, None if waits_at is None else int(waits_at))
        if beat is not None:
            self.master.sent(beat, self.now_ms)
            return f"heartbeat {beat.offset}"
        return f"{self.master.describe()}, next look at {self.master.deadline_ms()}"

    # --- the slave's side

    def do_connect(self, step: Step) -> str:
        config = HaConfig()
        self.slave = SlaveConnection(config, step.integer("end"), step.integer("file", 1000), self.now_ms)
        return self.slave.describe()

    def do_frame(self, step: Step) -> str:
        """Frames `offset+size` as a master sends them; `bytes=` cuts the stream in pieces of that size."""
        assert self.slave is not None
        data = b""
        for word in step.words:
            offset, size = map(int, word.split("+"))
            data += FRAME_HEADER.pack(offset, size) + bytes(max(0, size))
        data = data[: step.integer("only", len(data))]
        cut = step.integer("bytes", len(data))
        lines = [
            f"write {len(piece.data)} at {piece.offset}"
            for at in range(0, len(data), cut)
            for piece in self.slave.take(memoryview(data)[at : at + cut], self.now_ms)
        ]
        if step.named.get("stored") != "no" and self.slave.state is not SlaveState.SHUTDOWN:
            self.slave.stored(self.slave.max_offset)
        return "\n".join([*lines, self.slave.describe()])

    def do_stored(self, step: Step) -> str:
        assert self.slave is not None
        self.slave.stored(int(step.words[0]))
        return self.slave.describe()

    def do_slave_tick(self, _step: Step) -> str:
        assert self.slave is not None
        self.slave.tick(self.now_ms)
        report = self.slave.report(self.now_ms)
        said = "nothing to report" if report is None else f"report {report}"
        return f"{said}; {self.slave.describe()}, next look at {self.slave.deadline_ms()}"

    # --- who waits

    def do_rules(self, step: Step) -> str:
        options = {name.replace("-", "_"): value for name, value in step.named.items() if name != "at"}
        numbers = {name: int(value) for name, value in options.items() if value.isdecimal()}
        switches = {name: value == "on" for name, value in options.items() if value in ("on", "off")}
        role = options.get("role", "sync_master")
        self.transfer = GroupTransfer(HaConfig(role=role, **numbers, **switches))  # type: ignore[arg-type]
        return self.transfer.describe()

    def do_put(self, step: Step) -> str:
        end, name = step.integer("end"), step.words[0]
        rejection = self.transfer.rejection(end)
        if rejection is not None:
            return f"{name} refused: {rejection}"
        wanted = self.transfer.wanted_count(end)
        status = self.transfer.wait(end, lambda how: self.answers.append(f"{name} {how}"), self.now_ms)
        return f"{name} {status}" if status else f"{name} waits for {wanted} brokers"

    def do_ack(self, step: Step) -> str:
        for slave, offset in step.named.items():
            if slave != "at":
                self.transfer.acknowledged(int(slave), int(offset))
        return self._answered()

    def do_doubt(self, step: Step) -> str:
        self.transfer.doubt(int(step.words[0]), step.integer("sent"))
        return self._answered()

    def do_gone(self, step: Step) -> str:
        self.transfer.gone(int(step.words[0]))
        return self._answered()

    def do_tick(self, _step: Step) -> str:
        self.transfer.tick(self.now_ms)
        return self._answered()

    def _answered(self) -> str:
        lines, self.answers = self.answers, []
        return "\n".join([*lines, self.transfer.describe()])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_story(path: Path, rewrite: bool) -> None:
    datadriven.run(path, Narrator().run_step, rewrite=rewrite)
