"""Ctrl-C while Rust is at work."""

from __future__ import annotations

# `typing` takes as long to import as all else, and type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Interruptible:
    """Ctrl-C is noted the first time, and raises ``KeyboardInterrupt`` the second. Where signals are another thread's,
    or are not Python's own, they stay as they are."""

    asked = False
    listens = False

    def __enter__(self) -> Interruptible:
        import signal
        import threading

        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.handle)
            self.listens = True
        return self

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def stopped(self, out: object) -> None:
        """Raises what a training that Ctrl-C has stopped ends with; ``out`` is its folder."""
        if self.asked:
            where = "" if out is None else f", with a checkpoint in {out}"
            raise KeyboardInterrupt(f"training was stopped{where}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import signal

        if self.listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
