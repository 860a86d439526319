// Runs jobs through BullMQ, whose queues are Lua scripts over keys that it names itself, and asks a rate limiter
// for more than it gives.
//
// Worker processes take jobs of three queues' kinds: at once, delayed, and children whose parent waits for them.
// One worker after the other is killed; what it was working on stalls and is given to another. BullMQ promises
// each job at least once: none is lost, and each is completed once.
//
//     node bullmq.mjs PORT        (workers are started with one more word)

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { FlowProducer, Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";

const JOBS = 1000;
const FLOWS = 20;
const CHILDREN = 5;
const WORKERS = 3;
const KILLS = 4;
const SECONDS_MAX = 90;

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), db: 9, maxRetriesPerRequest: null };

function work() {
  const settings = { connection, concurrency: 10, lockDuration: 1500, stalledInterval: 500, maxStalledCount: 100 };
  const square = async (job) => {
    await sleep(job.data.ms);
    if (job.data.fails > job.attemptsMade) throw new Error("on purpose");
    return job.data.n ** 2;
  };
  const worker = new Worker("jobs", square, settings);
  worker.on("error", (error) => console.error(error.message));
  const sum = async (job) => Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
  new Worker("parents", sum, settings).on("error", (error) => console.error(error.message));
}

async function limitsRate(redis) {
  const limiter = new RateLimiterRedis({ storeClient: redis, points: 5, duration: 60, keyPrefix: "limit" });
  const asked = await Promise.allSettled(Array.from({ length: 20 }, () => limiter.consume("somebody")));
  assert.equal(asked.filter((answer) => answer.status === "fulfilled").length, 5);
  assert.equal((await limiter.get("somebody")).consumedPoints, 20);
}

async function main() {
  const redis = new Redis(connection);
  await redis.flushdb();
  await limitsRate(redis);
  const [jobs, parents] = [new Queue("jobs", { connection }), new Queue("parents", { connection })];
  const flows = new FlowProducer({ connection });
  const start = () => fork(process.argv[1], [process.argv[2], "work"]);
  const workers = Array.from({ length: WORKERS }, start);
  try {
    const data = (n) => ({ n, ms: n % 5, fails: n % 50 === 0 ? 1 : 0 });
    const options = (n) => ({ attempts: 3, delay: n % 10 === 0 ? 50 : 0, priority: n % 7, jobId: `job-${n}` });
    for (let n = 0; n < JOBS; n += 100) {
      const some = Array.from({ length: 100 }, (_, at) => n + at);
      await jobs.addBulk(some.map((n) => ({ name: "square", data: data(n), opts: options(n) })));
      // The same job again is the job that is there.
      await jobs.add("square", data(n), options(n));
    }
    for (let flow = 0; flow < FLOWS; flow++) {
      const children = Array.from({ length: CHILDREN }, (_, n) => ({ name: "square", queueName: "jobs", data: { n, ms: 0, fails: 0 } }));
      await flows.add({ name: "sum", queueName: "parents", data: {}, children });
    }
    for (let kill = 0; kill < KILLS; kill++) {
      await sleep(100);
      const victim = workers.shift();
      victim.kill("SIGKILL");
      await once(victim, "exit");
      workers.push(start());
    }
    const wanted = [JOBS + FLOWS * CHILDREN, FLOWS];
    const deadline = Date.now() + SECONDS_MAX * 1000;
    const counts = async () => Promise.all([jobs.getCompletedCount(), parents.getCompletedCount()]);
    while (String(await counts()) !== String(wanted)) {
      assert(Date.now() < deadline, `completed ${await counts()}, ${JSON.stringify(await jobs.getJobCounts())}`);
      await sleep(50);
    }
    const others = ["failed", "active", "waiting", "delayed", "prioritized", "waiting-children"];
    const left = Object.values(await jobs.getJobCounts(...others));
    assert(left.every((count) => count === 0), `left over: ${left}`);
    const done = await jobs.getCompleted(0, -1);
    assert(done.every((job) => job.returnvalue === job.data.n ** 2));
    assert.equal(new Set(done.map((job) => job.id)).size, JOBS + FLOWS * CHILDREN);
    const sums = await parents.getCompleted(0, -1);
    assert(sums.every((job) => job.returnvalue === 0 + 1 + 4 + 9 + 16));
  } finally {
    for (const worker of workers) worker.kill("SIGKILL");
  }
  const stats = await redis.info("stats");
  console.log(`bullmq: ${JOBS + FLOWS * (CHILDREN + 1)} jobs done; ${stats.match(/scripts_\w+:\d+/g)}`);
  await Promise.all([jobs.close(), parents.close(), flows.close()]);
  await redis.flushdb();
  redis.disconnect();
}

if (process.argv.length > 3) work();
else await main();
