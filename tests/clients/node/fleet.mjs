// What the programs of this folder share: worker processes that are killed at random, and chances from a seed.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

const SECONDS_MAX = 120;

/** Numbers below 1, drawn from `seed` (mulberry32). */
export function chances(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Waits for a condition; `what` says what is there instead. */
export async function until(condition, what) {
  const deadline = Date.now() + SECONDS_MAX * 1000;
  while (!(await condition())) {
    assert(Date.now() < deadline, `not within ${SECONDS_MAX} seconds: ${await what()}`);
    await sleep(20);
  }
}

/** Workers: this program with one more word, as processes of their own. */
export class Fleet {
  constructor(count, chance) {
    this.chance = chance;
    this.workers = Array.from({ length: count }, () => this.start());
  }

  start() {
    const worker = fork(process.argv[1], [...process.argv.slice(2, 5), "work"]);
    worker.once("exit", (code, signal) => {
      if (signal !== "SIGKILL") throw new Error(`a worker ended with ${code ?? signal}`);
    });
    return worker;
  }

  /** Kills a worker in the middle of its work, and starts another. */
  async replaceAny() {
    const at = Math.floor(this.chance() * this.workers.length);
    const victim = this.workers[at];
    victim.kill("SIGKILL");
    await once(victim, "exit");
    this.workers[at] = this.start();
  }

  /** Replaces any worker `kills` times, at moments drawn by chance while `done` grows to `jobs`. */
  async killSome(done, jobs, kills) {
    const moments = Array.from({ length: kills }, () => jobs * (0.1 + 0.7 * this.chance())).sort((a, b) => a - b);
    for (const moment of moments) {
      await until(async () => (await done()) >= moment, async () => `${await done()} of ${jobs}`);
      await this.replaceAny();
    }
  }

  /** Kills all of them. */
  end() {
    for (const worker of this.workers) worker.kill("SIGKILL");
  }
}

/** A worker ends when the program that started it does. */
export function endWithParent() {
  process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
}
