#!/usr/bin/env python3
"""Draws time against size from what measure.py or run_all.py wrote: `scale_plot.py scale.json > scale.svg`. Standard library only."""

import json
import math
import sys

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 30, 60
SERIES = (
    ("first_plan_ms", "first plan", "#1f77b4"),
    ("search_ms", "whole search", "#d62728"),
    ("total_ms", "whole call", "#7f7f7f"),
)


def svg(rows):
    """Log-log: tables x ranks on the x axis, ms on the y axis, a mark for each size and a line through each series."""
    rows = sorted(rows, key=lambda r: (r["tables"] * r["ranks"], r["tables"]))
    sizes = [r["tables"] * r["ranks"] for r in rows]
    times = [max(r[key], 1e-3) for r in rows for key, _, _ in SERIES]
    x_low, x_high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
    y_low, y_high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))

    def x(size):
        share = (math.log10(size) - x_low) / max(1, x_high - x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(ms):
        share = (math.log10(max(ms, 1e-3)) - y_low) / max(1, y_high - y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def text(at_x, at_y, words, anchor="middle", extra=""):
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" {extra}>{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(x_low, x_high + 1):
        at = x(10**power)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(text(at, HEIGHT - BOTTOM + 18, f"10<tspan dy='-5' font-size='9'>{power}</tspan>"))
    for power in range(y_low, y_high + 1):
        at = y(10**power)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, at + 4, f"{10.0**power:g} ms", "end"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "tables x ranks"))
    for position, (key, label, colour) in enumerate(SERIES):
        points = [(x(size), y(r[key]), r) for size, r in zip(sizes, rows)]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for a, b, r in points:
            title = f"{r['tables']} tables, {r['ranks']} ranks: {r[key]:.1f} ms"
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"><title>{title}</title></circle>')
        legend = TOP + 20 + 20 * position
        parts.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{legend - 4}" r="4" fill="{colour}"/>')
        parts.append(text(WIDTH - RIGHT + 30, legend, label, "start"))
    parts.append("</svg>\n")
    return "\n".join(parts)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        content = json.load(file)
    sys.stdout.write(svg(content["results"] if isinstance(content, dict) else content))
