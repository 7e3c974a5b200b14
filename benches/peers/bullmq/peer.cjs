// The work of heyday's worker, done with BullMQ: a queue and a worker a shard, one job a change, writes through ioredis.
'use strict';

const { createInterface } = require('node:readline');
const { Queue, Worker } = require('bullmq');
const { Cluster } = require('ioredis');

const QUEUE = 'peers';
// Without progress for this long the peer gives up.
const STALL_MS_MAX = 120_000;
// How many stream entries become jobs at once, before anything is measured.
const COPY = 1000;
// Jobs that one worker has in hand; of 10 to 512 a worker the cheapest measured.
const CONCURRENCY_MAX = 100;
const HOUR = 3600;

function variable(name) {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

function readSettings() {
  return {
    nodes: variable('PEER_NODES').split(',').map((node) => {
      const colon = node.lastIndexOf(':');
      return { host: node.slice(0, colon), port: Number(node.slice(colon + 1)) };
    }),
    password: process.env.PEER_PASSWORD || undefined,
    prefix: process.env.PEER_PREFIX ?? '',
    tags: variable('PEER_TAGS').split(','),
    changes: Number(variable('PEER_CHANGES')),
    concurrency: Math.min(Number(variable('PEER_BATCH')), CONCURRENCY_MAX),
    window: readWindow(variable('PEER_FIRST'), variable('PEER_LAST')),
  };
}

// The days whose day keys are kept, by the month and the day that a date celebrates: MM-DD.
function readWindow(first, last) {
  const days = new Map();
  for (let midnight = Date.parse(first) / 1000; midnight <= Date.parse(last) / 1000; midnight += 24 * HOUR) {
    const name = new Date(midnight * 1000).toISOString().slice(0, 10);
    days.set(name.slice(5), { name, due: midnight + 9 * HOUR, end: midnight + (24 + 25 + 12) * HOUR });
  }
  return days;
}

function connect(settings, options) {
  // BullMQ asks for commands that wait for a reconnection as long as it takes.
  const redisOptions = { password: settings.password, maxRetriesPerRequest: null };
  const cluster = new Cluster(settings.nodes, { redisOptions, ...options });
  // It would try for ever; a cluster that cannot be reached is the end of a measurement.
  cluster.on('error', fail);
  return cluster;
}

// The stream's entries as jobs of the shard's own queue.
async function fill(settings, cluster, connection, tag) {
  const queue = new Queue(QUEUE, { connection, prefix: bullPrefix(settings, tag) });
  await queue.obliterate({ force: true });
  let [begin, added] = ['-', 0];
  for (;;) {
    const entries = await cluster.xrange(`${settings.prefix}changes:{${tag}}`, begin, '+', 'COUNT', COPY);
    if (entries.length === 0) return added;
    begin = `(${entries.at(-1)[0]}`;
    await queue.addBulk(entries.map(([, fields]) => ({ name: 'change', data: changeOf(fields) })));
    added += entries.length;
  }
}

function bullPrefix(settings, tag) {
  return `${settings.prefix}bull:{${tag}}`;
}

function changeOf(fields) {
  const change = {};
  for (let at = 0; at < fields.length; at += 2) {
    if (fields[at] !== 'type') change[fields[at]] = fields[at + 1];
  }
  return change;
}

// What is to be done for one job. The client puts the commands of all jobs of a turn of the event loop into pipelines.
function processor(settings, cluster, tag) {
  const { prefix, window } = settings;
  const users = `${prefix}users:{${tag}}`;
  return async (job) => {
    const { user, friend, birthday } = job.data;
    const key = `${prefix}user:{${tag}}:${user}:birthdays`;
    const before = await cluster.hget(key, friend);
    const old = before ? window.get(before.slice(-5)) : undefined;
    const now = window.get(birthday.slice(-5));
    const writes = [cluster.hset(key, friend, birthday), cluster.zadd(users, 0, user)];
    if (old && old !== now) writes.push(cluster.zrem(`${prefix}birthdays:{${tag}}:${old.name}`, `${user}:${friend}`));
    if (now) {
      const day = `${prefix}birthdays:{${tag}}:${now.name}`;
      writes.push(cluster.zadd(day, now.due, `${user}:${friend}`), cluster.expireat(day, now.end));
    }
    await Promise.all(writes);
  };
}

// A worker for each shard; ends when so many jobs are completed, as BullMQ has recorded it.
function consume(settings, workers) {
  return new Promise((resolve, reject) => {
    let [completed, moved] = [0, Date.now()];
    setInterval(() => {
      if (Date.now() - moved > STALL_MS_MAX) reject(new Error(`no progress for ${STALL_MS_MAX / 1000} s after ${completed} changes`));
    }, 1000);
    for (const worker of workers) {
      worker.on('completed', () => {
        completed += 1;
        moved = Date.now();
        if (completed === settings.changes) resolve(completed);
      });
      worker.on('failed', (_job, error) => reject(error));
      worker.on('error', reject);
      worker.run().catch(reject);
    }
  });
}

async function waitForGo() {
  for await (const line of createInterface({ input: process.stdin })) {
    if (line.trim() === 'go') return;
    break;
  }
  throw new Error('no `go` on stdin');
}

async function main() {
  const settings = readSettings();
  const bound = setTimeout(() => fail(new Error(`not ready within ${STALL_MS_MAX / 1000} s`)), STALL_MS_MAX);
  // BullMQ's own connection stays without automatic pipelines, which are not known to work there.
  const connection = connect(settings);
  const cluster = connect(settings, { enableAutoPipelining: true });
  const counts = await Promise.all(settings.tags.map((tag) => fill(settings, cluster, connection, tag)));
  const found = counts.reduce((sum, count) => sum + count, 0);
  if (found !== settings.changes) throw new Error(`the streams hold ${found} entries, not ${settings.changes}`);
  const workers = settings.tags.map((tag) => new Worker(QUEUE, processor(settings, cluster, tag), {
    connection,
    prefix: bullPrefix(settings, tag),
    autorun: false,
    concurrency: settings.concurrency,
    removeOnComplete: { count: 0 },
  }));
  await Promise.all(workers.map((worker) => worker.waitUntilReady()));
  clearTimeout(bound);
  console.log('ready');
  await waitForGo();

  const [began, cpuBegan] = [process.hrtime.bigint(), process.cpuUsage()];
  const changes = await consume(settings, workers);
  const [seconds, cpu] = [Number(process.hrtime.bigint() - began) / 1e9, process.cpuUsage(cpuBegan)];
  console.log(JSON.stringify({ changes, seconds, cpu_seconds: (cpu.user + cpu.system) / 1e6 }));
}

function fail(error) {
  console.error(`bullmq: ${error?.message ?? error}`);
  process.exit(1);
}

main().then(() => process.exit(0), fail);
