"""Ctrl-C during calls of Rust."""

from __future__ import annotations

# Importing `typing` would take as long as everything else; type checkers know this name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Interruptible:
    """Records the first Ctrl-C, and raises ``KeyboardInterrupt`` at the second. In other threads than the main one, or
    if the program has its own handler, signals are left unchanged."""

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
        """Raises ``KeyboardInterrupt`` if Ctrl-C has stopped the training; ``out`` is its folder."""
        if self.asked:
            where = "" if out is None else f", with a checkpoint in {out}"
            raise KeyboardInterrupt(f"training was stopped{where}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import signal

        if self.listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
