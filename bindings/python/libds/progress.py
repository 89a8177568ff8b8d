"""The display of a run: a bar in a notebook or a terminal, plain lines elsewhere."""
from __future__ import annotations

import html
import math
import sys
import time
from typing import Any

from ._arguments import checked, shown

__all__ = ["Display"]

_WIDTH = 24


def _in_notebook() -> bool:
    """Returns whether the code runs in a Jupyter kernel, where IPython.display shows its arguments."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


@checked
class Display:
    """A display of the `Progress` of a run; `train(progress=True)` creates one.

    In a notebook it is one output that changes in place, in a terminal one line. Elsewhere a line is printed for about every
    twentieth part of the run.
    """

    def __init__(self, file: Any = None, every: float = 0.2) -> None:
        if not all(hasattr(file, name) for name in ("write", "flush", "isatty")) and file is not None:
            raise TypeError(f"file must be a text stream or None, got {shown(file)}")
        self._file = sys.stderr if file is None else file
        self._every = every
        self._begin = time.monotonic()
        self._shown = -math.inf
        self._text = ""
        self._printed = 0
        self._handle: Any = None
        self._heldout = math.nan
        self.kind = "notebook" if file is None and _in_notebook() else "terminal" if self._file.isatty() else "lines"

    def __call__(self, now: Any) -> None:
        """Shows a step."""
        if not math.isnan(now.heldout_loss):
            self._heldout = now.heldout_loss
        last = now.step >= now.steps
        if self.kind == "lines":
            part = now.step * 20 // max(now.steps, 1)
            if last or part > self._printed:
                self._printed = part
                print(self._line(now), file=self._file, flush=True)
            return
        at = time.monotonic()
        if not last and at - self._shown < self._every:
            return
        self._shown = at
        if self.kind == "notebook":
            self._show_html(now)
        else:
            line = f"{self._bar(now)} {self._line(now)}"
            self._file.write("\r" + line + " " * max(0, len(self._text) - len(line)))
            self._file.flush()
            self._text = line

    def close(self) -> None:
        """Ends the line of a terminal."""
        if self.kind == "terminal" and self._text:
            self._file.write("\n")
            self._file.flush()
            self._text = ""

    def _line(self, now: Any) -> str:
        took = time.monotonic() - self._begin
        left = took / max(now.step, 1) * (now.steps - now.step)
        heldout = "" if math.isnan(self._heldout) else f"  held out {self._heldout:.4f}"
        return (f"step {now.step}/{now.steps}  loss {now.loss:.4f}{heldout}  lr {now.lr:.3g}  "
                f"{now.tokens_per_second:,.0f} tokens/s  {_duration(took)} + {_duration(left)}")

    def _bar(self, now: Any) -> str:
        full = _WIDTH * now.step // max(now.steps, 1)
        return "[" + "#" * full + "." * (_WIDTH - full) + "]"

    def _show_html(self, now: Any) -> None:
        from IPython.display import HTML, display  # pylint: disable=import-outside-toplevel,import-error

        made = HTML(f'<progress value="{now.step}" max="{now.steps}"></progress> <code>{html.escape(self._line(now))}</code>')
        if self._handle is None:
            self._handle = display(made, display_id=True)
        else:
            self._handle.update(made)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"
