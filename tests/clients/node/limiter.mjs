// Asks the limiters of rate-limiter-flexible, which are scripts, for more than they give.
//
// Several workers ask at once, and are killed at random. Each limiter lets through what it may, and no more; a
// killed worker may have been let through and not have noted it.
//
//     node limiter.mjs PORT DATABASE SEED        (workers are started with one more word)

import assert from "node:assert/strict";
import Redis from "ioredis";
import { BurstyRateLimiter, RateLimiterRedis } from "rate-limiter-flexible";
import { Fleet, chances, endWithParent, until } from "./fleet.mjs";

const ASKED = 1000;
const PASSED = 300;
const WORKERS = 4;
const KILLS = 4;
// Each worker has so many questions under way.
const AT_ONCE = 5;

const redis = new Redis({ host: "127.0.0.1", port: Number(process.argv[2]), db: Number(process.argv[3]) });

function limiters() {
  const common = { storeClient: redis, duration: 86400 };
  const plain = new RateLimiterRedis({ ...common, points: PASSED, keyPrefix: "plain" });
  const blocking = new RateLimiterRedis({ ...common, points: PASSED, keyPrefix: "blocking", blockDuration: 86400 });
  const burst = new RateLimiterRedis({ ...common, points: PASSED - 100, keyPrefix: "burst" });
  const bursty = new BurstyRateLimiter(new RateLimiterRedis({ ...common, points: 100, keyPrefix: "base" }), burst);
  return { plain, blocking, bursty };
}

async function work() {
  endWithParent();
  const mine = Object.entries(limiters());
  const ask = async () => {
    while ((await redis.incr("asked")) <= ASKED) {
      for (const [name, limiter] of mine) {
        const passed = await limiter.consume("somebody").then(() => true, (refused) => {
          if (refused instanceof Error) throw refused;
          return false;
        });
        if (passed) await redis.hincrby("passed", name, 1);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, ask));
  await redis.incr("idle");
}

async function main() {
  await redis.flushdb();
  const fleet = new Fleet(WORKERS, chances(Number(process.argv[4])));
  try {
    const asked = async () => Number(await redis.get("asked"));
    await fleet.killSome(asked, PASSED, KILLS);
    await until(async () => Number(await redis.get("idle")) === WORKERS, async () => `asked ${await asked()} times`);
  } finally {
    fleet.end();
  }
  for (const [name, limiter] of Object.entries(limiters())) {
    const passed = Number(await redis.hget("passed", name));
    assert(passed <= PASSED && passed >= PASSED - KILLS * AT_ONCE, `${name} let ${passed} through`);
    await assert.rejects(limiter.consume("somebody"), (refused) => !(refused instanceof Error));
  }
  const { consumedPoints } = await limiters().plain.get("somebody");
  assert(consumedPoints >= ASKED - KILLS * AT_ONCE, `${consumedPoints} points were consumed`);
  console.log(`rate-limiter-flexible: ${ASKED} times asked, ${KILLS} kills`);
  await redis.flushdb();
  redis.disconnect();
}

if (process.argv.length > 5) await work();
else await main();
