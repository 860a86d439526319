// Drives a server through ioredis, as a user's program would, over every data type, and checks each reply.
// Database 9 is emptied before and after each check; nothing else is touched.
//
//     node round.mjs PORT [CA CERTIFICATE KEY]     (the files: over TLS)

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";

const equal = assert.deepEqual;

const checks = {
  async strings(r) {
    equal(await r.set("a", "1"), "OK");
    equal(await r.get("a"), "1");
    equal(await r.get("none"), null);
    equal(await r.set("a", "2", "NX"), null);
    equal(await r.set("a", "2", "EX", 100, "GET"), "1");
    assert((await r.ttl("a")) > 90);
    equal(await r.incrby("n", 41), 41);
    equal(await r.incrbyfloat("f", 2.5), "2.5");
    equal(await r.append("s", "Hello"), 5);
    equal(await r.setrange("s", 5, " World"), 11);
    equal(await r.getrange("s", -5, -1), "World");
    equal(await r.mset({ k1: "v1", k2: "v2" }), "OK");
    equal(await r.mget("k1", "none", "k2"), ["v1", null, "v2"]);
    equal(await r.getdel("k1"), "v1");
    const bytes = Buffer.from([0, 255, 13, 10]);
    await r.set("bytes", bytes);
    equal(await r.getBuffer("bytes"), bytes);
    await assert.rejects(r.incr("s"), /not an integer/);
  },

  async keys(r) {
    await r.mset({ x: 1, y: 2 });
    equal(await r.exists("x", "y", "none"), 2);
    equal(await r.type("x"), "string");
    equal(await r.rename("x", "z"), "OK");
    equal(await r.expire("z", 100), 1);
    equal(await r.persist("z"), 1);
    equal(await r.copy("z", "twin"), 1);
    equal(await r.del("z", "twin"), 2);
    equal(await r.unlink("y"), 1);
    equal(await r.dbsize(), 0);
    await r.set("short", "1", "PX", 1);
    while (await r.exists("short"));
  },

  async scanning(r) {
    const pipeline = r.pipeline();
    for (let i = 0; i < 500; i++) pipeline.set(`scan:${i}`, i);
    for (const [error] of await pipeline.exec()) assert.equal(error, null);
    const seen = new Set();
    for await (const keys of r.scanStream({ match: "scan:*", count: 37 })) keys.forEach((key) => seen.add(key));
    equal(seen.size, 500);
  },

  async lists(r) {
    equal(await r.rpush("l", "a", "b", "c"), 3);
    equal(await r.lpush("l", "z"), 4);
    equal(await r.lrange("l", 0, -1), ["z", "a", "b", "c"]);
    equal(await r.linsert("l", "BEFORE", "b", "ab"), 5);
    equal(await r.lpos("l", "b"), 3);
    equal(await r.lset("l", 0, "y"), "OK");
    equal(await r.lrem("l", 0, "ab"), 1);
    equal(await r.lmove("l", "m", "LEFT", "RIGHT"), "y");
    equal(await r.lpop("l", 2), ["a", "b"]);
    equal(await r.rpop("l"), "c");
    equal(await r.llen("l"), 0);
    equal(await r.ltrim("m", 1, 0), "OK");
    await r.set("s", "x");
    await assert.rejects(r.lpush("s", "x"), /WRONGTYPE/);
  },

  async hashes(r) {
    equal(await r.hset("h", { f: "1", g: "2" }), 2);
    equal(await r.hgetall("h"), { f: "1", g: "2" });
    equal(await r.hmget("h", "f", "none"), ["1", null]);
    equal(await r.hincrby("h", "f", 4), 5);
    equal(await r.hdel("h", "g"), 1);
    equal(await r.hexists("h", "f"), 1);
    equal(await r.hrandfield("h"), "f");
    const [cursor, fields] = await r.hscan("h", 0);
    equal([cursor, fields], ["0", ["f", "5"]]);
  },

  async sets(r) {
    equal(await r.sadd("a", "1", "2", "3"), 3);
    equal(await r.sadd("b", "2", "3", "x"), 3);
    equal((await r.sinter("a", "b")).sort(), ["2", "3"]);
    equal((await r.sunion("a", "b")).sort(), ["1", "2", "3", "x"]);
    equal(await r.sdiff("a", "b"), ["1"]);
    equal(await r.sintercard(2, "a", "b"), 2);
    equal(await r.smismember("a", "1", "9"), [1, 0]);
    equal(await r.smove("a", "b", "1"), 1);
    equal((await r.spop("b", 10)).length, 4);
  },

  async sortedSets(r) {
    equal(await r.zadd("z", 1, "a", 2.5, "b", "+inf", "c"), 3);
    equal(await r.zrange("z", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5", "c", "inf"]);
    equal(await r.zrangebyscore("z", "(1", 3), ["b"]);
    equal(await r.zrank("z", "b"), 1);
    equal(await r.zincrby("z", 2, "a"), "3");
    equal(await r.zscore("z", "none"), null);
    equal(await r.zadd("y", 10, "a"), 1);
    equal(await r.zunionstore("u", 2, "z", "y", "WEIGHTS", 1, 2), 3);
    equal(await r.zscore("u", "a"), "23");
    equal(await r.zpopmax("z"), ["c", "inf"]);
    equal(await r.zremrangebyrank("z", 0, -1), 2);
  },

  async streams(r) {
    equal(await r.xadd("s", "1-1", "f", "v"), "1-1");
    equal(await r.xadd("s", "1-2", "f", "w"), "1-2");
    equal(await r.xlen("s"), 2);
    equal(await r.xrange("s", "-", "+"), [["1-1", ["f", "v"]], ["1-2", ["f", "w"]]]);
    equal(await r.xread("STREAMS", "s", "1-1"), [["s", [["1-2", ["f", "w"]]]]]);
    equal(await r.xdel("s", "1-1"), 1);
    equal(await r.xtrim("s", "MAXLEN", 0), 1);
  },

  async transactions(r) {
    const replies = await r.multi().set("a", "1").incr("a").lpush("a", "x").get("a").exec();
    equal(replies.map(([error]) => error?.message?.split(" ")[0] ?? null), [null, null, "WRONGTYPE", null]);
    equal(replies[3][1], "2");
    const other = r.duplicate();
    await r.watch("a");
    await other.set("a", "other");
    equal(await r.multi().set("a", "mine").exec(), null);
    equal(await r.get("a"), "other");
    other.disconnect();
  },

  async waiting(r) {
    const other = r.duplicate();
    const popped = other.blpop("l", "m", 20);
    await r.rpush("m", "x");
    equal(await popped, ["m", "x"]);
    const read = other.xread("BLOCK", 20_000, "STREAMS", "s", "0");
    await r.xadd("s", "1-1", "f", "v");
    equal(await read, [["s", [["1-1", ["f", "v"]]]]]);
    equal(await other.bzpopmin("none", 0.01), null);
    other.disconnect();
  },

  async streamGroups(r) {
    for (const id of ["1-1", "1-2"]) equal(await r.xadd("s", id, "f", id), id);
    equal(await r.xgroup("CREATE", "s", "g", "0"), "OK");
    await assert.rejects(r.xgroup("CREATE", "s", "g", "0"), /BUSYGROUP/);
    const [[, entries]] = await r.xreadgroup("GROUP", "g", "alice", "STREAMS", "s", ">");
    equal(entries, [["1-1", ["f", "1-1"]], ["1-2", ["f", "1-2"]]]);
    equal(await r.xack("s", "g", "1-1"), 1);
    equal(await r.xclaim("s", "g", "bob", 0, "1-2"), [["1-2", ["f", "1-2"]]]);
    equal(await r.xpending("s", "g"), [1, "1-2", "1-2", [["bob", "1"]]]);
    equal(await r.xgroup("DELCONSUMER", "s", "g", "bob"), 1);
    equal(await r.xgroup("DESTROY", "s", "g"), 1);
  },

  async bitmaps(r) {
    equal(await r.setbit("b", 7, 1), 0);
    equal(await r.getbit("b", 7), 1);
    equal(await r.bitcount("b"), 1);
    equal(await r.bitpos("b", 1), 7);
    await r.set("c", Buffer.from([0x81]));
    equal(await r.bitop("AND", "d", "b", "c"), 1);
    equal(await r.getBuffer("d"), Buffer.from([1]));
    equal(await r.bitfield("b", "SET", "u8", 8, 255, "INCRBY", "u8", 8, 10), [0, 9]);
  },

  async hyperLogLogs(r) {
    equal(await r.pfadd("p", "a", "b", "c"), 1);
    equal(await r.pfadd("q", "c", "d"), 1);
    equal(await r.pfcount("p", "q"), 4);
    equal(await r.pfmerge("all", "p", "q"), "OK");
    equal(await r.pfcount("all"), 4);
  },

  async geo(r) {
    equal(await r.geoadd("g", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"), 2);
    equal(await r.geodist("g", "Palermo", "Catania", "km"), "166.2742");
    equal(await r.geohash("g", "Palermo"), ["sqc8b49rny0"]);
    equal(await r.geosearch("g", "FROMLONLAT", 15, 37, "BYRADIUS", 100, "km"), ["Catania"]);
    equal(await r.geosearchstore("h", "g", "FROMMEMBER", "Palermo", "BYBOX", 400, 400, "km"), 2);
  },

  async sorting(r) {
    equal(await r.rpush("l", 3, 1, 2), 3);
    equal(await r.sort("l", "DESC"), ["3", "2", "1"]);
    await r.mset({ w1: 9, w2: 5, w3: 7, n2: "two", n3: "three" });
    equal(await r.sort("l", "BY", "w*", "LIMIT", 0, 2, "GET", "#", "GET", "n*"), ["2", "two", "3", "three"]);
    equal(await r.sort("l", "STORE", "sorted"), 3);
  },

  async hashFieldExpiry(r) {
    await r.hset("h", { f: "1", g: "2" });
    equal(await r.call("HEXPIRE", "h", 100, "FIELDS", 2, "f", "none"), [1, -2]);
    equal(await r.call("HTTL", "h", "FIELDS", 2, "f", "g"), [100, -1]);
    equal(await r.call("HPERSIST", "h", "FIELDS", 1, "f"), [1]);
    equal(await r.call("HPEXPIRE", "h", 1, "FIELDS", 1, "g"), [1]);
    while (await r.hexists("h", "g"));
    equal(await r.hgetall("h"), { f: "1" });
  },

  async "publish and subscribe"(r) {
    const other = r.duplicate();
    const heard = [];
    let done;
    const all = new Promise((resolve) => (done = resolve));
    const hear = (message) => heard.push(message) === 300 && done();
    other.on("message", (channel, message) => hear(`${channel} ${message}`));
    other.on("pmessage", (pattern, channel, message) => hear(`${pattern} ${channel} ${message}`));
    other.on("smessage", (channel, message) => hear(`shard ${channel} ${message}`));
    equal(await other.subscribe("news"), 1);
    equal(await other.psubscribe("n*"), 2);
    equal(await other.ssubscribe("part"), 1);
    equal(await r.pubsub("NUMSUB", "news", "none"), ["news", 1, "none", 0]);
    for (let n = 0; n < 100; n++) {
      equal(await r.publish("news", n), 2);
      equal(await r.spublish("part", n), 1);
    }
    await all;
    const wanted = Array.from({ length: 100 }, (_, n) => [`news ${n}`, `n* news ${n}`, `shard part ${n}`]);
    equal(heard, wanted.flat());
    equal(await other.unsubscribe("news"), 1);
    equal(await r.publish("news", "x"), 1);
    await assert.rejects(other.get("a"), /subscriber mode/);
    other.disconnect();
  },

  async pipelines(r) {
    const replies = await r.pipeline().set("a", "1").incr("a").lpush("a", "x").get("a").exec();
    equal(replies.map(([error]) => error?.message?.split(" ")[0] ?? null), [null, null, "WRONGTYPE", null]);
    equal(replies[3][1], "2");
    const many = await Promise.all(Array.from({ length: 2_000 }, () => r.incr("n")));
    equal(many, Array.from({ length: 2_000 }, (_, at) => at + 1));
  },
};

const [ca, cert, key] = process.argv.slice(3).map((file) => readFileSync(file));
const tls = ca ? { ca, cert, key, servername: "localhost" } : undefined;
const r = new Redis({ host: "127.0.0.1", port: Number(process.argv[2]), db: 9, tls, retryStrategy: () => null });
try {
  for (const [name, check] of Object.entries(checks)) {
    await r.flushdb();
    try {
      await check(r);
    } catch (error) {
      throw new Error(`${name}: ${error.stack}`);
    }
    await r.flushdb();
  }
  console.log(`ioredis: ${Object.keys(checks).length} checks passed`);
} finally {
  r.disconnect();
}
