"""Sends log lines to a sink such as W&B without stopping or slowing down a run."""

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from oversmoothing.errors import reason_of

START_SECONDS = 10.0  # longest wait for the sink at the start
END_SECONDS = 30.0  # longest wait for the sink at the end


class Background:
    """Calls a sink in a separate thread.

    The sink is dropped with one warning after its first error, or if it does not finish in time.

    Args:
        create: makes the sink.
        folder: of the run, for the warning.
    """

    def __init__(self, create: Callable[[], Any], folder: Path) -> None:
        self._create, self._folder = create, folder
        self._calls: SimpleQueue[Callable[[Any], object] | None] = SimpleQueue()
        self._ready, self._warned = threading.Event(), False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self._ready.wait(START_SECONDS)

    def __call__(self, line: dict[str, Any]) -> None:
        """Passes a log line on."""
        self._calls.put(lambda sink: sink(line))

    def picture(self, name: str, path: Path) -> None:
        """Passes a picture on to a sink that takes pictures."""
        self._calls.put(lambda sink: hasattr(sink, "picture") and sink.picture(name, path))

    def summarise(self, result: dict[str, Any]) -> None:
        """Passes the content of ``result.json`` on to a sink that takes it."""
        self._calls.put(lambda sink: hasattr(sink, "summarise") and sink.summarise(result))

    def close(self) -> None:
        """Waits for the sink, for ``END_SECONDS`` at most."""
        self._calls.put(lambda sink: sink.close())
        self._calls.put(None)
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            self._give_up("no answer")

    def _work(self) -> None:
        try:
            sink = self._create()
            self._ready.set()
            while call := self._calls.get():
                call(sink)
        except BaseException as error:  # a library may raise any error, even SystemExit
            self._give_up(reason_of(error))
        finally:
            self._ready.set()

    def _give_up(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"logger: {reason[:300]}; the run goes on without it; later, "
                f"`python scripts/wandb_replay.py {self._folder}` sends the whole run to W&B",
                stacklevel=2,
            )
