"""Pictures of the last hours, as SVG drawn here: nothing of anybody else's is loaded for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 720, 120
_LEFT, _TOP, _BOTTOM = 52, 10, 18
_MARKS = 6  # moments along the bottom

_WHOLE = Markup(
    '<svg class="picture {kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{inside}</svg>'
)
_BAR = Markup(
    '<rect class="bar" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"><title>{said}</title></rect>'
)
_LINE = Markup('<line class="grid" x1="{left}" x2="{right}" y1="{y:.2f}" y2="{y:.2f}"/>')
_TEXT = Markup('<text class="{kind}" x="{x:.2f}" y="{y:.2f}">{text}</text>')


@dataclass(frozen=True, slots=True)
class Bar:
    """One step: from when, how much (None: nothing to tell), and that in words."""

    since: datetime
    value: float | None
    said: str


def draw(kind: str, title: str, bars: Sequence[Bar], unit: str = "") -> Markup:
    """Draw bars side by side, with the largest written at the top and moments along the bottom."""
    largest = max((bar.value or 0 for bar in bars), default=0)
    room, width = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT) / max(len(bars), 1)
    inside = [_LINE.format(left=_LEFT, right=_WIDTH, y=y) for y in (_TOP, _TOP + room / 2, _TOP + room)]
    inside += [_text("most", _LEFT - 6, _TOP + 4, _written(largest, unit))] if largest else []
    inside += [_text("most", _LEFT - 6, _TOP + room, "0")]
    for place, bar in enumerate(bars):
        height = room * (bar.value or 0) / largest if largest else 0
        shown = max(height, 1.5) if bar.value else 0  # one of a thousand is still seen
        inside.append(
            _BAR.format(
                x=_LEFT + place * width,
                y=_TOP + room - shown,
                width=max(width - 0.8, 0.4),
                height=shown,
                said=f"{_clock(bar.since)}: {bar.said}",
            )
        )
    every = max(len(bars) // _MARKS, 1)
    for place, bar in list(enumerate(bars))[::every]:
        inside.append(_text("mark", _LEFT + place * width, _HEIGHT - 4, _clock(bar.since)))
    label = f"{title}: the most in one step is {_written(largest, unit)}"
    return _WHOLE.format(kind=kind, width=_WIDTH, height=_HEIGHT, label=label, inside=Markup("").join(inside))


def _text(kind: str, x: float, y: float, text: str) -> Markup:
    return _TEXT.format(kind=kind, x=x, y=y, text=escape(text))


def _written(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"  # noqa: PLR2004
    return f"{number} {unit}".strip()


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%H:%M}"
