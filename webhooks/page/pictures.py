"""Pictures of the last hours, as SVG drawn here: nothing of anybody else's is loaded for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from webhooks.process.spans import in_words

_WIDTH, _HEIGHT = 720, 120
_LEFT, _TOP, _BOTTOM = 64, 10, 18
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
    largest = _largest(bars)
    room, width = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT) / max(len(bars), 1)
    inside = [_LINE.format(left=_LEFT, right=_WIDTH, y=y) for y in (_TOP, _TOP + room / 2, _TOP + room)]
    inside += [_text("most", _LEFT - 6, _TOP + 4, _written(largest, unit))] if largest else []
    inside += [_text("most", _LEFT - 6, _TOP + room, "0")]
    for place, bar in enumerate(bars):
        if not bar.value:
            continue
        shown = max(room * bar.value / largest, 1.5)  # one of a thousand is still seen
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
    label = f"{title}: at most {most(bars, unit)} in a bar"
    return _WHOLE.format(kind=kind, width=_WIDTH, height=_HEIGHT, label=label, inside=Markup("").join(inside))


def most(bars: Sequence[Bar], unit: str = "") -> str:
    """Write the largest of them."""
    return _written(_largest(bars), unit)


def _largest(bars: Sequence[Bar]) -> float:
    return max((bar.value or 0 for bar in bars), default=0)


def _text(kind: str, x: float, y: float, text: str) -> Markup:
    return _TEXT.format(kind=kind, x=x, y=y, text=escape(text))


def _written(value: float, unit: str) -> str:
    return in_words(timedelta(seconds=value)) if unit == "s" else f"{value:,.0f}"


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%H:%M}"
