#include "monitor/run_report_style.h"

namespace ds {

const char* const report_style = R"(
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --text: #1a212b; --soft: #566070; --line: #e1e4e9;
  --c1: #2563c9; --c2: #c85a05; --c3: #11806a; --c4: #8250c4; --c5: #94690a; --c6: #bd3a69; }
@media (prefers-color-scheme: dark) { :root { --page: #11151a; --card: #1a2028; --text: #e6eaf0; --soft: #a3adba;
  --line: #313a46; --c1: #6ea1f5; --c2: #f39a4d; --c3: #4cc3a5; --c4: #b78cf0; --c5: #dcb04a; --c6: #f0809f; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 60px; }
h1 { font-size: 26px; line-height: 1.25; font-weight: 650; margin: 0 0 18px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 17px; line-height: 1.3; font-weight: 650; margin: 0; }
h3 { font-size: 14px; font-weight: 600; margin: 14px 0 2px; }
.span, .note, .legend { color: var(--soft); font-size: 14px; margin: 0; } .span { margin-bottom: 8px; } .note { margin-top: 10px; max-width: 75ch; }
.facts { display: flex; flex-wrap: wrap; gap: 1px; margin: 0 0 16px; background: var(--line);
  border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
.facts div { flex: 1 1 190px; background: var(--card); padding: 12px 16px; min-width: 0; }
.facts dt { color: var(--soft); font-size: 14px; }
.facts dd { margin: 0; font-size: 21px; line-height: 1.35; font-weight: 650; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.facts small { display: block; color: var(--soft); font-size: 14px; line-height: 1.4; font-weight: 400; }
.cards { display: flex; flex-wrap: wrap; gap: 16px; }
.card { flex: 1 1 300px; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; min-width: 0; position: relative; }
.wide { flex-basis: 100%; }
.groups { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr)); gap: 0 32px; }
figure { margin: 0; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin-bottom: 8px; }
.legend i { display: inline-block; width: 16px; height: 4px; border-radius: 2px; margin-right: 7px; vertical-align: middle; background: currentColor; }
.plot { display: flex; font-size: 14px; line-height: 20px; color: var(--soft); font-variant-numeric: tabular-nums; padding-top: 8px; }
.ys { position: relative; flex: none; } .ys span { position: absolute; right: 8px; transform: translateY(-50%); white-space: nowrap; }
.area { position: relative; flex: 1; min-width: 0; padding-bottom: 26px; }
.area svg { display: block; width: 100%; }
.xs span { position: absolute; bottom: 0; transform: translateX(-50%); } .xs .first { transform: none; } .xs .last { transform: translateX(-100%); }
.name { position: absolute; right: 2px; transform: translateY(-100%); color: var(--text); text-shadow: 0 0 3px var(--card), 0 0 3px var(--card), 0 0 3px var(--card); }
.name.left { right: auto; left: 2px; } .name.below { transform: none; }
.plot path { fill: none; vector-effect: non-scaling-stroke; }
.plot .grid { stroke: var(--line); } .plot .axis { stroke: var(--soft); } .plot .level { stroke: var(--soft); stroke-dasharray: 5 4; }
.plot .line { stroke: currentColor; stroke-width: 2; stroke-linejoin: round; } .plot .faint { stroke-width: 1; opacity: .45; }
.plot .dot { stroke: currentColor; stroke-width: 7; stroke-linecap: round; } .plot .cursor { stroke: var(--soft); visibility: hidden; }
.bars { list-style: none; margin: 0; padding: 0; font-size: 14px; line-height: 20px; font-variant-numeric: tabular-nums; }
.bars li { display: grid; grid-template-columns: 8em minmax(0, 1fr) minmax(0, var(--value)); gap: 12px; align-items: center; padding: 3px 0; }
.value { color: var(--soft); text-align: right; }
.track { display: block; width: 100%; height: 14px; background: var(--line); border-radius: 3px; overflow: hidden; position: relative; }
.track i { position: absolute; inset: 0 auto 0 0; min-width: 2px; background: currentColor; } .track .pale { opacity: .45; }
.track rect { fill: currentColor; }
.c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); }
.tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 4px 10px; font-size: 14px; box-shadow: 0 2px 8px #0003; display: none; white-space: nowrap; z-index: 1; }
.tip i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; background: currentColor; margin-right: 6px; }
.scroll { overflow-x: auto; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { text-align: left; padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; white-space: nowrap; }
td.long { white-space: normal; min-width: 12em; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; }
details { margin-top: 14px; } summary { cursor: pointer; font-size: 14px; padding: 4px 0; }
.about { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 20px; margin: 8px 0 0; font-size: 14px; }
.about dt { color: var(--soft); } .about dd { margin: 0; overflow-wrap: anywhere; }
code, pre { font: 14px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; } pre { white-space: pre-wrap; margin: 6px 0 0; overflow-wrap: anywhere; }
:focus-visible { outline: 2px solid var(--c1); outline-offset: 2px; }
@media (max-width: 700px) {
  main { padding: 20px 12px 40px; } h1 { font-size: 22px; }
  .facts div { flex-basis: 40%; padding: 10px 12px; } .facts dd { font-size: 19px; }
  .card { flex-basis: 100%; padding: 14px; }
  .bars li { grid-template-columns: 1fr auto; gap: 2px 12px; padding: 5px 0; } .bars .track { grid-column: 1 / -1; grid-row: 2; }
  .about { grid-template-columns: minmax(0, 1fr); gap: 0; } .about dd { margin-bottom: 8px; }
}
)";

const char* const report_script = R"(
// Values under the pointer; the page is complete without.
const units = [v => +v.toPrecision(5), v => Math.abs(v) < 1000 ? +v.toPrecision(4) : Intl.NumberFormat('en', {notation: 'compact', maximumSignificantDigits: 4}).format(v)];
const made = (name, className, text, parent) => parent.appendChild(Object.assign(document.createElement(name), {className, textContent: text}));
for (const svg of document.querySelectorAll('svg[data-chart]')) {
  const chart = JSON.parse(svg.dataset.chart), card = svg.closest('.card'), cursor = svg.querySelector('.cursor');
  const tip = made('div', 'tip', '', card), width = svg.viewBox.baseVal.width;
  const hide = () => { tip.style.display = 'none'; cursor.style.visibility = 'hidden'; };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), part = (event.clientX - box.left) / box.width;
    const x = chart.x0 + part * (chart.x1 - chart.x0), rows = [];
    for (const s of chart.s) {
      if (s.p.length) rows.push([s, s.p.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)]);
    }
    if (!rows.length) return hide();
    const at = rows[0][1][0];
    tip.textContent = `step ${at}`;
    for (const [s, p] of rows) {
      const row = made('div', '', '', tip);
      made('i', `c${s.c}`, '', row);
      row.append(`${s.n} ${units[chart.u](p[1])}` + (p[0] === at ? '' : `, step ${p[0]}`));
    }
    cursor.setAttribute('transform', `translate(${(at - chart.x0) / (chart.x1 - chart.x0) * width} 0)`);
    cursor.style.visibility = 'visible';
    tip.style.display = 'block';
    const frame = card.getBoundingClientRect(), left = event.clientX - frame.left;
    const room = left + 14 + tip.offsetWidth > frame.width ? left - 14 - tip.offsetWidth : left + 14;
    tip.style.left = Math.max(0, room) + 'px';
    tip.style.top = (event.clientY - frame.top + 12) + 'px';
  });
}
)";

}  // namespace ds
