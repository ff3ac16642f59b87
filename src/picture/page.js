'use strict';
(() => {
const D = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const canvas = $('map'), ctx = canvas.getContext('2d'), tip = $('tip');
const LEFT = 92, TOP = 52, PAD = 18;  // room for the axes
const NAMES = ['empty', 'partial', 'full'];
const MEANING = ['no pair is legal', 'some pairs are legal', 'every pair is legal'];
const commas = n => n.toString().replace(/\B(?=(\d{3})+$)/g, ',');
const clamp = (v, lo, hi) => Math.max(lo, Math.min(hi, v));

// ---- data ----
function reader(text) {
  const s = atob(text);
  let at = 0;
  return {
    more: () => at < s.length,
    next() {
      let v = 0, scale = 1;
      for (;;) {
        const b = s.charCodeAt(at++);
        v += (b & 127) * scale;
        if (b < 128) return v;
        scale *= 128;
      }
    },
  };
}

function unpackSpans(packed) {
  const n = packed.count, r = reader(packed.data);
  const spans = {n, end: new Float64Array(n), id: new Float64Array(n)};
  for (let i = 0, at = 0; i < n; ++i) {
    spans.end[i] = at += r.next();
    spans.id[i] = r.next() - 2;  // -2 padding, -1 outside
  }
  return spans;
}

// Unpacks each tile row into runs of equal tiles. Row r has the runs from[r] to
// to[r]; a row that repeats the row above shares its runs.
function unpackTiles(list) {
  const r = reader(list.tiles);
  const t = {
    begin: new Int32Array(list.runs), end: new Int32Array(list.runs),
    kind: new Uint8Array(list.runs),
    from: new Int32Array(D.rows), to: new Int32Array(D.rows),
  };
  let at = 0;
  for (let row = 0; row < D.rows; ++row) {
    const tag = r.next();
    if (tag === 0) {
      t.from[row] = t.from[row - 1];
      t.to[row] = t.to[row - 1];
      continue;
    }
    t.from[row] = at;
    for (let i = 1, column = 0; i < tag; ++i, ++at) {
      column += r.next();
      const word = r.next();
      t.begin[at] = column;
      column += Math.floor(word / 2);
      t.end[at] = column;
      t.kind[at] = word % 2 ? 2 : 1;
    }
    t.to[row] = at;
  }
  return t;
}

// First index in [lo, hi) whose end is after `value`.
function firstAfter(ends, lo, hi, value) {
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (ends[mid] > value) hi = mid; else lo = mid + 1;
  }
  return lo;
}

let list, tiles, keySpans, querySpans;
const unpacked = new Map();
function choose(index) {
  list = D.lists[index];
  if (!unpacked.has(index)) {
    if (unpacked.size > 8) unpacked.clear();
    unpacked.set(index, [unpackTiles(list), unpackSpans(list.keys), unpackSpans(list.queries)]);
  }
  [tiles, keySpans, querySpans] = unpacked.get(index);
  showFacts();
  setHover(null);
  redraw();
}

function classAt(row, column) {
  const i = firstAfter(tiles.end, tiles.from[row], tiles.to[row], column);
  return i < tiles.to[row] && tiles.begin[i] <= column ? tiles.kind[i] : 0;
}

// ---- the side panel ----
function fillTable(table, rows) {
  table.textContent = '';
  for (const cells of rows) {
    const tr = table.insertRow();
    for (const cell of cells) {
      const td = tr.insertCell();
      if (cell instanceof Node) td.append(cell); else td.textContent = cell;
    }
  }
}

function swatch(kind, text) {
  const box = document.createDocumentFragment(), i = document.createElement('i');
  i.className = 's ' + kind;
  box.append(i, text);
  return box;
}

function showFacts() {
  $('mask').textContent = list.mask;
  $('bar-f').style.width = 100 * list.bar[0] + '%';
  $('bar-p').style.width = 100 * list.bar[1] + '%';
  fillTable($('tiles'), [
    [swatch('f', 'full'), list.full, list.full_share],
    [swatch('p', 'partial'), list.partial, list.partial_share],
    [swatch('e', 'empty'), list.empty, list.empty_share],
    ['density', list.density, ''],
  ]);
  fillTable($('work'), [
    ['paid', list.paid], ['needed', list.needed], ['paid is', list.ratio], ['all pairs', list.pairs],
  ]);
  const facts = [
    ['queries', commas(D.q_len)], ['keys', commas(D.kv_len)],
    ['tile', D.tile_q + ' x ' + D.tile_kv],
    ['rows x columns', commas(D.rows) + ' x ' + commas(D.columns)],
    ['q_offset', (list.q_offset < 0 ? '-' : '') + commas(Math.abs(list.q_offset))],
  ];
  if (keySpans.n || querySpans.n) facts.push(['documents', list.documents]);
  fillTable($('facts'), facts);
  canvas.setAttribute('aria-label', 'Tiles of ' + list.mask + ': ' + list.full + ' full, ' +
      list.partial + ' partial, ' + list.empty + ' empty');
}

// ---- the view: the token at the top left, and the pixels of a token ----
let width = 0, height = 0, dpr = 1;  // size of the canvas in CSS pixels
let base = {x: 1, y: 1}, zoom = 1, viewX = 0, viewY = 0;
const sx = () => base.x * zoom, sy = () => base.y * zoom;
const mapW = () => width - LEFT - PAD, mapH = () => height - TOP - PAD;

function fit() {
  const w = mapW(), h = mapH();
  const u = Math.min(w / D.kv_len, h / D.q_len);
  // Both axes have one scale, unless an axis would get fewer than 64 pixels.
  base = {x: Math.max(u, Math.min(64, w) / D.kv_len), y: Math.max(u, Math.min(64, h) / D.q_len)};
}

function maxZoom() {
  return Math.max(1, 160 / Math.min(base.x * D.tile_kv, base.y * D.tile_q));
}

function keepInside() {
  zoom = clamp(zoom, 1, maxZoom());
  viewX = clamp(viewX, 0, Math.max(0, D.kv_len - mapW() / sx()));
  viewY = clamp(viewY, 0, Math.max(0, D.q_len - mapH() / sy()));
}

function zoomAt(factor, px, py) {
  const x = viewX + (px - LEFT) / sx(), y = viewY + (py - TOP) / sy();
  zoom = clamp(zoom * factor, 1, maxZoom());
  viewX = x - (px - LEFT) / sx();
  viewY = y - (py - TOP) / sy();
  keepInside();
  redraw();
}

function move(dx, dy) {
  viewX += dx / sx();
  viewY += dy / sy();
  keepInside();
  redraw();
}

function reset() {
  zoom = 1;
  viewX = viewY = 0;
  redraw();
}

function resize() {
  const box = canvas.parentElement.getBoundingClientRect();
  if (!box.width || !box.height) return;
  dpr = window.devicePixelRatio || 1;
  width = Math.max(LEFT + PAD + 40, box.width);
  height = Math.max(TOP + PAD + 40, box.height);
  canvas.width = Math.round(width * dpr);
  canvas.height = Math.round(height * dpr);
  fit();
  keepInside();
  draw();  // at once, since resizing clears the canvas
}

// ---- colours ----
let colors = {}, inks = null, hatch = null;
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['paper', 'line', 'ink', 'soft', 'faint', 'empty', 'partial', 'mixed', 'full',
      'band-a', 'band-b', 'band-many', 'padding', 'band-ink', 'edge']) {
    colors[name] = style.getPropertyValue('--' + name).trim();
  }
  inks = null;
  hatch = null;
}

// Table of pixel colours by the shares of partial and full tiles, in steps of
// 1/32. Any active tile adds at least 30 % of its colour, so that it is visible.
// A mix of both classes turns mauve, not grey.
function makeInks() {
  const rgb = s => [1, 3, 5].map(i => parseInt(s.slice(i, i + 2), 16));
  const [e, p, m, f] = ['empty', 'partial', 'mixed', 'full'].map(n => rgb(colors[n]));
  const little = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
  inks = new Uint32Array(33 * 33);
  for (let a = 0; a <= 32; ++a) {
    for (let b = 0; b <= 32; ++b) {
      const active = (a + b) / 32, t = a + b ? b / (a + b) : 0;
      const ink = active === 0 ? 0 : active >= 1 ? 1 : .3 + .6 * active;
      const c = [0, 1, 2].map(i => Math.round((1 - ink) * e[i] +
          ink * ((1 - t) * (1 - t) * p[i] + 2 * t * (1 - t) * m[i] + t * t * f[i])));
      inks[a * 33 + b] = little ? (0xff000000 | c[2] << 16 | c[1] << 8 | c[0]) >>> 0
                                : (c[0] << 24 | c[1] << 16 | c[2] << 8 | 255) >>> 0;
    }
  }
}

function makeHatch() {
  const c = document.createElement('canvas');
  c.width = c.height = 6;
  const g = c.getContext('2d');
  g.fillStyle = colors.partial;
  g.fillRect(0, 0, 6, 6);
  g.strokeStyle = 'rgba(255, 255, 255, .4)';
  g.lineWidth = 1.2;
  for (const d of [-6, 0, 6]) {
    g.beginPath();
    g.moveTo(d - 1, 7);
    g.lineTo(d + 7, -1);
    g.stroke();
  }
  hatch = ctx.createPattern(c, 'repeat');
}

// ---- drawing, in device pixels ----
let pending = false, showLines = true, hover = null;
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

function draw() {
  const x0 = Math.round(LEFT * dpr), y0 = Math.round(TOP * dpr);
  const px = sx() * dpr, py = sy() * dpr;  // size of a token
  const w = Math.min(Math.round(mapW() * dpr), Math.round((D.kv_len - viewX) * px));
  const h = Math.min(Math.round(mapH() * dpr), Math.round((D.q_len - viewY) * py));
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.fillStyle = colors.paper;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  if (w < 1 || h < 1) return;
  const v = {
    x0, y0, w, h, px, py, tx: px * D.tile_kv, ty: py * D.tile_q,
    row0: Math.floor(viewY / D.tile_q), column0: Math.floor(viewX / D.tile_kv),
    row1: Math.min(D.rows, Math.ceil((viewY + h / py) / D.tile_q)),
    column1: Math.min(D.columns, Math.ceil((viewX + w / px) / D.tile_kv)),
    atX: t => (t - viewX) * px, atY: t => (t - viewY) * py,
  };
  ctx.save();
  ctx.beginPath();
  ctx.rect(x0, y0, w, h);
  ctx.clip();
  const exact = Math.min(v.tx, v.ty) >= 4 * dpr;
  if (exact) drawTiles(v); else drawShares(v);
  if (showLines) drawBoundaries(v);
  if (hover) drawHover(v);
  ctx.restore();
  drawAxes(v);
  $('scale').textContent = exact ? 'Each tile is drawn.' :
      Math.min(v.tx, v.ty) >= 1 ? 'Tiles are small here: zoom in to see each.' :
      'A pixel holds several tiles here, shaded by their share of partial (amber), full (blue) or both (mauve).';
}

function drawTiles(v) {
  ctx.fillStyle = colors.empty;
  ctx.fillRect(v.x0, v.y0, v.w, v.h);
  const textured = Math.min(v.tx, v.ty) >= 11 * dpr;
  if (textured && !hatch) makeHatch();
  const edge = (t, at) => Math.round(at(t));
  for (const kind of [1, 2]) {
    ctx.fillStyle = kind === 2 ? colors.full : textured ? hatch : colors.partial;
    for (let r = v.row0; r < v.row1; ++r) {
      const top = edge(r * D.tile_q, v.atY);
      const bottom = edge(Math.min(D.q_len, (r + 1) * D.tile_q), v.atY);
      let i = firstAfter(tiles.end, tiles.from[r], tiles.to[r], v.column0);
      for (; i < tiles.to[r] && tiles.begin[i] < v.column1; ++i) {
        if (tiles.kind[i] !== kind) continue;
        // Clip to the map, since a run may be far wider than the screen.
        const a = Math.max(-8, edge(tiles.begin[i] * D.tile_kv, v.atX));
        const b = Math.min(v.w + 8, edge(Math.min(D.kv_len, tiles.end[i] * D.tile_kv), v.atX));
        ctx.fillRect(v.x0 + a, v.y0 + top, b - a, bottom - top);
      }
    }
  }
  if (Math.min(v.tx, v.ty) < 6 * dpr) return;
  ctx.fillStyle = colors.paper;
  ctx.globalAlpha = clamp(Math.min(v.tx, v.ty) / (18 * dpr), .3, 1);
  const thick = Math.max(1, Math.round(dpr));
  for (let c = v.column0 + 1; c < v.column1; ++c) {
    ctx.fillRect(v.x0 + edge(c * D.tile_kv, v.atX), v.y0, thick, v.h);
  }
  for (let r = v.row0 + 1; r < v.row1; ++r) {
    ctx.fillRect(v.x0, v.y0 + edge(r * D.tile_q, v.atY), v.w, thick);
  }
  ctx.globalAlpha = 1;
}

// Draws the exact area of partial and full tiles in every pixel. A run adds a
// step at each of its two ends; a running sum along each line of pixels turns the
// steps into shares.
let shareP = null, shareF = null, image = null;
function drawShares(v) {
  const w = v.w, h = v.h, stride = w + 2, size = stride * h;
  if (!shareP || shareP.length < size) {
    shareP = new Float32Array(size);
    shareF = new Float32Array(size);
  } else {
    shareP.fill(0, 0, size);
    shareF.fill(0, 0, size);
  }
  if (!inks) makeInks();
  const step = (share, line, x, weight) => {
    const i = Math.floor(x), part = x - i;
    share[line + i] += weight * (1 - part);
    share[line + i + 1] += weight * part;
  };
  for (let r = v.row0; r < v.row1; ++r) {
    const top = Math.max(0, v.atY(r * D.tile_q));
    const bottom = Math.min(h, v.atY(Math.min(D.q_len, (r + 1) * D.tile_q)));
    const first = firstAfter(tiles.end, tiles.from[r], tiles.to[r], v.column0);
    for (let y = Math.floor(top); y < bottom; ++y) {
      const weight = Math.min(bottom, y + 1) - Math.max(top, y);
      if (weight <= 0) continue;
      for (let i = first; i < tiles.to[r] && tiles.begin[i] < v.column1; ++i) {
        const share = tiles.kind[i] === 2 ? shareF : shareP;
        const a = clamp(v.atX(tiles.begin[i] * D.tile_kv), 0, w);
        const b = clamp(v.atX(Math.min(D.kv_len, tiles.end[i] * D.tile_kv)), 0, w);
        step(share, y * stride, a, weight);
        step(share, y * stride, b, -weight);
      }
    }
  }
  if (!image || image.width !== w || image.height !== h) image = ctx.createImageData(w, h);
  const out = new Uint32Array(image.data.buffer);
  // A share of 1/1000 or more rounds up to at least one step.
  const quantum = s => s < 1e-3 ? 0 : s > 1 ? 32 : Math.max(1, Math.round(s * 32));
  for (let y = 0, o = 0; y < h; ++y) {
    let p = 0, f = 0;
    for (let x = 0, i = y * stride; x < w; ++x, ++i, ++o) {
      p += shareP[i];
      f += shareF[i];
      out[o] = inks[quantum(p) * 33 + quantum(f)];
    }
  }
  ctx.putImageData(image, v.x0, v.y0);
}

// Index range of the visible spans, or null if there are more than `most`.
function visible(spans, from, to, most) {
  if (!spans.n) return null;
  const a = firstAfter(spans.end, 0, spans.n, from);
  const b = Math.min(spans.n, firstAfter(spans.end, a, spans.n, to) + 1);
  return b - a > most ? null : [a, b];
}

function drawBoundaries(v) {
  ctx.strokeStyle = colors.edge;
  ctx.globalAlpha = .4;
  ctx.lineWidth = dpr;
  ctx.setLineDash([2 * dpr, 3 * dpr]);
  ctx.beginPath();
  const k = visible(keySpans, viewX, viewX + v.w / v.px, v.w / (7 * dpr));
  const q = visible(querySpans, viewY, viewY + v.h / v.py, v.h / (7 * dpr));
  for (let i = k ? k[0] : 1; k && i < k[1] - 1; ++i) {
    const x = v.x0 + Math.round(v.atX(keySpans.end[i])) + .5;
    ctx.moveTo(x, v.y0);
    ctx.lineTo(x, v.y0 + v.h);
  }
  for (let i = q ? q[0] : 1; q && i < q[1] - 1; ++i) {
    const y = v.y0 + Math.round(v.atY(querySpans.end[i])) + .5;
    ctx.moveTo(v.x0, y);
    ctx.lineTo(v.x0 + v.w, y);
  }
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

function drawHover(v) {
  const a = v.atX(hover.column * D.tile_kv), c = v.atY(hover.row * D.tile_q);
  const b = v.atX(Math.min(D.kv_len, (hover.column + 1) * D.tile_kv));
  const d = v.atY(Math.min(D.q_len, (hover.row + 1) * D.tile_q));
  ctx.globalAlpha = .09;
  ctx.fillStyle = colors.edge;
  ctx.fillRect(v.x0, v.y0 + c, v.w, Math.max(1, d - c));
  ctx.fillRect(v.x0 + a, v.y0, Math.max(1, b - a), v.h);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colors.edge;
  ctx.lineWidth = 2 * dpr;
  ctx.strokeRect(v.x0 + a, v.y0 + c, Math.max(2 * dpr, b - a), Math.max(2 * dpr, d - c));
}

function drawAxes(v) {
  axis(v, true, keySpans, v.w, v.px, viewX, D.kv_len, D.tile_kv);
  axis(v, false, querySpans, v.h, v.py, viewY, D.q_len, D.tile_q);
  const gap = spans => (spans.n ? 25 : 7) * dpr;
  font(12, 600);
  ctx.fillStyle = colors.ink;
  ctx.textAlign = 'right';
  ctx.textBaseline = 'alphabetic';
  ctx.fillText('keys', v.x0 - 8 * dpr, v.y0 - Math.max(20 * dpr, gap(keySpans)) - 4 * dpr);
  ctx.fillText('queries', v.x0 - gap(querySpans) - 4 * dpr, v.y0 - 6 * dpr);
}

function font(size, weight) {
  ctx.font = (weight || 400) + ' ' + size * dpr + 'px ui-sans-serif, system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif';
}

// Draws one axis: x if `across`, else y.
function axis(v, across, spans, length, scale, from, tokens, tile) {
  const box = (a, size, fill) => {
    ctx.fillStyle = fill;
    if (across) ctx.fillRect(v.x0 + a, v.y0 - 21 * dpr, size, 18 * dpr);
    else ctx.fillRect(v.x0 - 21 * dpr, v.y0 + a, 18 * dpr, size);
  };
  const gap = (spans.n ? 25 : 7) * dpr;
  font(11);
  const room = across ? ctx.measureText(commas(tokens)).width + 26 * dpr : 34 * dpr;
  let step = tile;
  while (step * scale < room && step < tokens) step *= 2;
  ctx.fillStyle = colors.faint;
  ctx.textBaseline = 'alphabetic';
  for (let t = Math.ceil(from / step) * step; t < tokens; t += step) {
    const at = (t - from) * scale;
    if (at > length - 6 * dpr) break;
    if (across) {
      ctx.textAlign = 'left';
      ctx.fillRect(v.x0 + Math.round(at), v.y0 - gap - 3 * dpr, dpr, 4 * dpr);
      if (at + room - 26 * dpr < length + PAD * dpr) {
        ctx.fillText(commas(t), v.x0 + at + 4 * dpr, v.y0 - gap - 4 * dpr);
      }
    } else {
      ctx.textAlign = 'right';
      ctx.fillRect(v.x0 - gap - 3 * dpr, v.y0 + Math.round(at), 4 * dpr, dpr);
      ctx.fillText(commas(t), v.x0 - gap - 6 * dpr, v.y0 + at + (at < 4 * dpr ? 9 : 4) * dpr);
    }
  }
  if (!spans.n) return;
  const seen = visible(spans, from, from + length / scale, length);
  if (!seen) {
    // More documents than pixels: one mark a pixel, darker if it has several.
    for (let x = 0; x < length; ++x) {
      const i = firstAfter(spans.end, 0, spans.n, from + x / scale);
      const j = Math.min(spans.n - 1, firstAfter(spans.end, i, spans.n, from + (x + 1) / scale - 1e-6));
      if (i < spans.n) box(x, 1, j > i ? colors['band-many'] : bandColor(spans, i));
    }
    return;
  }
  font(10.5);
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'center';
  for (let i = seen[0]; i < seen[1]; ++i) {
    const begin = i ? spans.end[i - 1] : 0;
    const a = clamp(Math.round((begin - from) * scale), 0, length);
    const b = clamp(Math.round((spans.end[i] - from) * scale), 0, length);
    if (b <= a) continue;
    box(a, b - a, bandColor(spans, i));
    const count = commas(spans.end[i] - begin), id = spans.id[i];
    const texts = id === -2 ? ['padding: ' + count, 'padding'] : id === -1 ? ['no key'] :
        ['doc ' + id + ': ' + count, count];
    const text = texts.find(s => ctx.measureText(s).width + 8 * dpr < b - a);
    if (!text) continue;
    ctx.fillStyle = colors['band-ink'];
    if (across) {
      ctx.fillText(text, v.x0 + (a + b) / 2, v.y0 - 11.5 * dpr);
    } else {
      ctx.save();
      ctx.translate(v.x0 - 11.5 * dpr, v.y0 + (a + b) / 2);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(text, 0, 0);
      ctx.restore();
    }
  }
}

function bandColor(spans, i) {
  const id = spans.id[i];
  return id === -1 ? colors.paper : id === -2 ? colors.padding : colors[i % 2 ? 'band-b' : 'band-a'];
}

// ---- what is under the pointer ----
function documentsIn(spans, begin, end) {
  const a = firstAfter(spans.end, 0, spans.n, begin), names = [];
  const b = Math.min(spans.n, firstAfter(spans.end, a, spans.n, end - 1) + 1);
  for (let i = a; i < b && names.length < 6; ++i) {
    names.push(spans.id[i] === -2 ? 'padding' : spans.id[i] === -1 ? 'no key' : String(spans.id[i]));
  }
  const left = b - a - names.length;
  return names.join(', ') + (left > 0 ? ' and ' + commas(left) + ' more' : '');
}

const range = (a, b) => b - a === 1 ? String(commas(a)) : commas(a) + ' to ' + commas(b - 1);
const signed = n => (n < 0 ? '-' : '') + commas(Math.abs(n));

function setHover(at, px, py) {
  const same = hover && at && hover.row === at.row && hover.column === at.column;
  hover = at;
  tip.hidden = !at;
  if (!at) { redraw(); return; }
  if (!same) {
    const kind = classAt(at.row, at.column);
    const q0 = at.row * D.tile_q, q1 = Math.min(D.q_len, q0 + D.tile_q);
    const k0 = at.column * D.tile_kv, k1 = Math.min(D.kv_len, k0 + D.tile_kv);
    const head = document.createElement('div'), name = document.createElement('b');
    name.append(swatch('epf'[kind], NAMES[kind]));
    head.append(name, ', ' + MEANING[kind]);
    const rows = [['tile', 'row ' + commas(at.row) + ', column ' + commas(at.column)],
                  ['queries', range(q0, q1)]];
    if (list.q_offset) {
      rows.push(['positions', signed(q0 + list.q_offset) + ' to ' + signed(q1 - 1 + list.q_offset)]);
    }
    if (querySpans.n) rows.push(['of documents', documentsIn(querySpans, q0, q1)]);
    rows.push(['keys', range(k0, k1)]);
    if (keySpans.n) rows.push(['of documents', documentsIn(keySpans, k0, k1)]);
    const table = document.createElement('table');
    fillTable(table, rows);
    tip.replaceChildren(head, table);
    redraw();
  }
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = (px + 18 + w > width ? Math.max(4, px - w - 14) : px + 18) + 'px';
  tip.style.top = clamp(py + 18, 4, Math.max(4, height - h - 6)) + 'px';
}

function tileAt(px, py) {
  const x = viewX + (px - LEFT) / sx(), y = viewY + (py - TOP) / sy();
  if (px < LEFT || py < TOP || x >= D.kv_len || y >= D.q_len) return null;
  return {row: Math.floor(y / D.tile_q), column: Math.floor(x / D.tile_kv)};
}

// Steps from tile to tile by keyboard, keeping the tile in view.
function stepTile(dr, dc) {
  const at = hover || {row: Math.floor(viewY / D.tile_q), column: Math.floor(viewX / D.tile_kv)};
  const row = hover ? clamp(at.row + dr, 0, D.rows - 1) : at.row;
  const column = hover ? clamp(at.column + dc, 0, D.columns - 1) : at.column;
  viewX = clamp(viewX, Math.min(D.kv_len, (column + 1) * D.tile_kv) - mapW() / sx(), column * D.tile_kv);
  viewY = clamp(viewY, Math.min(D.q_len, (row + 1) * D.tile_q) - mapH() / sy(), row * D.tile_q);
  keepInside();
  setHover({row, column}, LEFT + (column * D.tile_kv - viewX) * sx() + D.tile_kv * sx(),
           TOP + (row * D.tile_q - viewY) * sy() + D.tile_q * sy());
  $('live').textContent = 'Row ' + row + ', column ' + column + ': ' + NAMES[classAt(row, column)];
}

// ---- events ----
const pointers = new Map();
const local = e => {
  const box = canvas.getBoundingClientRect();
  return [e.clientX - box.left, e.clientY - box.top];
};
const spread = () => {
  const [a, b] = [...pointers.values()];
  return Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
};
canvas.addEventListener('wheel', e => {
  e.preventDefault();
  const lines = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
  const amount = clamp(e.deltaY * lines, -240, 240);
  const [px, py] = local(e);
  zoomAt(Math.exp(-amount * (e.ctrlKey ? .008 : .0022)), px, py);
  setHover(tileAt(px, py), px, py);
}, {passive: false});
canvas.addEventListener('pointerdown', e => {
  try { canvas.setPointerCapture(e.pointerId); } catch { /* a pointer that is gone */ }
  pointers.set(e.pointerId, local(e));
  canvas.classList.add('drag');
});
canvas.addEventListener('pointermove', e => {
  const [px, py] = local(e), last = pointers.get(e.pointerId);
  if (last && pointers.size === 1) {
    move(last[0] - px, last[1] - py);
  } else if (last) {
    const before = spread();
    pointers.set(e.pointerId, [px, py]);
    const [a, b] = [...pointers.values()];
    zoomAt(spread() / before, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
  }
  if (last) pointers.set(e.pointerId, [px, py]);
  setHover(tileAt(px, py), px, py);
});
const release = e => {
  pointers.delete(e.pointerId);
  if (!pointers.size) canvas.classList.remove('drag');
};
canvas.addEventListener('pointerup', release);
canvas.addEventListener('pointercancel', release);
canvas.addEventListener('pointerleave', e => { if (!pointers.size) setHover(null); });
canvas.addEventListener('dblclick', e => zoomAt(2, ...local(e)));
const middle = factor => zoomAt(factor, LEFT + mapW() / 2, TOP + mapH() / 2);
function toggleLines() {
  showLines = !showLines;
  $('lines').setAttribute('aria-pressed', showLines);
  redraw();
}
$('in').onclick = () => middle(1.5);
$('out').onclick = () => middle(1 / 1.5);
$('reset').onclick = reset;
$('lines').onclick = toggleLines;
document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.tagName === 'SELECT') return;
  const arrow = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[e.key];
  if (arrow && e.shiftKey) stepTile(arrow[1], arrow[0]);
  else if (arrow) { setHover(null); move(arrow[0] * mapW() / 8, arrow[1] * mapH() / 8); }
  else if (e.key === '+' || e.key === '=') middle(1.5);
  else if (e.key === '-') middle(1 / 1.5);
  else if (e.key === '0') reset();
  else if (e.key === 'd') toggleLines();
  else if (e.key === 'Escape') setHover(null);
  else return;
  e.preventDefault();
});

// ---- start ----
function fillSelect(id, count, value) {
  const select = $(id);
  for (let i = 0; i < count; ++i) select.add(new Option(i, i, false, i === value));
  $(id + '-box').hidden = count < 2;
  select.onchange = () => choose(+$('row').value * D.heads + +$('head').value);
}
if (D.whole) {
  fillSelect('row', D.batch, Math.floor(D.chosen / D.heads));
  fillSelect('head', D.heads, D.chosen % D.heads);
} else {
  $('row-box').hidden = $('head-box').hidden = true;
  $('note').hidden = false;
  $('note').textContent = 'Only batch row ' + D.lists[0].batch_row + ', plan head ' + D.lists[0].head +
      ' of ' + commas(D.batch) + ' rows and ' + commas(D.heads) + ' heads is in this file: together they are too large.';
}
for (const text of D.warnings) {
  const p = document.createElement('p');
  p.className = 'warn';
  p.textContent = text;
  $('warnings').append(p);
}
$('lines').hidden = !D.lists.some(l => l.keys.count > 1 || l.queries.count > 1);
readColors();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColors(); redraw(); });
choose(D.chosen);
new ResizeObserver(resize).observe($('stage'));
resize();
})();
