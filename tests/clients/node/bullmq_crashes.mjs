// Jobs of BullMQ whose workers and server are killed; see crashes.rs of xtask. A job that a killed worker held stalls
// and is given to another: none is lost.
//
//     node bullmq_crashes.mjs send PORT LEDGER JOBS
//     node bullmq_crashes.mjs work PORT LEDGER

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";

const [task, port, ledger, jobs] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null, retryStrategy: () => 50 };

async function work(job) {
  await sleep(job.data.job % 5);
  appendFileSync(ledger, `${job.data.job} ${job.data.sent} ${Date.now()}\n`);
}

async function send() {
  const queue = new Queue("jobs", { connection: { ...connection, maxRetriesPerRequest: 0 } });
  queue.on("error", () => {});
  for (let job = 0; job < Number(jobs); job++) {
    const sent = Date.now();
    for (let isSent = false; !isSent; ) {
      try {
        await queue.add("work", { job, sent });
        isSent = true;
      } catch {
        await sleep(20);
      }
    }
  }
  await queue.close();
}

if (task === "send") {
  await send();
  process.exit(0);
} else {
  const settings = { connection, concurrency: 4, lockDuration: 1500, stalledInterval: 500, maxStalledCount: 100 };
  new Worker("jobs", work, settings).on("error", (error) => console.error(error.message));
}
