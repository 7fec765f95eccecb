"""Line plots as inline SVG, without a library: a few hundred points, epochs marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dlcheck.reporters.counted import size

WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 10, 22
MIB = 1 << 20
THOUSAND = 1_000
MILLION = 1_000_000
TEN = 10
# A flat line must look flat: the axis spans this part of the highest value at least.
LEAST_SPAN = 0.05

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a plot. `dots` draws its points, for the few that are exact."""

    name: str
    points: Sequence[Point]
    dots: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot and its words. `bounds` are the places on the x axis where an epoch ended.

    `state` is what the verdict calls it: growing, saturating; empty for what is flat.
    """

    title: str
    lines: Sequence[Line]
    unit: str = "bytes"
    across: str = "samples"
    bounds: Sequence[float] = field(default_factory=tuple)
    state: str = ""

    @property
    def words(self) -> str:
        """Say from what to what its main line went: `412 MiB to 431 MiB`."""
        points = self.lines[0].points
        if not points:
            return ""
        first, last = amount(points[0][1], self.unit), amount(points[-1][1], self.unit)
        return first if first == last else f"{first} to {last}"


def amount(value: float, unit: str = "bytes") -> str:
    """Write an amount in few digits: `1.21 GiB`, `31`, `2.4M`."""
    if unit == "bytes":
        return size(value)
    if abs(value) >= MILLION:
        return f"{value / MILLION:.3g}M"
    if abs(value) >= TEN * THOUSAND:
        return f"{value / THOUSAND:.3g}k"
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"


def svg(plot: Plot) -> str:
    """Draw a plot; all that it holds is numbers, so nothing of it needs escaping."""
    points = [point for line in plot.lines for point in line.points]
    if not points:
        return ""
    scale = _Scale(points, counts=plot.unit != "bytes")
    drawn = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" class="plot">',
        *_axes(scale, plot),
        *(
            f'<path class="epoch" d="M{scale.x(at)} {TOP}V{HEIGHT - BOTTOM}"/>'
            for at in plot.bounds
        ),
    ]
    for number, line in enumerate(plot.lines):
        drawn += _line(line, scale, number, plot.unit)
    return "".join([*drawn, "</svg>"])


class _Scale:
    """Turns values into places on the paper."""

    def __init__(self, points: Sequence[Point], *, counts: bool) -> None:
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        self.left, self.right = min(0.0, *xs), max(*xs, 1.0) if len(xs) > 1 else max(xs[0], 1.0)
        self.low, self.high = min(ys), max(ys)
        least = max(abs(self.high) * LEAST_SPAN, 4.0 if counts else float(MIB))
        if self.high - self.low < least:
            middle = (self.low + self.high) / 2
            self.low, self.high = max(middle - least / 2, min(0.0, self.low)), middle + least / 2

    def x(self, value: float) -> float:
        share = (value - self.left) / max(self.right - self.left, 1e-9)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / max(self.high - self.low, 1e-9)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def _axes(scale: _Scale, plot: Plot) -> Iterable[str]:
    for share in (0.0, 0.5, 1.0):
        value = scale.low + share * (scale.high - scale.low)
        y = scale.y(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        words = amount(value, plot.unit)
        yield f'<text x="{LEFT - 6}" y="{y + 3.5}" text-anchor="end">{words}</text>'
    base = HEIGHT - 6
    yield f'<text x="{LEFT}" y="{base}">{amount(scale.left, "")}</text>'
    words = f"{amount(scale.right, '')} {plot.across}"
    yield f'<text x="{WIDTH - RIGHT}" y="{base}" text-anchor="end">{words}</text>'


def _line(line: Line, scale: _Scale, number: int, unit: str) -> Iterable[str]:
    if len(line.points) > 1:
        places = " ".join(f"{scale.x(x)},{scale.y(y)}" for x, y in line.points)
        yield f'<polyline class="line l{number}" points="{places}"/>'
    if line.dots or len(line.points) == 1:
        for x, y in line.points:
            words = f"{amount(x, '')}: {amount(y, unit)}"
            yield (
                f'<circle class="dot l{number}" cx="{scale.x(x)}" cy="{scale.y(y)}" r="2.6">'
                f"<title>{words}</title></circle>"
            )
