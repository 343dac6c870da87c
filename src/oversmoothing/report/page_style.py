"""The style sheet of the page: light, printable, verdicts in colour."""

STYLE = """\
:root { color-scheme: light; --line: #d8dde3; --soft: #f5f7f9; --ink: #1d242b; --grey: #616c78; }
* { box-sizing: border-box; }
body {
  margin: 0; background: #fff; color: var(--ink);
  font: 16px/1.55 system-ui, "DejaVu Sans", sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 {
  font-size: 1.35rem; margin: 2.75rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line);
}
nav { background: var(--soft); border-radius: 6px; padding: .6rem 1rem; }
nav ol { margin: 0; padding-left: 1.4rem; }
a { color: #0b5cad; }
pre {
  background: var(--soft); padding: .6rem .9rem; border-radius: 6px; overflow-x: auto;
  font-size: .88rem;
}
.wide { overflow-x: auto; margin: 1rem 0; }
table {
  border-collapse: collapse; width: 100%; font-size: .86rem;
  font-variant-numeric: tabular-nums;
}
th, td {
  padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: center;
  white-space: nowrap;
}
th:first-child { text-align: left; }
thead th { border-bottom: 2px solid var(--ink); }
tbody th { font-weight: 500; }
td small { display: block; color: #4b5560; font-size: .76rem; }
.grid { table-layout: fixed; min-width: 58rem; }
.grid tbody th { white-space: normal; }
.plain td, .plain th { white-space: normal; }
.plain { width: auto; }
.plain td, .plain th { text-align: left; }
.within { background: #e3f3e6; }
.off { background: #fdf0cf; }
.contradicted { background: #f9d9d6; }
.measured { background: #fff; }
.not-run, .missing { background: var(--soft); color: var(--grey); }
.caption { font-weight: 600; margin-bottom: .25rem; }
.notes { color: var(--grey); font-size: .86rem; padding-left: 1.2rem; }
details { margin: 1rem 0; }
summary { cursor: pointer; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; height: auto; }
figcaption { color: var(--grey); font-size: .86rem; }
@media print {
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  table { font-size: 7.5pt; }
  .wide { overflow: visible; }
  .grid { min-width: 0; }
  tr, figure { break-inside: avoid; }
  h2 { break-after: avoid; }
  td { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
