"""The frame of a report: one HTML file with its style, without scripts, that asks for nothing else."""

from typing import Sequence

from neuroshard.report.markup import Markup, printable, tag
from neuroshard.report.units import plural

MOST_ROWS = 24

# Okabe and Ito's colours, which colour-blind people tell apart, are stages of an iteration; shades of violet are kinds of memory; what is grey or black
# has no code. Every colour is also named beside what it stands for.
STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1f;--soft:#5c5f66;--rule:#d9dbe0;--paper:#fff;--shade:#f3f4f6;--alarm:#a33b00;
--blue:#0072b2;--sky:#56b4e9;--orange:#e69f00;--red:#d55e00;--green:#009e73;--grey:#9a9da5;
--m1:#41246f;--m2:#7a55b3;--m3:#a98ad6;--m4:#cdb8ea;--m5:#e6dbf5}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--soft:#a4a7ae;--rule:#3a3d44;--paper:#17181b;--shade:#212327;--alarm:#ff9d5c;
--blue:#2b8fd0;--grey:#7d8088;--m1:#e6dbf5;--m2:#c3aae6;--m3:#9b78cf;--m4:#7450ad;--m5:#523585}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:62rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
h1{font-size:1rem;font-weight:600;color:var(--soft);margin:0 0 .35rem}
h2{font-size:1.15rem;line-height:1.3;margin:2.6rem 0 .3rem;break-after:avoid}
h3{font-size:.95rem;margin:1.4rem 0 .2rem;break-after:avoid}
p{margin:.3rem 0 .8rem;max-width:46rem}
.answer{font-size:1.45rem;line-height:1.3;font-weight:600;margin:0 0 .6rem;letter-spacing:-.01em}
.soft,figcaption,.axis,thead th,dt{color:var(--soft)}
.notes{margin:1rem 0;padding:.6rem .9rem;border-left:4px solid var(--grey);background:var(--shade);list-style:none}
.notes.bad{border-color:var(--alarm)}
.notes li+li{margin-top:.35rem}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1.1rem;margin:.5rem 0 .7rem;padding:0;list-style:none;font-size:.86rem}
.legend i,.swatch{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px;vertical-align:-.06em}
.blue{background:var(--blue);fill:var(--blue);stroke:var(--blue)}.sky{background:var(--sky);fill:var(--sky);stroke:var(--sky)}
.orange{background:var(--orange);fill:var(--orange);stroke:var(--orange)}.red{background:var(--red);fill:var(--red);stroke:var(--red)}
.green{background:var(--green);fill:var(--green);stroke:var(--green)}.plain{background:var(--soft);fill:var(--soft);stroke:var(--soft)}
.m1{background:var(--m1);fill:var(--m1)}.m2{background:var(--m2);fill:var(--m2)}.m3{background:var(--m3);fill:var(--m3)}
.m4{background:var(--m4);fill:var(--m4)}.m5{background:var(--m5);fill:var(--m5)}
.free{background:repeating-linear-gradient(45deg,var(--grey) 0 2px,transparent 2px 5px);fill:var(--grey)}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{padding:.2rem .5rem;text-align:left;vertical-align:top;font-weight:400;unicode-bidi:isolate}
th[scope=row]{min-width:6.5rem}
.chart th[scope=row]{min-width:0}
.type{white-space:nowrap}
.chart+.grid,.chart+details{margin-top:1rem}
thead th{font-size:.8rem;vertical-align:bottom;white-space:nowrap}
tbody tr{break-inside:avoid}
.number{text-align:right;white-space:nowrap}
.chart th,.chart td{vertical-align:middle;padding:.13rem 0 .13rem .6rem}
.chart th:first-child{padding-left:0;white-space:nowrap;width:1%}
.chart .number{width:1%}
.chart .bar{width:auto;min-width:7rem}
.track{position:relative;display:flex;height:1.35rem;background:repeating-linear-gradient(90deg,var(--rule) 0 1px,transparent 1px var(--step))}
.track i{height:100%;flex:none}
.track s{position:absolute;left:0;top:0;bottom:0;border-right:2px solid var(--ink);border-bottom:1px solid var(--rule)}
.interval{position:absolute;top:calc(50% - 3px);height:7px;border:solid var(--ink);border-width:0 1.5px}
.interval::after{content:"";position:absolute;left:0;right:0;top:2.5px;border-top:1.5px solid var(--ink);box-shadow:0 0 0 .7px var(--paper)}
.dot{position:absolute;top:calc(50% - 5px);width:10px;height:10px;margin-left:-5px;border-radius:50%;background:var(--paper);border:2px solid var(--ink)}
.dot.in{background:var(--ink);box-shadow:0 0 0 1px var(--paper)}
.tick{position:absolute;top:-2px;bottom:-2px;width:3px;margin-left:-1.5px;background:var(--ink);outline:1px solid var(--paper)}
.track u{position:absolute;top:-.13rem;bottom:-.13rem}
.track u,.legend u{width:0;border-left:2px dashed var(--ink)}
.legend .interval,.legend .dot,.legend .tick,.legend u{position:relative;display:inline-block;margin:0 .45em 0 0;left:0;top:0;vertical-align:middle}
.legend .interval{width:1.4em;top:-.1em}
.legend .tick{height:1em}.legend u{height:1em}
.axis{position:relative;height:1.2em;margin-right:.6rem}
.axis span{position:absolute;transform:translateX(-50%)}
.axis span:first-child{transform:none}
.hot th,.hot .number{font-weight:700}
.dense .track{height:.85rem}.dense{font-size:.8rem}.dense th,.dense td{padding-top:.05rem;padding-bottom:.05rem}
.sideways{overflow-x:auto}
.sideways th:first-child{position:sticky;left:0;background:var(--paper);z-index:1}
.grid td,.grid th{border-bottom:1px solid var(--rule)}
sup{line-height:0}
figure{margin:.6rem 0 1rem}
figure svg{display:block;width:100%}
.overview svg{height:7rem;border-bottom:1px solid var(--soft)}
.overview path,.runs path{stroke:none}
.runs path{fill:var(--soft)}
figcaption{display:flex;justify-content:space-between;gap:.5rem;font-size:.8rem}
.places{display:flex;gap:.7rem;align-items:center}
.places span{min-width:3.2rem}
.runs{flex:none;width:8rem;height:.75rem;background:var(--shade)}
details{margin:.8rem 0}
summary{cursor:pointer;font-size:.9rem;color:var(--soft);margin-bottom:.3rem}
.module{color:var(--soft);font-size:.8rem;display:block}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:1rem 1.5rem}
.plots sup{line-height:0}
figure{margin:0;break-inside:avoid}
.plots .axis span:nth-child(even){display:none}
.plots svg{max-width:22rem}
.plots text{font-size:10px;fill:var(--soft)}
.plots .rule{stroke:var(--rule);fill:none}
.plots .diagonal{stroke:var(--ink);fill:none}
.plots .cloud{stroke:var(--blue);stroke-width:3;stroke-linecap:round;opacity:.5;fill:none}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.88rem;margin:.5rem 0}
dd{margin:0}
@media(max-width:60rem){.roomy{display:none}}
@media(max-width:40rem){
.wide,.axis span:nth-child(even){display:none}
.answer{font-size:1.2rem}
.stack thead{display:none}
.stack tr{display:grid;grid-template-columns:1fr auto;padding:.45rem 0;border-bottom:1px solid var(--rule)}
.stack td,.stack th{border:0;padding:.05rem 0;text-align:left}
.stack th,.stack .full{grid-column:1/-1}
.stack th{font-weight:600}
.labelled thead{display:none}
.labelled tr{display:flex;flex-wrap:wrap;gap:.05rem 1rem;padding:.45rem 0;border-bottom:1px solid var(--rule)}
.labelled th,.labelled td{border:0;padding:0;text-align:left;white-space:normal}
.labelled th{flex:0 0 100%;font-weight:600}
.labelled td:empty{display:none}
.labelled td::before{content:attr(data-of) " ";color:var(--soft)}
.sideways{overflow:visible}
}
@media print{
:root{--ink:#000;--soft:#444;--paper:#fff;--shade:#f3f4f6;--rule:#ccc;--blue:#0072b2}
body{max-width:none;padding:0;font-size:10pt}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
details.printed::details-content{content-visibility:visible;display:block}
.printed summary{list-style:none}
.sideways{overflow:visible}
.sideways th:first-child{position:static}
@page{margin:14mm}
}
"""


def page(title: str, body: Sequence[Markup]) -> str:
    """A whole document. Its policy lets a browser load nothing and run nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", printable(title, 120)),
        tag("style", Markup(STYLE)),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, tag("body", list(body)), lang="en") + "\n"


def details(summary: str, *children, printed: bool = True) -> Markup:
    """What is shown when it is asked for; in print it is open."""
    return tag("details", tag("summary", summary), *children, class_="printed" if printed else None)


def listing(head: Markup, rows: Sequence[Markup], what: str, css: str) -> Markup:
    """A table, the most important rows first; those beyond MOST_ROWS behind a summary, since nothing scrolls inside the page."""
    def table(some: Sequence[Markup]) -> Markup:
        return tag("table", tag("thead", head), tag("tbody", list(some)), class_=f"grid {css}")

    first, others = rows[:MOST_ROWS], rows[MOST_ROWS:]
    return Markup(table(first) + (details(f"{plural(len(others), f'more {what}')}", table(others)) if others else ""))


def section(title: str, *children) -> Markup:
    return tag("section", tag("h2", title), *children)


def notes(texts: Sequence[str], is_bad: bool = False, at_most: int = 100) -> Markup:
    """Warnings or faults; what is left out is counted."""
    if not texts:
        return Markup()
    shown = [tag("li", printable(text, 600)) for text in texts[:at_most]]
    if len(texts) > at_most:
        shown.append(tag("li", f"and {len(texts) - at_most:,} more"))
    return tag("ul", shown, class_="notes bad" if is_bad else "notes")


def facts(pairs: Sequence[Sequence[str]]) -> Markup:
    return tag("dl", [[tag("dt", name), tag("dd", printable(value, 300))] for name, value in pairs])
