"""A film of a terminal as an SVG: it is played once, and its last picture stays."""

import os
import pty
import re
import subprocess
import termios
import time
from collections.abc import Callable
from html import escape
from pathlib import Path

Frame = tuple[float, list[str]]
"""Seconds since the beginning, and the lines that the terminal shows from then on."""

PROMPT = "$ "
COLUMNS, LINE, CHARACTER, MARGIN, BAR = 100, 19, 7.83, 16, 30
STYLE = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #d4dae3; white-space: pre }
.prompt { fill: #7ee2a8 } .killed { fill: #ff9a8d }
"""


def drawn(shown: list[str], output: str) -> list[str]:
    """The lines of a terminal after more output; a bar goes back to the beginning of its line."""
    lines = [*shown]
    for piece in re.findall(r"\r|\n|[^\r\n]+", output.replace("\r\n", "\n")):
        if piece == "\n":
            lines.append("")
        elif piece == "\r":
            lines[-1] = "\r" + lines[-1].lstrip("\r")
        else:
            lines[-1] = piece if lines[-1].startswith("\r") else lines[-1] + piece
    return lines


def film(
    commands: dict[str, float], folder: Path, watch: Callable[[str, subprocess.Popen[bytes]], None]
) -> list[Frame]:
    """Run commands one after another on a terminal, and note what it shows, and when.

    Each command has the seconds that it takes in the film, on any machine. `watch` gets the line
    that was drawn last, and the process, which it may kill.
    """
    frames: list[Frame] = [(0.0, [PROMPT])]
    for command, seconds in commands.items():
        clock, (*above, _) = frames[-1]
        typed = [PROMPT + command[:end] for end in range(len(command) + 1)]
        frames += [(clock + 0.05 * n, [*above, line]) for n, line in enumerate(typed)]
        clock = frames[-1][0] + 0.4
        shown = shown_by(command.split("#")[0], folder, [*above, typed[-1], ""], watch)
        pace = seconds / max(shown[-1][0], 0.01)
        frames += thinned([(clock + pace * moment, lines) for moment, lines in shown])
        clock, lines = frames[-1]
        frames.append((clock + 0.8, [*lines[:-1], PROMPT]))
    return frames


def thinned(frames: list[Frame]) -> list[Frame]:
    """At most ten pictures a second, and the last one."""
    kept = frames[:1]
    for frame in frames[1:-1]:
        if frame[0] - kept[-1][0] >= 0.1 or len(frame[1]) > len(kept[-1][1]):
            kept.append(frame)
    return [*kept, frames[-1]]


def shown_by(
    command: str,
    folder: Path,
    shown: list[str],
    watch: Callable[[str, subprocess.Popen[bytes]], None],
) -> list[Frame]:
    """What a terminal shows while one command runs, by the seconds since its first output."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, COLUMNS))
    process = subprocess.Popen(
        command.split(), cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    frames: list[Frame] = []
    began = None
    while output := read(ours):
        began = began or time.monotonic()  # imports are not shown
        shown = drawn(shown, output)
        frames.append((time.monotonic() - began, shown))
        watch(shown[-1], process)
    os.close(ours)
    if process.wait() < 0:
        frames.append((frames[-1][0], [*shown, "Killed", ""]))
    return frames


def read(terminal: int) -> str:
    """What a terminal has to show next; nothing at its end, which Linux reports as an error."""
    try:
        return os.read(terminal, 65536).decode()
    except OSError:
        return ""


def spans(frames: list[Frame]) -> list[tuple[int, str, float, float | None]]:
    """Each line that is shown: its row, its text, and from when until when, or None for ever."""
    found, since = [], dict[int, tuple[str, float]]()
    for moment, lines in frames:
        for row, text in enumerate(line.strip("\r").rstrip() for line in lines):
            old, start = since.get(row, ("", moment))
            if text != old:
                if old:
                    found.append((row, old, start, moment))
                since[row] = (text, moment)
    return found + [(row, text, start, None) for row, (text, start) in since.items() if text]


def svg(frames: list[Frame], title: str) -> str:
    """The film. Where SVG does not move, the last picture is shown."""
    rows = max(len(lines) for _, lines in frames)
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, rows * LINE + MARGIN + BAR
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style>"
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#161b22"/>',
        *(f'<circle cx="{MARGIN + 6 + 18 * n}" cy="18" r="5" fill="#3b4351"/>' for n in range(3)),
    ]
    for row, text, start, end in spans(frames):
        kind = {PROMPT[0]: ' class="prompt"', "K": ' class="killed"'}.get(text[0], "")
        at = f'x="{MARGIN}" y="{BAR + MARGIN + row * LINE}"'
        pieces.append(f"<text {at}{kind}{shown_for(escape(text), start, end)}</text>")
    return "\n".join([*pieces, "</svg>\n"])


def shown_for(text: str, start: float, end: float | None) -> str:
    """A line and when it is shown. At the end, and where nothing moves, the last ones are."""
    at = '<set attributeName="visibility" to='
    if end is None:
        return f'>{text}{at}"hidden" begin="0s" dur="{start + 0.01:.2f}s"/>'
    lasts = f'begin="{start:.2f}s" dur="{max(end - start, 0.01):.2f}s"'
    return f' visibility="hidden">{text}{at}"visible" {lasts}/>'
