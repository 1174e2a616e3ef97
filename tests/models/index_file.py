"""Index files as lists of entries: where a key's messages are, in the plainest words."""

from dataclasses import dataclass, field

LIMIT = 64


def java_hash(text: str) -> int:
    """Java's String.hashCode, as a signed number."""
    h = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        h = (31 * h + (high << 8) + low) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


def key_hash(topic: str, key: str) -> int:
    h = abs(java_hash(f"{topic}#{key}"))
    return 0 if h == 1 << 31 else h


@dataclass
class Entry:
    hash: int
    physical_offset: int
    seconds: int
    timestamp: int


@dataclass
class FileModel:
    begin: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)


@dataclass
class IndexModel:
    """All files, oldest first; each takes `capacity` - 1 entries."""

    slots: int
    capacity: int
    files: list[FileModel] = field(default_factory=list)

    def put(self, topic: str, key: str, physical_offset: int, timestamp: int) -> None:
        if not self.files or len(self.files[-1].entries) == self.capacity - 1:
            end = self.files[-1].end if self.files else 0
            self.files.append(FileModel(begin=end, end=end))
        file = self.files[-1]
        seconds = max(0, (timestamp - file.begin) // 1000) if file.begin > 0 else 0
        if not file.entries:
            file.begin = timestamp
        file.end = timestamp
        entry = Entry(key_hash(topic, key), physical_offset, min(seconds, 0x7FFFFFFF), timestamp)
        file.entries.append(entry)

    def query(
        self, topic: str, key: str, begin: int = 0, end: int = 1 << 62, limit: int = LIMIT
    ) -> list[int]:
        found: list[int] = []
        wanted = key_hash(topic, key)
        for file in reversed(self.files):
            if begin <= file.end and end >= file.begin:
                for entry in reversed(file.entries):
                    if entry.hash % self.slots != wanted % self.slots:
                        continue
                    time = file.begin + entry.seconds * 1000
                    if entry.hash == wanted and begin <= time <= end and len(found) < limit:
                        found.append(entry.physical_offset)
                    if time < begin:
                        break
            if file.begin < begin or len(found) >= limit:
                break
        return sorted(found)

    def truncate(self, physical_offset: int) -> None:
        for file in self.files:
            file.entries = [entry for entry in file.entries if entry.physical_offset < physical_offset]
            if file.entries:
                file.end = file.entries[-1].timestamp
        self.files = [file for file in self.files if file.entries]
