// The page that write_memory_page() fills in: HTML, CSS and JavaScript without any library.
//
// Each column of pixels shows one moment: the fullest one of the events that fall on it. So what is drawn
// does not depend on how long the history is, and no peak is lost.
namespace gradus {

extern const char* const kMemoryPage;
const char* const kMemoryPage = R"page(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>memory history</title>
<style>
  body { font: 14px/1.4 system-ui, sans-serif; margin: 16px 24px; color: #222; }
  h1 { font-size: 19px; margin: 0 0 8px; }
  label, button { margin-right: 14px; }
  .hint { color: #666; }
  #chart { position: relative; height: 56vh; min-height: 320px; margin: 8px 0; cursor: crosshair; }
  #chart canvas { position: absolute; left: 0; top: 0; width: 100%; height: 100%; }
  #tip { position: absolute; display: none; pointer-events: none; background: #fffffff0; white-space: pre;
         border: 1px solid #999; border-radius: 4px; padding: 5px 8px; font: 12px/1.4 monospace; z-index: 1; }
  #legend span { display: inline-block; margin-right: 16px; }
  #legend i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; }
  #panels { display: flex; gap: 40px; flex-wrap: wrap; }
  pre { font: 12px/1.45 monospace; margin: 8px 0; }
</style>
<h1 id="title"></h1>
<label>stacked by <select id="order"><option>age<option>kind</select></label>
<label>along <select id="axis"><option>events<option>time</select></label>
<button id="all">show all</button>
<span class="hint">hover: what is this? click: hold it. wheel: zoom. drag: move. The line is what is
reserved; red is out of memory.</span>
<div id="chart"><canvas id="bands"></canvas><canvas id="over"></canvas><div id="tip"></div></div>
<div id="legend"></div>
<div id="panels"><pre id="held"></pre><pre id="largest"></pre></div>
<script id="data" type="application/json">@data@</script>
<script>
'use strict';
const ALLOC = 0, FREE = 1, KIND = 2, SEG_ALLOC = 3, SEG_FREE = 4, SEG_MAP = 5, SEG_UNMAP = 6, OOM = 7;
const HUES = ['212 62%', '28 75%', '135 52%', '0 62%', '270 38%', '0 0%', '45 85%', '190 60%', '325 58%',
  '28 40%'];  // and saturations of the kinds, as in the PNG
const element = id => document.getElementById(id);
const data = JSON.parse(element('data').textContent);
document.title = element('title').textContent = data.title;

// Blocks with their lives, and what is allocated and reserved after each event.
const blocks = data.blocks.map(([name, shape, kind, requested, bytes], id) =>
  ({id, name: data.strings[name], shape: data.strings[shape], kind, requested, bytes}));
const events = data.events.map(([action, us, op, block, amount]) =>
  ({action, us, op: data.strings[op], block: blocks[block], amount}));
const allocated = [], reserved = [];
events.forEach((e, i) => {
  let a = i ? allocated[i - 1] : 0, r = i ? reserved[i - 1] : 0;
  if (e.action === ALLOC) a += e.amount, e.block.born = i;
  if (e.action === FREE) a -= e.amount, e.block.died = i;
  if (e.action === SEG_ALLOC || e.action === SEG_MAP) r += e.amount;
  if (e.action === SEG_FREE || e.action === SEG_UNMAP) r -= e.amount;
  allocated.push(a), reserved.push(r);
});

const used = new Set(events.filter(e => e.block).map(e => e.action === KIND ? e.amount : e.block.kind));

const size = n => n < 1024 ? n + ' B' : n < 1048576 ? (n / 1024).toFixed(1) + ' KiB' :
  n < 1073741824 ? (n / 1048576).toFixed(1) + ' MiB' : (n / 1073741824).toFixed(2) + ' GiB';
const time = us => us < 1e3 ? us + ' us' :
  us < 1e6 ? (us / 1e3).toFixed(2) + ' ms' : (us / 1e6).toFixed(3) + ' s';
const color = (kind, id) => `hsl(${HUES[kind]} ${48 + id * 7 % 5 * 6}%)`;

const LEFT = 90, BOTTOM = 30, TOP = 8;
let view = [0, 1], columns = [], top_bytes = 1, held = null;
const where = i => element('axis').value === 'time' ? events[i].us : i;
const end = () => where(events.length - 1) + 1;
const chart = element('chart'), bands = element('bands'), over = element('over');
const width = () => chart.clientWidth - LEFT - 1, height = () => chart.clientHeight - BOTTOM - TOP;
const x_of = v => LEFT + (v - view[0]) / (view[1] - view[0]) * width();
const y_of = bytes => TOP + height() * (1 - bytes / top_bytes);

function cleared(canvas) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = chart.clientWidth * scale, canvas.height = chart.clientHeight * scale;
  const c = canvas.getContext('2d');
  c.scale(scale, scale), c.font = '12px system-ui, sans-serif';
  return c;
}

// The event that each column of pixels shows.
function choose_events() {
  const chosen = new Array(Math.max(1, Math.floor(width())));
  let next = 0, last = -1;
  for (let column = 0; column < chosen.length; ++column) {
    const to = view[0] + (column + 1) / chosen.length * (view[1] - view[0]);
    let best = last, found = false;  // what holds from before, if nothing falls on the column
    for (; next < events.length && where(next) < to; last = next++)
      if (!found || allocated[next] > allocated[best] || events[next].action === OOM)
        best = next, found = where(next) >= view[0];
    chosen[column] = best;
  }
  return chosen;
}

// The blocks alive at each chosen event, from the bottom up; columns with the same event share one list.
function find_columns() {
  const alive = new Map(), by_kind = element('order').value === 'kind';
  let next = 0, list = [];
  columns = choose_events().map((event, column, chosen) => {
    if (column && event === chosen[column - 1]) return {event, list};
    for (; next <= event; ++next) {
      const e = events[next];
      if (e.action === ALLOC) alive.set(e.block, e.block.kind);
      if (e.action === FREE) alive.delete(e.block);
      if (e.action === KIND) alive.set(e.block, e.amount);
    }
    list = [...alive].map(([block, kind]) => ({block, kind}));
    if (by_kind) list.sort((a, b) => a.kind - b.kind || a.block.id - b.block.id);
    let bytes = 0;
    for (const band of list) band.from = bytes, bytes += band.block.bytes;
    return {event, list};
  });
}

function draw_axes(c) {
  const nice = range => {
    const power = 10 ** Math.floor(Math.log10(range / 8));
    return [1, 2, 5, 10].map(f => f * power).find(step => range / step <= 8);
  };
  const unit = top_bytes < 2 ** 31 ? 2 ** 20 : 2 ** 30, step = nice(top_bytes / unit);
  c.fillStyle = '#555', c.textAlign = 'right';
  for (let v = 0; v * unit <= top_bytes; v += step)
    c.fillText(+v.toPrecision(6) + (unit === 2 ** 20 ? ' MiB' : ' GiB'), LEFT - 8, y_of(v * unit) + 4);
  c.textAlign = 'center';
  const x_step = Math.max(1, nice(view[1] - view[0]));
  for (let v = Math.ceil(view[0] / x_step) * x_step; v < view[1]; v += x_step)
    c.fillText(element('axis').value === 'time' ? time(v) : v, x_of(v), TOP + height() + 18);
  c.strokeStyle = '#555', c.strokeRect(LEFT - 0.5, TOP - 0.5, width() + 1, height() + 1);
}

function draw() {
  find_columns();
  top_bytes = 1.04 * columns.reduce((most, {event}) => Math.max(most, event < 0 ? 0 : reserved[event]), 1);
  const c = cleared(bands);
  for (let from = 0, to; from < columns.length; from = to) {
    const {event, list} = columns[from];
    for (to = from + 1; to < columns.length && columns[to].event === event;) ++to;
    for (const {block, kind, from: bytes} of list) {
      const y = y_of(bytes + block.bytes), h = y_of(bytes) - y;
      c.fillStyle = color(kind, block.id);
      c.fillRect(LEFT + from, y, to - from, h > 3 ? h - 0.5 : h);
    }
    const y = y_of(reserved[event] || 0), before = from ? y_of(reserved[columns[from - 1].event] || 0) : y;
    c.fillStyle = '#222';
    c.fillRect(LEFT + from, y - 1, to - from, 2);
    c.fillRect(LEFT + from - (y < before), Math.min(y, before) - 1, 1, Math.abs(y - before) + 2);
  }
  c.fillStyle = '#d00';
  events.forEach((e, i) => {
    if (e.action !== OOM || where(i) < view[0] || where(i) >= view[1]) return;
    c.fillRect(x_of(where(i)), TOP, 2, height());
  });
  draw_axes(c), draw_held();
}

// A block over its life, darker.
function draw_held() {
  const c = cleared(over);
  c.fillStyle = '#000a';
  columns.forEach(({list}, column) => {
    const band = held && list.find(b => b.block === held);
    if (!band) return;
    const y = y_of(band.from + held.bytes);
    c.fillRect(LEFT + column, y, 1, Math.max(1, y_of(band.from) - y));
  });
}

function under(mouse) {
  const box = chart.getBoundingClientRect(), x = mouse.clientX - box.left, y = mouse.clientY - box.top;
  const column = columns[Math.floor(x - LEFT)], bytes = (1 - (y - TOP) / height()) * top_bytes;
  const band = column && column.list.find(b => bytes >= b.from && bytes < b.from + b.block.bytes);
  return {x, y, column, band};
}

function describe({block, kind}) {
  const at = i => `event ${i}, ${time(events[i].us)}, ${events[i].op || '(no op)'}`;
  const until = block.died === undefined ? events.length - 1 : block.died;
  return `${block.name} ${block.shape}\nkind   ${data.kinds[kind]}\n` +
    `size   ${size(block.requested)} (${block.requested} bytes, in a block of ${block.bytes})\n` +
    `born   ${at(block.born)}\ndied   ${block.died === undefined ? 'alive at the end' : at(block.died)}\n` +
    `life   ${until - block.born} events, ${time(events[until].us - events[block.born].us)}`;
}

function describe_moment({event, list}) {
  const e = events[event], order = [...list].sort((a, b) => b.block.bytes - a.block.bytes).slice(0, 12);
  const line = ({block, kind}) =>
    `${size(block.bytes).padStart(11)}  ${block.name} ${block.shape} (${data.kinds[kind]})`;
  const failed = e.action !== OOM ? '' :
    `OUT OF MEMORY: ${e.block.name} ${e.block.shape}, ${size(e.block.requested)}\n`;
  return `event ${event}, ${time(e.us)}, ${e.op || '(no op)'}\n${failed}` +
    `allocated ${size(allocated[event])}, reserved ${size(reserved[event])}, ${list.length} blocks\n\n` +
    'the largest\n' + order.map(line).join('\n');
}

function show_kinds(list) {
  const sums = data.kinds.map(() => 0);
  for (const {block, kind} of list) sums[kind] += block.requested;
  element('legend').replaceChildren(...data.kinds.flatMap((name, kind) => {
    if (!used.has(kind)) return [];
    const entry = document.createElement('span'), patch = document.createElement('i');
    patch.style.background = color(kind, 0);
    entry.append(patch, `${name} ${size(sums[kind])}`);
    return [entry];
  }));
}

let drag = null;
chart.onmousedown = e => drag = {x: e.clientX, view: [...view], moved: false};
chart.onmousemove = e => {
  if (drag && e.buttons === 1 && Math.abs(e.clientX - drag.x) > 3) drag.moved = true;
  if (drag && e.buttons === 1 && drag.moved) {
    const by = (drag.x - e.clientX) / width() * (drag.view[1] - drag.view[0]);
    return show([drag.view[0] + by, drag.view[1] + by]);
  }
  const {x, y, column, band} = under(e), tip = element('tip');
  tip.style.display = band ? 'block' : 'none';
  if (column) show_kinds(column.list);
  if (!band) return;
  tip.textContent = describe(band);
  tip.style.left = Math.max(0, Math.min(x + 14, chart.clientWidth - tip.offsetWidth)) + 'px';
  const below = y + 14 + tip.offsetHeight <= chart.clientHeight;
  tip.style.top = (below ? y + 14 : y - 14 - tip.offsetHeight) + 'px';
};
chart.onmouseleave = () => element('tip').style.display = 'none';
chart.onclick = e => {
  if (drag && drag.moved) return;
  const {column, band} = under(e);
  if (!column || column.event < 0) return;
  held = band ? band.block : null;
  element('held').textContent = band ? describe(band) : '';
  element('largest').textContent = describe_moment(column);
  draw_held();
};
chart.addEventListener('wheel', e => {
  e.preventDefault();
  const at = view[0] + (under(e).x - LEFT) / width() * (view[1] - view[0]), by = e.deltaY > 0 ? 1.25 : 0.8;
  show([at - (at - view[0]) * by, at + (view[1] - at) * by]);
}, {passive: false});

function show([from, to]) {  // within what there is, and at least 4 events or microseconds
  const range = Math.min(Math.max(to - from, 4), end());
  from = Math.max(0, Math.min(from, end() - range));
  view = [from, from + range];
  draw();
}
element('order').onchange = draw;
element('axis').onchange = element('all').onclick = () => show([0, end()]);
window.onresize = draw;
if (events.length) {
  show([0, end()]);
  const fullest = columns.reduce((a, b) => allocated[b.event] > allocated[a.event] ? b : a);
  show_kinds(fullest.list), element('largest').textContent = describe_moment(fullest);
}
</script>
</html>
)page";

}  // namespace gradus
