#include "monitor/report_style.h"

namespace ds {

const char* const report_style = R"(
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2430; --soft: #5d6775; --line: #e3e6eb;
  --c1: #2563c9; --c2: #d9660a; --c3: #14866d; --c4: #8a55c9; --c5: #b3820a; --c6: #c2406f; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1b2129; --text: #e4e8ee; --soft: #98a3b1;
  --line: #2d3540; --c1: #6ea1f5; --c2: #f39a4d; --c3: #4cc3a5; --c4: #b78cf0; --c5: #dcb04a; --c6: #f0809f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; font-weight: 650; margin: 0 0 2px; letter-spacing: -0.01em; }
h2 { font-size: 16px; font-weight: 650; margin: 0 0 10px; }
.key { color: var(--soft); font: 12px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; margin: 0 0 18px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 16px; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px; }
.facts dt { color: var(--soft); font-size: 12px; }
.facts dd { margin: 0; font-size: 19px; font-weight: 600; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(430px, 100%), 1fr)); gap: 16px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; min-width: 0; position: relative; }
.wide { grid-column: 1 / -1; }
figure { margin: 0; } figcaption { font-weight: 650; font-size: 16px; }
.note { color: var(--soft); font-size: 13px; margin: 6px 0 0; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; color: var(--soft); font-size: 13px; margin: 2px 0 4px; }
.legend i { display: inline-block; width: 14px; height: 4px; border-radius: 2px; margin-right: 6px; vertical-align: middle; background: currentColor; }
svg { display: block; width: 100%; height: auto; margin-top: 6px; overflow: visible; }
svg text { font: 11px system-ui, "DejaVu Sans", sans-serif; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .label, svg .value { font-size: 12px; fill: var(--text); } svg .value { fill: var(--soft); }
svg .name { fill: var(--text); stroke: var(--card); stroke-width: 4px; paint-order: stroke; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .level { stroke: var(--soft); stroke-dasharray: 5 4; }
.line { fill: none; stroke: currentColor; stroke-width: 1.9; stroke-linejoin: round; }
.faint { stroke-width: 1; opacity: .42; } .dot { fill: currentColor; stroke: var(--card); stroke-width: 1.2; }
.track { fill: var(--line); opacity: .55; } .bar { fill: currentColor; opacity: .5; } .part { opacity: 1; }
.timeline rect[class^=c] { fill: currentColor; }
.mark { stroke: var(--text); stroke-width: 2; } .cursor { stroke: var(--soft); visibility: hidden; }
.c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); }
.tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 4px 9px; font-size: 12px; box-shadow: 0 2px 8px #0003; display: none; white-space: nowrap; z-index: 1; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
td, th { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.columns { columns: 2 420px; column-gap: 32px; } .columns tr { break-inside: avoid; }
code, pre { font: 12.5px/1.55 ui-monospace, "DejaVu Sans Mono", monospace; } pre { white-space: pre-wrap; margin: 0; overflow-wrap: anywhere; }
.default td { color: var(--soft); }
)";

const char* const report_script = R"(
const units = [v => +v.toPrecision(5), v => Math.abs(v) < 1000 ? +v.toPrecision(4) : Intl.NumberFormat('en', {notation: 'compact', maximumSignificantDigits: 4}).format(v),
  v => (v / 1048576).toFixed(1) + ' MiB', v => v.toExponential(3)];
for (const svg of document.querySelectorAll('svg[data-chart]')) {
  const chart = JSON.parse(svg.dataset.chart), card = svg.closest('.card'), cursor = svg.querySelector('.cursor');
  const tip = card.appendChild(Object.assign(document.createElement('div'), {className: 'tip'}));
  const width = svg.viewBox.baseVal.width;
  const hide = () => { tip.style.display = 'none'; cursor.style.visibility = 'hidden'; };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), px = (event.clientX - box.left) * width / box.width;
    if (px < chart.l || px > chart.r) return hide();
    const x = chart.x0 + (px - chart.l) / (chart.r - chart.l) * (chart.x1 - chart.x0);
    let rows = '', at = x;
    for (const s of chart.s) {
      if (!s.p.length) continue;
      const p = s.p.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      if (!rows) at = p[0];
      rows += `<div><span class="c${s.c}">&#9632;</span> ${s.n} <b>${units[chart.u](p[1])}</b></div>`;
    }
    tip.innerHTML = `<div>step ${at}</div>` + rows;
    const shown = chart.l + (at - chart.x0) / (chart.x1 - chart.x0) * (chart.r - chart.l);
    cursor.setAttribute('transform', `translate(${shown} 0)`);
    cursor.style.visibility = 'visible';
    tip.style.display = 'block';
    const frame = card.getBoundingClientRect(), left = event.clientX - frame.left;
    tip.style.left = (left + 14 + tip.offsetWidth > frame.width ? left - 14 - tip.offsetWidth : left + 14) + 'px';
    tip.style.top = (event.clientY - frame.top + 12) + 'px';
  });
}
)";

}  // namespace ds
