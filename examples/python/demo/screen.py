"""What the demo looks like: eighty columns, on a terminal or in a file."""

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from rich.theme import Theme

from examples.python.demo.failures import DemoFailure

WIDTH = 80
_STYLES = Theme(
    {
        "heading": "bold cyan",
        "site": "bold magenta",
        "device": "bold green",
        "relay": "bold blue",
        "number": "bold yellow",
        "quiet": "bright_black",
        "good": "bold green",
        "bad": "bold red",
    }
)
# Colours of the picture: readable on its own dark ground, wherever it is shown.
_PICTURE = TerminalTheme(
    (22, 27, 34),
    (220, 226, 233),
    [
        *((72, 79, 88), (255, 123, 114), (87, 209, 121), (240, 196, 94)),
        *((121, 178, 255), (214, 160, 255), (86, 212, 221), (177, 186, 196)),
    ],
    [
        *((139, 148, 158), (255, 161, 152), (110, 231, 145), (250, 214, 120)),
        *((150, 200, 255), (226, 184, 255), (120, 226, 233), (240, 246, 252)),
    ],
)
# The template that comes with rich fetches its font from another server.
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Screen:
    """Prints the demo."""

    def __init__(self, *, pictured_from: int | None = None) -> None:
        """Print, and draw a picture of everything from that step on."""
        # Whoever reads this through a pipe in an odd locale gets question marks rather than a traceback.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        self.console = Console(theme=_STYLES, highlight=False)
        self.console.width = min(self.console.width, WIDTH)
        self._picture = Console(
            theme=_STYLES, highlight=False, record=True, width=WIDTH, force_terminal=True, file=StringIO()
        )
        self._pictured_from = pictured_from
        self._pictured = False

    def _print(self, renderable: RenderableType = "") -> None:
        self.console.print(renderable)
        if self._pictured:
            self._picture.print(renderable)

    def title(self, title: str, text: str) -> None:
        self._print(Panel(Group(Text(title, style="bold"), Text(text)), border_style="cyan"))

    def heading(self, number: int, title: str) -> None:
        """Begin a step."""
        self._print()
        # After the empty line: a picture does not begin with one.
        self._pictured = self._pictured or number == self._pictured_from
        self._print(Rule(f"[heading]{number}  {escape(title)}[/]", align="left", style="cyan"))

    def say(self, markup: str) -> None:
        self._print(markup)

    def quote(self, markup: str) -> None:
        """Print something indented."""
        self.show(Text.from_markup(markup))

    def command(self, typed: str) -> None:
        """Show a command as a person would type it, a long one over several lines."""
        # An option and its value stay together.
        joined = re.sub(r"(--[a-z-]+) (?!-)", "\\1\0", typed)
        wrapped = textwrap.wrap(
            joined, self.console.width - 8, break_on_hyphens=False, break_long_words=False
        )
        lines = [line.replace("\0", " ") for line in wrapped]
        # As it is: blanks that fill a line after its backslash would break the command when it is copied.
        self._print(Text.assemble(("  $ ", "quiet"), " \\\n      ".join(lines)))

    def facts(self, rows: Iterable[tuple[str, str]]) -> None:
        """Print names and what is to be said of them, as markup."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="quiet", no_wrap=True)
        table.add_column()
        for name, value in rows:
            table.add_row(escape(name), value)
        self.show(table)

    def moments(self, rows: Iterable[tuple[float, str]]) -> None:
        """Print a time line: milliseconds and what happened then, as markup."""
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="number", no_wrap=True)
        table.add_column()
        for at_ms, what in rows:
            table.add_row(f"{at_ms:,.0f} ms", what)
        self.show(table)

    def columns(
        self, heads: Sequence[str], rows: Iterable[Sequence[str]], *, ratios: Sequence[int] = ()
    ) -> None:
        """Print a table whose cells are markup; columns get their share of the width, or what they need."""
        table = Table(box=box.ROUNDED, border_style="quiet", header_style="bold", expand=bool(ratios))
        for number, head in enumerate(heads):
            ratio = ratios[number] if ratios else None
            justify: JustifyMethod = "right" if head == "bytes" else "left"
            table.add_column(head, ratio=ratio, overflow="fold", justify=justify)
        for row in rows:
            table.add_row(*row)
        self._print(table)

    def show(self, renderable: RenderableType) -> None:
        self._print(Padding(renderable, (0, 0, 0, 2), expand=False))

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show that something goes on, where that can be taken away again."""
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(f"[quiet]{escape(what)}[/]"):
            yield

    def summary(self, done: Sequence[str], further: Sequence[tuple[str, str]]) -> None:
        """Print what was shown and what to try now."""
        self._pictured = False
        self._print()
        lines = [Text.from_markup(f"[good]✓[/] {line}") for line in done]
        table = Table.grid(padding=(0, 2))
        for command, meaning in further:
            table.add_row(Text(command, style="bold"), Text(meaning, style="quiet"))
        panel = Group(*lines, Text(), Text("What to try next", style="heading"), table)
        self._print(Panel(panel, title="[good]It all worked[/]", border_style="green"))

    def failure(self, failure: DemoFailure) -> None:
        """Explain what went wrong."""
        self._print()
        if failure.output:
            self._print(Rule(f"[quiet]last lines of {escape(failure.process)}[/]", style="quiet"))
            for line in failure.output:
                self.console.print(Text(line, style="quiet"), soft_wrap=True)
        body: list[RenderableType] = [Text(failure.what)]
        if failure.advice:
            body.append(Text(failure.advice, style="bold"))
        self._print(Panel(Group(*body), title="[bad]The demo failed[/]", border_style="red"))

    def save_picture(self, path: Path) -> None:
        """Write all that was printed as an SVG picture that needs nothing from elsewhere."""
        picture = self._picture.export_svg(title="make demo", theme=_PICTURE)
        path.write_text(_self_contained(picture), encoding="utf-8")


def quoted(text: str, most: int = 400) -> str:
    """Return text that came from outside as markup on one paragraph, bounded."""
    return escape(textwrap.shorten(text, most, placeholder=" …"))


def _self_contained(picture: str) -> str:
    lines = picture.splitlines()
    kept = []
    inside_font = False
    for line in lines:
        inside_font = inside_font or "@font-face" in line
        if not inside_font:
            kept.append(line.replace("Fira Code, monospace", _FONT))
        elif line.strip() == "}":
            inside_font = False
    return "\n".join(kept) + "\n"
