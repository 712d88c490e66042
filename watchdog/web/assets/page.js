'use strict';
// Views come as documents from view/NAME and become elements here. Every text is set with textContent.
const $ = (id) => document.getElementById(id);
// Milliseconds from one view to the next: without an event, and with one.
const REFRESH = 3000, SOONEST = 1000;
// What is invisible or reorders text is shown by its number: processes choose their own names.
const safe = (text) => String(text).replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// Elements are described first, and then patched into the page, so that focus and selection stay.
const h = (tag, props, ...kids) => ({ tag, props: props || {}, kids: kids.flat().filter((kid) => kid != null && kid !== false) });
function create(kid) {
  const svg = kid.tag === 'svg' || kid.tag === 'rect';
  return svg ? document.createElementNS('http://www.w3.org/2000/svg', kid.tag) : document.createElement(kid.tag);
}
function update(node, { props, kids }) {
  for (const name of node._names || []) if (!(name in props) || props[name] == null) node.removeAttribute(name);
  node._names = [];
  for (const [name, value] of Object.entries(props)) {
    if (name === 'key') node._key = value;
    else if (name.startsWith('on')) node[name] = value;
    else if (name === 'draw' || value == null || value === false) continue;
    else {
      node._names.push(name);
      const text = value === true ? '' : String(value);
      if (node.getAttribute(name) !== text) node.setAttribute(name, text);
    }
  }
  if (props.draw) props.draw(node);
  else patch(node, kids);
}
function patch(parent, kids) {
  const keyed = new Map();
  for (const node of parent.childNodes) if (node._key != null) keyed.set(node._key, node);
  let at = parent.firstChild;
  for (const kid of kids) {
    if (typeof kid !== 'object') {
      const text = safe(kid);
      if (at && at.nodeType === 3) { if (at.data !== text) at.data = text; at = at.nextSibling; }
      else parent.insertBefore(document.createTextNode(text), at);
      continue;
    }
    const key = kid.props.key;
    let node = key != null ? keyed.get(key) : at && at._key == null ? at : null;
    if (!node || node.nodeType !== 1 || node.localName !== kid.tag) node = create(kid);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    update(node, kid);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

const clock = (when) => new Date(when).toLocaleString(undefined, { dateStyle: 'short', timeStyle: 'medium' });
const size = (bytes) => {
  if (bytes == null) return '';
  let unit = 0;
  while (bytes >= 1023.5 && unit < 5) { bytes /= 1024; unit++; }
  return `${bytes.toFixed(unit && bytes < 9.95 ? 1 : 0)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit]}`;
};
const meter = (share, label) => share == null ? null : h('meter', { value: share.toFixed(3), 'aria-label': label });
const button = (b, about) => h('button', {
  type: 'button', class: b.danger ? 'danger' : null, key: b.call.action,
  'aria-label': `${b.label} ${about || ''}`.trim(), onclick: () => act(b.call),
}, b.label);
const link = (cell) => h('a', { href: cell.href, 'aria-current': cell.current ? 'page' : null }, cell.text);

function cellOf(cell, column, about) {
  let inner = cell.time ? clock(cell.time) : cell.text;
  if (cell.href) inner = link(cell);
  else if (cell.tone) inner = h('span', { class: `pill ${cell.tone}` }, inner);
  else if (cell.indent != null) inner = h('span', { class: 'tree', draw: (node) => {
    node.style.marginLeft = `${Math.min(cell.indent, 12) * 1.1}rem`;
    patch(node, [cell.text]);
  } });
  const wide = !column.number && cell.text.length > 24;
  return h('td', { role: 'cell', 'data-name': column.name, class: [column.number && 'number', column.low && 'low', wide && 'wide'].filter(Boolean).join(' ') || null },
    inner, meter(cell.share, column.name), cell.buttons && h('div', { class: 'row' }, cell.buttons.map((b) => button(b, about))));
}
const BLOCKS = {
  tiles: ({ tiles }) => h('dl', { class: 'tiles' }, tiles.map((tile) => h('div', { class: `tile ${tile.tone || ''}`, key: tile.label },
    h('dt', null, tile.label), h('dd', { class: 'value' }, tile.value), h('dd', { class: 'detail' }, tile.detail, meter(tile.share, tile.label))))),
  table: (table) => h('section', { class: 'panel' }, h('h2', null, table.title), !table.rows.length ? h('p', { class: 'empty' }, table.empty)
    : h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': safe(table.title) }, h('table', { role: 'table' },
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, table.columns.map((c) => h('th', { role: 'columnheader', scope: 'col', class: `${c.number ? 'number' : ''} ${c.low ? 'low' : ''}` }, c.name)))),
      h('tbody', { role: 'rowgroup' }, table.rows.map((row) => h('tr', { role: 'row', key: row.key }, row.cells.map((cell, i) =>
        cellOf(cell, table.columns[i], `${row.cells[0].text} ${row.cells[1].text}`)))))))),
  cards: ({ title, cards, empty }) => h('section', { class: 'panel' }, h('h2', null, title), cards.length ? null : h('p', { class: 'empty' }, empty),
    cards.map((card) => h('article', { class: 'card', key: card.key },
      h('div', { class: 'row' }, h('h3', null, card.title), h('span', { class: `pill ${card.tone || 'faint'}` }, card.label),
        card.links.map(link), card.buttons.map((b) => button(b, card.title))),
      h('p', null, card.summary), h('ul', null, card.lines.map((line) => h('li', null, line)))))),
  buttons: ({ buttons }) => h('p', { class: 'links row' }, buttons.map((b) => button(b, 'this session'))),
  links: ({ label, links }) => h('p', { class: 'links row', role: 'group', 'aria-label': label }, links.map(link)),
  text: ({ title, lines }) => h('section', { class: 'panel' }, title && h('h2', null, title), lines.map((line) => h('p', { class: 'soft' }, line))),
  form: ({ page, fields, submit }) => h('form', { class: 'panel fields', onsubmit: (event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value.trim());
    location.hash = given.length ? `${page}?${new URLSearchParams(given)}` : page;
  } }, fields.map((f) => h('label', null, f.label, h('input', { name: f.name, placeholder: f.example, autocomplete: 'off', draw: (node) => {
    if (document.activeElement !== node) node.value = f.value;
  } }))), h('button', null, submit)),
  chart: (chart) => h('section', { class: 'panel' }, h('h2', null, chart.title),
    chart.times.length < 2 ? null : h('div', { class: 'chart', role: 'img', 'aria-label': chart.summary, draw: (node) => draw(node, chart) }),
    h('ul', { class: 'legend' }, chart.times.length < 2 ? null : chart.series.map((s, i) => h('li', { key: s.label },
      h('svg', { viewBox: '0 0 9 9', 'aria-hidden': 'true', draw: (node) => {
        patch(node, [h('rect', { width: 9, height: 9, rx: 2 })]);
        node.firstChild.style.fill = `var(${colour(s, i)})`;
      } }), `${s.label}: ${size(s.values.at(-1)) || 'unknown'}`))), h('p', { class: 'soft' }, chart.summary)),
  slider: ({ times, at }) => {
    const nearest = (t) => times.reduce((best, time, i) => Math.abs(time - t) < Math.abs(times[best] - t) ? i : best, 0);
    const local = (t) => new Date(t * 1000 - new Date(t * 1000).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
    return h('section', { class: 'panel fields', draw: (node) => {
      if (node._times === times) return;
      node._times = times;
      const choose = (t) => {
        $('when').textContent = clock(t * 1000);
        $('slider').setAttribute('aria-valuetext', clock(t * 1000));
        moment(t);
      };
      patch(node, [
        h('label', null, 'Moment: ', h('output', { id: 'when', for: 'slider' }), h('input', { id: 'slider', type: 'range', min: 0, max: times.length - 1,
          oninput: () => { const t = times[$('slider').value]; $('exact').value = local(t); choose(t); } })),
        h('label', null, 'What happened at', h('input', { id: 'exact', type: 'datetime-local', step: 1, onchange: () => {
          const t = Math.round(new Date($('exact').value) / 1000);
          if (t) { $('slider').value = nearest(t); choose(t); }
        } }))]);
      $('slider').value = nearest(at);
      $('exact').value = local(at);
      choose(at);
    } });
  },
};
const colour = (series, i) => series.rest ? '--rest' : `--c${i % 7}`;

// Stacked areas: each series is drawn as the sum up to it, the highest first.
function draw(node, chart) {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  const sums = [];
  chart.series.forEach((s, i) => sums.push(s.values.map((v, at) => v == null ? null : v + (i ? sums[i - 1][at] || 0 : 0))));
  const data = [chart.times, ...sums.reverse()];
  const kind = [chart.series.map((s) => s.label), chart.times.at(-1) - chart.times[0] < 900, node.clientWidth, of('--page'), chart.top].join();
  if (node._plot && node._kind === kind) return node._plot.setData(data);
  if (node._plot) node._plot.destroy();
  node._kind = kind;
  const axis = { stroke: of('--soft'), grid: { stroke: of('--line'), width: 1 }, ticks: { show: false } };
  const span = chart.times.at(-1) - chart.times[0], time = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
  const format = span < 900 ? { ...time, second: '2-digit' } : span > 172800 ? { ...time, month: 'short', day: 'numeric' } : time;
  node._plot = new uPlot({
    width: node.clientWidth || 600, height: 260, padding: [null, 32, null, null], cursor: { show: false }, legend: { show: false },
    scales: { y: { range: (_, low, high) => [0, Math.min(chart.top || Infinity, (high || 1) * 1.2)] } },
    axes: [{ ...axis, space: 90, size: 30, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleString(undefined, format)) }, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => size(tick)), incrs: Array.from({ length: 42 }, (_, i) => 2 ** i) }],
    series: [{}, ...chart.series.map((s, i) => ({ stroke: of(colour(s, i)), fill: of(colour(s, i)), width: 1, points: { show: false } })).reverse()],
  }, data, node);
}

let page = '', busy = false, again = false, spent = 0, drawn = 0, last = 0, timer, momentTimer;
async function load(path, options) {
  const response = await fetch(path, options);
  const answer = await response.json().catch(() => ({ error: `The answer cannot be read (${response.status}).` }));
  if (!response.ok) throw Object.assign(new Error(answer.error), { status: response.status });
  return answer;
}
const alert = (text) => { $('alert').hidden = !text; if ($('alert').textContent !== text) $('alert').textContent = safe(text).replaceAll('\\u{a}', '\n'); };
const render = (node, blocks) => patch(node, blocks.map((block, i) => { const made = BLOCKS[block.type](block); made.props.key = `${block.type}${block.title || i}`; return made; }));

async function show(fresh) {
  clearTimeout(timer);
  if (busy) { again = true; return; }
  busy = true;
  const asked = location.hash.slice(1) || 'overview', began = performance.now();
  try {
    const view = await load(`view/${asked}`);
    if (asked !== page) $('moment').replaceChildren();
    if (fresh) $('blocks').replaceChildren();
    page = asked;
    document.title = `${safe(view.title)} · agent-watchdog`;
    patch($('title'), [view.title]);
    $('mode').hidden = false;
    $('mode').textContent = view.act ? 'actions allowed' : 'read-only';
    const drawing = performance.now();
    render($('blocks'), view.blocks);
    drawn = performance.now() - drawing;
    if (fresh === 'focus') { $('main').focus({ preventScroll: true }); scrollTo(0, 0); }
    alert('');
  } catch (error) {
    // A stale page of another address would lie; the same page only grows old.
    if (asked !== page) { patch($('title'), ['Not available']); $('blocks').replaceChildren(); $('moment').replaceChildren(); page = asked; }
    alert(error.status ? error.message : 'watchdogctl web does not answer: it was stopped, or the connection to its host was lost.');
  }
  for (const a of $('nav').children) a.toggleAttribute('aria-current', a.hash.slice(1) === asked.split('?')[0]);
  last = performance.now();
  spent = last - began;
  busy = false;
  if (again || asked !== (location.hash.slice(1) || 'overview')) { again = false; return show(true); }
  plan(REFRESH);
}
// Counted from the last time, so that many events do not put it off. A page that takes long to make is made less often. History, plan and configuration do not change by themselves.
const lives = () => /^(overview|session|findings|actions|fleet)?(\?|$)/.test(page);
function plan(delay) {
  clearTimeout(timer);
  if (!document.hidden && (lives() || !$('alert').hidden)) timer = setTimeout(() => show(), last + Math.max(delay, spent * 3) - performance.now());
}
function moment(t) {
  clearTimeout(momentTimer);
  const [name, query] = page.split('?'), address = new URLSearchParams(query);
  address.set('at', t);
  page = `${name || 'history'}?${address}`;
  history.replaceState(null, '', `#${page}`);
  momentTimer = setTimeout(() => load(`view/moment?at=${t}`).then((view) => render($('moment'), view.blocks), (error) => alert(error.message)), 200);
}

// One stream for the page, closed while it is hidden, and resumed after the last event.
let stream, position = '';
function listen() {
  if (stream || document.hidden) return;
  stream = new EventSource(`live${position && `?after=${encodeURIComponent(position)}`}`);
  stream.addEventListener('change', (event) => { position = event.lastEventId; plan(SOONEST); });
  stream.addEventListener('daemon', (event) => {
    const notice = JSON.parse(event.data);
    position = event.lastEventId;
    if (notice.up) $('fleet').hidden = !notice.fleet;
    if (notice.up) show(); else alert(notice.why);
  });
}
function hush() { if (stream) stream.close(); stream = null; clearTimeout(timer); }

let asking;
async function act(call) {
  const mine = asking = {};
  try {
    const step = await load('act', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(call) });
    if (asking !== mine) return;
    patch($('question'), [step.title]);
    render($('step'), step.blocks);
    $('confirm').hidden = !step.confirm;
    $('confirm').onclick = () => { $('confirm').hidden = true; act(step.confirm); };
    $('cancel').textContent = step.confirm ? 'Cancel' : 'Close';
    if (!$('dialog').open) { $('dialog').showModal(); $('cancel').focus(); }
    if (step.follow) setTimeout(() => asking === mine && act(step.follow), 400);
    else if (!step.confirm) show();
  } catch (error) {
    patch($('question'), ['This is not possible']);
    render($('step'), [{ type: 'text', lines: error.message.split('\n') }]);
    $('confirm').hidden = true;
    $('cancel').textContent = 'Close';
    if (!$('dialog').open) $('dialog').showModal();
  }
}
$('dialog').onclose = () => { asking = null; };
$('skip').onclick = (event) => { event.preventDefault(); $('main').focus(); };
addEventListener('hashchange', () => { if (location.hash.slice(1) !== page) show('focus'); });
document.addEventListener('visibilitychange', () => { if (document.hidden) hush(); else { listen(); show(); } });
addEventListener('resize', () => plan(200));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => show());
show();
listen();
