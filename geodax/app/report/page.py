"""Colours and style sheet of a report, for light and dark pages and for print."""

INK = "#687180"
"""Colour of text, axes and reference lines."""

SERIES = ("#0072b2", "#d55e00", "#009e73", "#b5609a", "#c78a00", "#3c9bd6", "#8a5a44", "#7f8791")
"""Colours of chains, groups and components, in this order."""

NARROW_PAGE = 760
"""Width in pixels up to which a page shows the narrow version of its figures."""

THEME = (
    (INK, "#3d4652", "#c6ced8"),
    (SERIES[0], "#0068a3", "#4fa8e8"),
    (SERIES[1], "#c95400", "#ff8d50"),
    (SERIES[2], "#008a64", "#2fcb9d"),
    (SERIES[3], "#a84f8c", "#e39bc9"),
    (SERIES[4], "#a97400", "#e8b646"),
    (SERIES[5], "#2a86c0", "#93cff8"),
    (SERIES[6], "#7d4f3b", "#cf9f86"),
    (SERIES[7], "#6d757f", "#a7afba"),
)
"""Each colour as drawn, on a light page and on a dark page."""


def _plot_colours(column: int) -> str:
    return "".join(f"--plot-{i}:{colours[column]};" for i, colours in enumerate(THEME))


_LIGHT = (
    "--page:#fff;--ink:#1c2430;--soft:#566170;--line:#d9dee5;--band:#f5f7f9;--link:#0b5cad;"
    "--fine:#1a7f4b;--note:#2767b0;--warning:#9a6400;--severe:#b3261e;"
    "--fine-bg:#eaf6ef;--note-bg:#edf3fb;--warning-bg:#fdf4e0;--severe-bg:#fceceb;"
) + _plot_colours(1)

_DARK = (
    "--page:#14181e;--ink:#e3e8ee;--soft:#a3adb9;--line:#343c47;--band:#1c222a;--link:#7fb8f5;"
    "--fine:#5fce95;--note:#85b6f0;--warning:#eabb55;--severe:#ff8f86;"
    "--fine-bg:#15281f;--note-bg:#17243a;--warning-bg:#2e2612;--severe-bg:#361a19;"
) + _plot_colours(2)

STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
@media print{{:root{{color-scheme:light;{_LIGHT}}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%}}
body{{margin:0;background:var(--page);color:var(--ink);line-height:1.55;font-size:16px;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans",sans-serif}}
main{{max-width:960px;margin:0 auto;padding:2.2rem 1.4rem 4rem}}
header{{border-bottom:1px solid var(--line);padding-bottom:.9rem;margin-bottom:1.2rem}}
h1{{font-size:1.9rem;line-height:1.2;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}}
h2{{font-size:1.35rem;line-height:1.3;margin:2.6rem 0 .6rem;padding-top:.3rem}}
h3{{font-size:1.05rem;margin:1.8rem 0 .4rem}}
p,li{{max-width:46rem;overflow-wrap:break-word}}
p{{margin:.55rem 0}}
ul{{padding-left:1.2rem;margin:.5rem 0}}li{{margin:.25rem 0}}
a{{color:var(--link)}}
.subtitle{{color:var(--soft);margin:.4rem 0 0}}
nav{{background:var(--band);border-radius:8px;padding:.7rem 1.1rem .8rem}}
nav h2{{font-size:.95rem;margin:0 0 .2rem;padding:0}}
nav ol{{margin:0;padding-left:1.4rem;columns:2;column-gap:2.5rem}}
nav li{{margin:.1rem 0;break-inside:avoid}}nav a{{text-decoration:none}}
nav a:hover{{text-decoration:underline}}
code{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.88em;
overflow-wrap:anywhere}}
p code,li code{{background:var(--band);border-radius:4px;padding:.08em .3em;display:inline-block;max-width:100%;
line-height:1.3}}
pre{{background:var(--band);border-radius:8px;padding:.8rem 1rem;white-space:pre-wrap;line-height:1.45}}
.callout{{display:flex;gap:.8rem;border-left:4px solid;border-radius:6px;padding:.75rem 1rem;margin:.9rem 0;
break-inside:avoid}}
.callout>div{{min-width:0}}
.callout p{{margin:.25rem 0}}.callout .lead{{font-weight:600;margin-top:0}}
.callout .sign{{flex:none;width:1.5rem;height:1.5rem;border-radius:50%;display:grid;place-items:center;
font-weight:700;font-size:.85rem;color:var(--page)}}
.callout.fine{{border-color:var(--fine);background:var(--fine-bg)}}.fine .sign{{background:var(--fine)}}
.callout.note{{border-color:var(--note);background:var(--note-bg)}}.note .sign{{background:var(--note)}}
.callout.warning{{border-color:var(--warning);background:var(--warning-bg)}}
.warning .sign{{background:var(--warning)}}
.callout.severe{{border-color:var(--severe);background:var(--severe-bg)}}
.severe .sign{{background:var(--severe)}}
.fine .word{{color:var(--fine)}}.note .word{{color:var(--note)}}.warning .word{{color:var(--warning)}}
.severe .word{{color:var(--severe)}}
.table{{overflow-x:auto;margin:0 0 1.1rem}}
.table:focus-visible{{outline:2px solid var(--link);outline-offset:2px}}
table{{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:50%}}
.caption{{color:var(--soft);font-size:.9rem;max-width:52rem;margin:1.1rem 0 .45rem;break-after:avoid}}
.caption b,figcaption b{{color:var(--ink)}}
th,td{{padding:.32rem .75rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;
font-weight:400;vertical-align:top}}
thead th{{font-weight:600;border-bottom:2px solid var(--line);vertical-align:bottom;white-space:normal}}
th.words,td.words{{text-align:left;white-space:normal}}
td.words{{overflow-wrap:anywhere}}
tbody th{{overflow-wrap:break-word;min-width:5.5rem}}
.long tbody th{{overflow-wrap:anywhere;min-width:11rem}}
tbody tr:hover{{background:var(--band)}}
.more{{color:var(--soft);font-size:.9rem;margin-top:-.6rem}}
figure{{margin:1.3rem 0}}
figure svg{{display:block;width:100%;height:auto}}
figure svg.narrow{{display:none}}
@media screen and (max-width:{NARROW_PAGE}px){{figure svg.wide{{display:none}}figure svg.narrow{{display:block}}}}
figure svg text,figure svg tspan{{font-family:inherit!important}}
figcaption{{color:var(--soft);font-size:.9rem;max-width:52rem;margin-top:.35rem}}
@media (max-width:600px){{nav ol{{columns:1}}main{{padding:1.2rem .9rem 3rem}}
th,td{{padding:.32rem .45rem}}td{{white-space:normal}}}}
@media print{{body{{font-size:10.5pt}}main{{max-width:none;padding:0}}h2,h3{{break-after:avoid}}
figure,tr,.callout{{break-inside:avoid}}.table{{overflow:visible}}thead{{display:table-header-group}}
.callout,nav,.callout .sign{{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
a{{color:inherit;text-decoration:none}}}}
"""
