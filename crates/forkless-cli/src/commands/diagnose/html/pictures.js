'use strict';
// The timeline by program and the flame graph. Without this script the page has both as they are
// written, without zoom and search.
document.documentElement.classList.add('with-script');

function time(us) {
  const ns = us * 1000;
  if (ns < 1000) return ns.toFixed(0) + ' ns';
  if (us < 1000) return us.toFixed(1) + ' us';
  if (us < 1e6) return (us / 1000).toFixed(2) + ' ms';
  return (us / 1e6).toFixed(2) + ' s';
}

function timeline() {
  const canvas = document.getElementById('lanes');
  if (!canvas) return;
  const told = document.getElementById('told');
  const data = JSON.parse(document.getElementById('creations').textContent);
  const lanes = data.lanes, all = data.seen, end = data.end;
  const LANE = 46, LABEL = 16, AXIS = 18;
  let from = 0, to = end, chosen = -1, drag = null;
  canvas.height = 1;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The first creation that ends after a moment. Creations are sorted by their beginning; the
  // longest says how far back one may still matter.
  const longest = all.reduce((most, one) => Math.max(most, one[1]), 0);
  function firstAfter(moment) {
    let low = 0, high = all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (all[middle][0] < moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Pointers report more often than the screen is drawn.
  let asked = false;
  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  }
  function paint() {
    const width = canvas.clientWidth, height = lanes.length * LANE + AXIS, scale = window.devicePixelRatio || 1;
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const draw2d = canvas.getContext('2d');
    draw2d.scale(scale, scale);
    draw2d.font = '12px system-ui, sans-serif';
    const perPixel = (to - from) / width;
    const part = lanes.map(() => new Float64Array(width + 1));
    for (let at = firstAfter(from - longest); at < all.length && all[at][0] <= to; at++) {
      const one = all[at], begin = (one[0] - from) / perPixel, stop = (one[0] + one[1] - from) / perPixel;
      if (stop < 0) continue;
      const lane = part[one[2]];
      const last = Math.min(width, Math.floor(stop));
      for (let x = Math.max(0, Math.floor(begin)); x <= last; x++) {
        lane[x] += Math.max(Math.min(x + 1, stop) - Math.max(x, begin), 1e-6);
      }
    }
    const most = Math.max(1e-6, ...part.map(lane => lane.reduce((a, b) => Math.max(a, b), 0)));
    lanes.forEach((name, index) => {
      const top = index * LANE;
      draw2d.fillStyle = css('--lane');
      draw2d.fillRect(0, top + LABEL, width, LANE - LABEL - 2);
      draw2d.fillStyle = css('--bar');
      part[index].forEach((value, x) => {
        if (value === 0) return;
        const tall = Math.max(2, Math.sqrt(value / most) * (LANE - LABEL - 4));
        draw2d.fillRect(x, top + LANE - 2 - tall, 1, tall);
      });
      draw2d.fillStyle = css('--text');
      draw2d.fillText(name, 2, top + 12, width - 4);
    });
    draw2d.fillStyle = css('--weak');
    const bottom = lanes.length * LANE + 13;
    draw2d.textAlign = 'left';
    draw2d.fillText(time(from), 2, bottom);
    draw2d.textAlign = 'center';
    draw2d.fillText(time((from + to) / 2), width / 2, bottom);
    draw2d.textAlign = 'right';
    draw2d.fillText(time(to), width - 2, bottom);
    draw2d.textAlign = 'left';
    if (chosen >= 0) {
      const x = (all[chosen][0] - from) / perPixel;
      draw2d.fillStyle = css('--mark');
      draw2d.fillRect(x, all[chosen][2] * LANE + LABEL, 2, LANE - LABEL - 2);
    }
    if (drag && drag.now !== drag.begin) {
      draw2d.globalAlpha = 0.25;
      draw2d.fillStyle = css('--mark');
      draw2d.fillRect(Math.min(drag.begin, drag.now), 0, Math.abs(drag.now - drag.begin), height);
      draw2d.globalAlpha = 1;
    }
  }

  function show(begin, stop) {
    const length = Math.min(end, Math.max(stop - begin, 20));
    from = Math.min(Math.max(0, begin), end - length);
    to = from + length;
    draw();
  }
  function zoom(factor) {
    const middle = chosen >= 0 && all[chosen][0] >= from && all[chosen][0] <= to ? all[chosen][0] : (from + to) / 2;
    const half = (to - from) * factor / 2;
    show(middle - half, middle + half);
  }
  function choose(at) {
    if (at < 0 || at >= all.length) return;
    chosen = at;
    const one = all[at], started = one[6] >= 0 ? ' ' + data.started[one[6]] : '';
    told.textContent = time(one[0]) + ': ' + data.programs[one[3]] + ' (' + one[4] + '), ' + data.outcomes[one[7]]
      + ' -> ' + one[5] + started + ', ' + time(one[1]);
    if (one[0] < from || one[0] > to) show(one[0] - (to - from) / 2, one[0] + (to - from) / 2); else draw();
  }
  const place = event => event.clientX - canvas.getBoundingClientRect().left;
  function nearest(event) {
    const x = place(event), lane = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / LANE);
    const perPixel = (to - from) / canvas.clientWidth, moment = from + x * perPixel, near = 5 * perPixel;
    let best = -1;
    for (let at = firstAfter(moment - near - longest); at < all.length && all[at][0] <= moment + near; at++) {
      const one = all[at];
      if (one[2] === lane && one[0] + one[1] >= moment - near && (best < 0 || one[1] > all[best][1])) best = at;
    }
    return best;
  }
  canvas.addEventListener('pointerdown', event => {
    drag = { begin: place(event), now: place(event) };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', event => {
    if (drag) { drag.now = place(event); draw(); } else { choose(nearest(event)); }
  });
  canvas.addEventListener('pointercancel', () => { drag = null; draw(); });
  canvas.addEventListener('pointerup', event => {
    if (!drag) return;
    const perPixel = (to - from) / canvas.clientWidth, [a, b] = [drag.begin, drag.now].sort((a, b) => a - b);
    drag = null;
    if (b - a > 4) show(from + a * perPixel, from + b * perPixel); else choose(nearest(event));
  });
  canvas.addEventListener('dblclick', () => show(0, end));
  canvas.addEventListener('keydown', event => {
    const step = (to - from) / 4;
    const does = {
      ArrowLeft: () => show(from - step, to - step), ArrowRight: () => show(from + step, to + step),
      ArrowDown: () => choose(chosen < 0 ? firstAfter(from) : chosen + 1),
      ArrowUp: () => choose(chosen < 0 ? firstAfter(to) - 1 : chosen - 1),
      '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), 0: () => show(0, end), Home: () => show(0, end),
    }[event.key];
    if (does && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); does(); }
  });
  document.getElementById('closer').addEventListener('click', () => zoom(0.5));
  document.getElementById('wider').addEventListener('click', () => zoom(2));
  document.getElementById('whole').addEventListener('click', () => show(0, end));
  addEventListener('resize', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  draw();
}

function flame() {
  const graph = document.getElementById('flame');
  if (!graph) return;
  const boxes = [...graph.children], found = document.getElementById('found');
  const number = (box, name) => Number(box.dataset[name]);
  function zoom(to) {
    const left = number(to, 'x'), width = number(to, 'w'), depth = number(to, 'd');
    boxes.forEach(box => {
      const x = number(box, 'x'), w = number(box, 'w');
      const above = number(box, 'd') < depth;
      const outside = x + w <= left + 1e-9 || x >= left + width - 1e-9;
      box.hidden = outside;
      if (outside) return;
      const begin = above ? 0 : (x - left) / width, part = above ? 1 : w / width;
      box.style.left = begin * 100 + '%';
      box.style.width = part * 100 + '%';
    });
  }
  function near(box, key) {
    const at = boxes.indexOf(box), depth = number(box, 'd');
    const seek = (step, stop, right) => {
      for (let i = at + step; i >= 0 && i < boxes.length; i += step) {
        const other = number(boxes[i], 'd');
        if (right(other)) return boxes[i];
        if (stop(other)) return null;
      }
      return null;
    };
    return {
      ArrowDown: () => seek(1, d => d <= depth, d => d === depth + 1),
      ArrowUp: () => seek(-1, () => false, d => d === depth - 1),
      ArrowRight: () => seek(1, d => d < depth, d => d === depth),
      ArrowLeft: () => seek(-1, d => d < depth, d => d === depth),
    }[key];
  }
  graph.addEventListener('click', event => { if (event.target.dataset.d) zoom(event.target); });
  graph.addEventListener('focusin', event => { if (event.target.title) found.textContent = event.target.title; });
  graph.addEventListener('mouseover', event => { if (event.target.title) found.textContent = event.target.title; });
  graph.addEventListener('keydown', event => {
    if (event.key === 'Escape') { zoom(boxes[0]); return; }
    const move = near(event.target, event.key);
    if (!move) return;
    event.preventDefault();
    const next = move();
    if (!next) return;
    if (next.hidden) zoom(boxes[0]);
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  document.getElementById('unzoom').addEventListener('click', () => zoom(boxes[0]));
  document.getElementById('search').addEventListener('input', event => {
    const wanted = event.target.value.toLowerCase();
    let sum = 0, count = 0, inside = -1;
    boxes.forEach(box => {
      const depth = number(box, 'd');
      if (inside >= 0 && depth <= inside) inside = -1;
      const hit = wanted !== '' && box.textContent.toLowerCase().includes(wanted);
      box.classList.toggle('hit', hit);
      box.classList.toggle('dim', wanted !== '' && !hit);
      if (!hit) return;
      count++;
      if (inside < 0) { sum += number(box, 'w'); inside = depth; }
    });
    found.textContent = wanted === '' ? '' : count + (count === 1 ? ' box, ' : ' boxes, ') + (sum * 100).toFixed(1) + ' % of the cost';
  });
}

// Telephones show no bars of what scrolls. What does not scroll is no stop of the Tab key.
function cues() {
  document.querySelectorAll('.cue').forEach(cue => {
    const box = cue.firstElementChild;
    const look = () => {
      const down = box.scrollHeight - box.clientHeight, right = box.scrollWidth - box.clientWidth;
      cue.classList.toggle('above', box.scrollTop > 1);
      cue.classList.toggle('below', box.scrollTop < down - 1);
      cue.classList.toggle('left', box.scrollLeft > 1);
      cue.classList.toggle('right', box.scrollLeft < right - 1);
      box.tabIndex = down > 1 || right > 1 ? 0 : -1;
    };
    box.addEventListener('scroll', look, { passive: true });
    new ResizeObserver(look).observe(box);
    look();
  });
}

timeline();
flame();
cues();
