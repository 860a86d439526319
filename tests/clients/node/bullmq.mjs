// Runs jobs through BullMQ, whose queues are Lua scripts over keys that it names itself.
//
// Worker processes take jobs of three queues' kinds: at once, delayed, and children whose parent waits for them.
// Workers are killed at random; what one was working on stalls and is given to another. BullMQ promises each job
// at least once: none is lost, each is completed once, and those done again are the ones that a killed worker held.
//
//     node bullmq.mjs PORT DATABASE SEED        (workers are started with one more word)

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { FlowProducer, Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { Fleet, chances, endWithParent, until } from "./fleet.mjs";

const JOBS = 1000;
const FLOWS = 20;
const CHILDREN = 5;
const WORKERS = 3;
const KILLS = 5;
const CONCURRENCY = 10;

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), db: Number(process.argv[3]), maxRetriesPerRequest: null };

function work() {
  endWithParent();
  const redis = new Redis(connection);
  const settings = { connection, concurrency: CONCURRENCY, lockDuration: 1500, stalledInterval: 500, maxStalledCount: 100 };
  const square = async (job) => {
    await sleep(job.data.ms);
    if (job.data.fails > job.attemptsMade) throw new Error("on purpose");
    await redis.hincrby("ledger", job.id, 1);
    return job.data.n ** 2;
  };
  const worker = new Worker("jobs", square, settings);
  worker.on("error", (error) => console.error(error.message));
  const sum = async (job) => Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
  new Worker("parents", sum, settings).on("error", (error) => console.error(error.message));
}

async function send(jobs, flows) {
  const data = (n) => ({ n, ms: n % 5, fails: n % 50 === 0 ? 1 : 0 });
  const options = (n) => ({ attempts: 3, delay: n % 10 === 0 ? 50 : 0, priority: n % 7, jobId: `job-${n}` });
  for (let n = 0; n < JOBS; n += 100) {
    const some = Array.from({ length: 100 }, (_, at) => n + at);
    await jobs.addBulk(some.map((n) => ({ name: "square", data: data(n), opts: options(n) })));
    // The same job again is the job that is there.
    await jobs.add("square", data(n), options(n));
  }
  for (let flow = 0; flow < FLOWS; flow++) {
    const child = { name: "square", queueName: "jobs" };
    const children = Array.from({ length: CHILDREN }, (_, n) => ({ ...child, data: { n, ms: 0, fails: 0 } }));
    await flows.add({ name: "sum", queueName: "parents", data: {}, children });
  }
}

async function check(redis, jobs, parents) {
  const others = ["failed", "active", "waiting", "delayed", "prioritized", "waiting-children"];
  const left = Object.values(await jobs.getJobCounts(...others));
  assert(left.every((count) => count === 0), `left over: ${left}`);
  const done = await jobs.getCompleted(0, -1);
  assert(done.every((job) => job.returnvalue === job.data.n ** 2));
  assert.equal(new Set(done.map((job) => job.id)).size, JOBS + FLOWS * CHILDREN);
  const sums = await parents.getCompleted(0, -1);
  assert(sums.every((job) => job.returnvalue === 0 + 1 + 4 + 9 + 16));
  const ledger = Object.values(await redis.hgetall("ledger"));
  assert.equal(ledger.length, JOBS + FLOWS * CHILDREN);
  const doubled = ledger.reduce((sum, often) => sum + Number(often) - 1, 0);
  assert(doubled <= KILLS * CONCURRENCY, `${doubled} jobs were done again`);
  return doubled;
}

async function main() {
  const redis = new Redis(connection);
  await redis.flushdb();
  const [jobs, parents] = [new Queue("jobs", { connection }), new Queue("parents", { connection })];
  const flows = new FlowProducer({ connection });
  const fleet = new Fleet(WORKERS, chances(Number(process.argv[4])));
  try {
    await send(jobs, flows);
    await fleet.killSome(() => jobs.getCompletedCount(), JOBS, KILLS);
    const wanted = [JOBS + FLOWS * CHILDREN, FLOWS];
    const counts = async () => Promise.all([jobs.getCompletedCount(), parents.getCompletedCount()]);
    const left = async () => `completed ${await counts()}, ${JSON.stringify(await jobs.getJobCounts())}`;
    await until(async () => String(await counts()) === String(wanted), left);
    const doubled = await check(redis, jobs, parents);
    console.log(`bullmq: ${JOBS + FLOWS * (CHILDREN + 1)} jobs done, ${doubled} again after ${KILLS} kills`);
  } finally {
    fleet.end();
  }
  await Promise.all([jobs.close(), parents.close(), flows.close()]);
  await redis.flushdb();
  redis.disconnect();
}

if (process.argv.length > 5) work();
else await main();
