// The Node.js victim: node spawn_sync.js MIB PROGRAM [HEAP_MIB]; orders as parent.c takes them. MIB is of Buffers, which lie outside V8's heap.
'use strict';
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');

const [mib, program, heap = 0] = process.argv.slice(2);
const memory = Array.from({ length: Number(mib) }, () => Buffer.alloc(1 << 20, 1));
// A KiB each, with what an array has besides its elements.
for (let n = 0; n < heap * 1024; n++) memory.push(new Array(124).fill(n));

function line() {
  const byte = Buffer.alloc(1);
  let text = '';
  while (fs.readSync(0, byte, 0, 1) === 1) {
    if (byte[0] === 10) return text;
    text += String.fromCharCode(byte[0]);
  }
  return null;
}

fs.writeSync(1, 'ready\n');
for (let order = line(); order !== null && memory.length >= 0; order = line()) {
  const times = [];
  for (let n = Number(order.split(' ')[1]); n > 0; n--) {
    const begin = process.hrtime.bigint();
    const { status, error } = spawnSync(program, { stdio: 'ignore' });
    times.push(process.hrtime.bigint() - begin);
    if (status !== 0) throw error ?? new Error(`exit status ${status}`);
  }
  fs.writeSync(1, times.join(' ') + '\n');
}
