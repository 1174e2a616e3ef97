"""When to flush, as the specification words it: one plain function a rule."""

from dataclasses import dataclass

PAGE = 4096


@dataclass
class PageRule:
    """Wake, look at the pages of the file that holds `flushed`, and now and then take whatever is dirty."""

    least_pages: int
    thorough_interval_ms: int
    last_thorough_ms: int | None = None

    def decide(self, now_ms: int, wrote: int, flushed: int, file_size: int) -> str | None:
        due = self.last_thorough_ms is None or now_ms >= self.last_thorough_ms + self.thorough_interval_ms
        if due:
            self.last_thorough_ms = now_ms
        start = flushed // file_size * file_size
        end = min(wrote, start + file_size)
        if end == flushed:
            return None
        if end == start + file_size:
            return "full"
        if self.least_pages == 0:
            return "dirty"
        if due:
            return "thorough"
        crossed = (end - start) // PAGE - (flushed - start) // PAGE
        return "pages" if crossed >= self.least_pages else None


@dataclass
class Bounded:
    """So many dirty bytes, or an age, whichever comes first."""

    dirty_bytes_max: int
    interval_ms: int
    clean_at_ms: int | None = None

    def decide(self, now_ms: int, wrote: int, flushed: int, _file_size: int) -> str | None:
        dirty = wrote - flushed
        old = self.clean_at_ms is None or now_ms >= self.clean_at_ms + self.interval_ms
        reason = "bytes" if dirty >= self.dirty_bytes_max else "age" if dirty and old else None
        if reason or not dirty:
            self.clean_at_ms = now_ms
        return reason
