"""The runs of `edgert moe simulate` as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgert.errors import size

if TYPE_CHECKING:
    from edgert.offload.simulate import SimulatedRun

_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#7b4b94", "#00798c", "#8d6a4f", "#444444")
_WIDTH, _HEIGHT, _LEFT, _TOP, _LEGEND = 640, 420, 60, 20, 220


def table(runs: Sequence[SimulatedRun], total_bytes: int) -> list[str]:
    """A line for each run; LRU and Belady without prediction of the same budget are the measures of the others."""
    lines = [
        f"{'budget':>6} {'policy':<8} {'predictor':<17} {'hits':>6} {'late':>6} {'of Belady':>9} {'read':>9} "
        f"{'of LRU':>6} {'wasted':>9} {'waiting':>8} {'of LRU':>6} {'recall':>6} {'tokens/s':>8}"
    ]
    for run in runs:
        lru, belady = (_reference(runs, run, policy) for policy in ("lru", "belady"))
        recall = f"{100 * sum(run.recall) / len(run.recall):5.1f}%" if run.predictor != "none" else ""
        lines.append(
            f"{100 * run.capacity_bytes / total_bytes:5.0f}% {run.policy:<8} {run.predictor:<17} "
            f"{100 * run.hit_rate:5.1f}% {100 * run.late_rate:5.1f}% {_ratio(run.hit_rate, belady.hit_rate):>9} "
            f"{size(run.read_bytes):>9} {_ratio(run.read_bytes, lru.read_bytes):>6} {size(run.wasted_bytes):>9} "
            f"{100 * run.stall_s / run.elapsed_s:7.1f}% {_ratio(run.stall_s, lru.stall_s):>6} {recall:>6} "
            f"{run.num_tokens / run.elapsed_s:8.1f}"
        )
    return lines


def recall_table(runs: Sequence[SimulatedRun]) -> list[str]:
    """A line for each layer: of the experts that its router chose, how many each predictor had among the likeliest.

    What a predictor says depends on the routing alone, so that one run of each tells it. Empty without a predictor.
    """
    by_predictor = {run.predictor: run.recall for run in runs if run.predictor != "none"}
    if not by_predictor:
        return []
    lines = [" ".join([f"{'recall':<8}", *(f"{name:>16}" for name in by_predictor)])]
    for layer, recalls in enumerate(zip(*by_predictor.values(), strict=True)):
        lines.append(" ".join([f"layer {layer:<2}", *(f"{100 * recall:15.1f}%" for recall in recalls)]))
    return lines


def _reference(runs: Sequence[SimulatedRun], run: SimulatedRun, policy: str) -> SimulatedRun:
    wanted = (run.capacity_bytes, policy, "none")
    return next(other for other in runs if (other.capacity_bytes, other.policy, other.predictor) == wanted)


def _ratio(value: float, reference: float) -> str:
    return f"{value / reference:.2f}" if reference else "-"


def hit_rate_svg(runs: Sequence[SimulatedRun], total_bytes: int) -> str:
    """Hit rate against the share of the experts that the cache holds, a line for each policy and predictor."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        name = run.policy if run.predictor == "none" else f"{run.policy} + {run.predictor}"
        curves.setdefault(name, []).append((run.capacity_bytes / total_bytes, run.hit_rate))
    right, bottom = _WIDTH - _LEGEND, _HEIGHT - 40

    def place(share: float, rate: float) -> str:
        return f"{_LEFT + (right - _LEFT) * share:.1f},{bottom - (bottom - _TOP) * rate:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for tenth in range(0, 11, 2):
        x, y = place(tenth / 10, 0).split(",")[0], place(0, tenth / 10).split(",")[1]
        parts += [
            f'<path d="M{_LEFT} {y}H{right}M{x} {_TOP}V{bottom}" stroke="#dddddd"/>',
            f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end" dy="4">{10 * tenth} %</text>',
            f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{10 * tenth} %</text>',
        ]
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 6}">experts in memory; upwards: hit rate</text>')
    for index, (name, points) in enumerate(curves.items()):
        colour, dash = _COLOURS[index % len(_COLOURS)], ' stroke-dasharray="5 3"' if index >= len(_COLOURS) else ""
        line = " ".join(place(*point) for point in sorted(points))
        height = _TOP + 16 * index + 8
        parts += [
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>',
            *(
                '<circle cx="{}" cy="{}" r="3" fill="{}"/>'.format(*place(*point).split(","), colour)
                for point in sorted(points)
            ),
            f'<path d="M{right + 12} {height}h20" stroke="{colour}" stroke-width="2"{dash}/>',
            f'<text x="{right + 38}" y="{height + 4}">{name}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
