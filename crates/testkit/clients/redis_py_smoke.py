#!/usr/bin/env python3
"""Drives a server through redis-py, as a user's program would, and checks every reply.

Each check runs on RESP2 and on RESP3. The server's database 9 is emptied before and after each
check; nothing else in it is touched.

    redis_py_smoke.py --port 6379 [--tls CA CERTIFICATE KEY] [--unix PATH] [--password SECRET] [--only NAME]
"""

import argparse
import sys
import threading
import time

import redis

CHECKS = []


def check(function):
    """Registers a check; its name says what must hold."""
    CHECKS.append(function)
    return function


def equal(got, wanted):
    """Fails with both values unless they are equal."""
    if got != wanted:
        raise AssertionError(f"got {got!r}, wanted {wanted!r}")


def raises(kind, words, call, *arguments, **options):
    """Fails unless the call raises `kind` with `words` in its message."""
    try:
        got = call(*arguments, **options)
    except kind as error:
        if words not in str(error):
            raise AssertionError(f"{error!r} does not say {words!r}") from error
        return
    raise AssertionError(f"got {got!r}, wanted an error saying {words!r}")


def pairs(reply):
    """(member, score) pairs: RESP2 makes tuples of them, RESP3 lists."""
    return [(member, float(score)) for member, score in reply]


@check
def connection(r, _):
    equal(r.ping(), True)
    equal(r.echo("hello"), b"hello")
    assert r.dbsize() == 0
    seconds, microseconds = r.time()
    assert abs(seconds - time.time()) < 5 and 0 <= microseconds < 1_000_000


@check
def strings(r, _):
    equal(r.set("a", "1"), True)
    equal(r.get("a"), b"1")
    equal(r.get("none"), None)
    equal(r.set("a", "2", nx=True), None)
    equal(r.set("a", "2", xx=True, get=True), b"1")
    equal(r.getset("a", "3"), b"2")
    equal(r.incr("n"), 1)
    equal(r.incrby("n", 41), 42)
    equal(r.decr("n", 2), 40)
    equal(r.incrbyfloat("f", 2.5), 2.5)
    equal(r.append("s", "Hello"), 5)
    equal(r.append("s", " World"), 11)
    equal(r.strlen("s"), 11)
    equal(r.getrange("s", -5, -1), b"World")
    equal(r.setrange("s", 6, "Redis"), 11)
    equal(r.get("s"), b"Hello Redis")
    equal(r.mset({"k1": "v1", "k2": "v2"}), True)
    equal(r.mget("k1", "none", "k2"), [b"v1", None, b"v2"])
    equal(r.msetnx({"k2": "x", "k3": "x"}), False)
    equal(r.setnx("k3", "v3"), True)
    equal(r.getdel("k3"), b"v3")
    equal(r.exists("k3"), 0)
    equal(r.set("bits", b"\x00\xff\r\n"), True)
    equal(r.get("bits"), b"\x00\xff\r\n")
    raises(redis.ResponseError, "not an integer", r.incr, "s")


@check
def big_values(r, _):
    for length in (0, 1, 44, 45, 16_383, 16_384, 1_000_003):
        value = bytes(i % 251 for i in range(length))
        r.set("big", value)
        equal(r.get("big"), value)


@check
def keys(r, _):
    r.mset({f"key:{i}": i for i in range(10)})
    equal(r.exists("key:1", "key:2", "none"), 2)
    equal(r.type("key:1"), b"string")
    equal(r.type("none"), b"none")
    equal(sorted(r.keys("key:[0-2]")), [b"key:0", b"key:1", b"key:2"])
    assert r.randomkey().startswith(b"key:")
    equal(r.delete("key:0", "none"), 1)
    equal(r.unlink("key:1", "key:2"), 2)
    equal(r.rename("key:3", "moved"), True)
    equal(r.get("moved"), b"3")
    equal(r.renamenx("moved", "key:4"), False)
    equal(r.copy("moved", "twin"), True)
    equal(r.touch("moved", "twin"), 2)
    equal(r.dbsize(), 8)
    raises(redis.ResponseError, "no such key", r.rename, "none", "x")


@check
def expiry(r, _):
    r.set("t", "1", ex=100)
    assert 98 <= r.ttl("t") <= 100
    assert 98_000 <= r.pttl("t") <= 100_000
    equal(r.persist("t"), True)
    equal(r.ttl("t"), -1)
    equal(r.ttl("none"), -2)
    equal(r.expire("t", 50, gt=True), False)
    equal(r.expire("t", 50, nx=True), True)
    equal(r.expire("t", 100, lt=True), False)
    equal(r.expireat("t", int(time.time()) - 1), True)
    equal(r.exists("t"), 0)
    r.set("short", "1", px=20)
    deadline = time.time() + 5
    while r.exists("short") and time.time() < deadline:
        pass
    equal(r.get("short"), None)
    r.set("e", "x", ex=30)
    equal(r.getex("e", persist=True), b"x")
    equal(r.ttl("e"), -1)


@check
def scanning(r, _):
    names = {f"scan:{i}".encode() for i in range(1_000)}
    with r.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.set(name, 1)
        pipe.execute()
    r.lpush("a-list", 1)
    equal(set(r.scan_iter(match="scan:*", count=37)), names)
    equal(set(r.scan_iter(_type="list")), {b"a-list"})


@check
def lists(r, _):
    equal(r.rpush("l", "a", "b", "c"), 3)
    equal(r.lpush("l", "z"), 4)
    equal(r.llen("l"), 4)
    equal(r.lrange("l", 0, -1), [b"z", b"a", b"b", b"c"])
    equal(r.lrange("l", -2, 100), [b"b", b"c"])
    equal(r.lindex("l", 1), b"a")
    equal(r.lindex("l", 9), None)
    equal(r.lpop("l"), b"z")
    equal(r.rpop("l", 2), [b"c", b"b"])
    equal(r.lpop("none"), None)
    equal(r.rpop("l"), b"a")
    equal(r.exists("l"), 0)
    r.rpush("long", *range(2_000))
    equal(r.lrange("long", 0, -1), [b"%d" % i for i in range(2_000)])
    r.set("s", "x")
    raises(redis.ResponseError, "wrong kind of value", r.lpush, "s", "y")


@check
def hashes(r, _):
    equal(r.hset("h", mapping={"name": "Ada", "age": "36"}), 2)
    equal(r.hset("h", "age", "37"), 0)
    equal(r.hget("h", "name"), b"Ada")
    equal(r.hget("h", "none"), None)
    equal(r.hmget("h", "age", "none"), [b"37", None])
    equal(r.hgetall("h"), {b"name": b"Ada", b"age": b"37"})
    equal(r.hgetall("none"), {})
    equal(r.hlen("h"), 2)
    equal(r.hexists("h", "age"), True)
    equal(r.hincrby("h", "age", 5), 42)
    equal(r.hdel("h", "age", "none"), 1)
    many = {f"field{i}": f"value{i}" for i in range(1_000)}
    r.hset("big", mapping=many)
    equal(r.hgetall("big"), {k.encode(): v.encode() for k, v in many.items()})


@check
def sets(r, _):
    equal(r.sadd("s", "a", "b", "a"), 2)
    equal(r.scard("s"), 2)
    equal(bool(r.sismember("s", "a")), True)
    equal(bool(r.sismember("s", "z")), False)
    equal(r.smembers("s"), {b"a", b"b"})
    equal(r.srem("s", "a", "z"), 1)
    equal(r.spop("s"), b"b")
    equal(r.spop("s"), None)
    r.sadd("ints", *range(1_000))
    equal(r.smembers("ints"), {b"%d" % i for i in range(1_000)})
    popped = set(r.spop("ints", 400))
    equal(len(popped), 400)
    equal(popped | r.smembers("ints"), {b"%d" % i for i in range(1_000)})


@check
def sorted_sets(r, _):
    equal(r.zadd("z", {"a": 1, "b": 2, "c": 3}), 3)
    equal(r.zadd("z", {"a": 0}, gt=True), 0)
    equal(r.zscore("z", "a"), 1.0)
    equal(r.zscore("z", "none"), None)
    equal(r.zrange("z", 0, -1), [b"a", b"b", b"c"])
    equal(pairs(r.zrange("z", 0, 1, withscores=True)), [(b"a", 1.0), (b"b", 2.0)])
    equal(r.zrank("z", "c"), 2)
    equal(r.zrank("z", "none"), None)
    equal(r.zcard("z"), 3)
    equal(r.zincrby("z", 10.5, "a"), 11.5)
    equal(pairs(r.zpopmin("z", 1)), [(b"b", 2.0)])
    equal(pairs(r.zpopmax("z", 1)), [(b"a", 11.5)])
    equal(r.zrem("z", "c", "none"), 1)
    equal(r.exists("z"), 0)
    r.zadd("big", {f"m{i:04}": i for i in range(1_000)})
    equal(r.zrange("big", 500, 502), [b"m0500", b"m0501", b"m0502"])
    equal(r.zrank("big", "m0777"), 777)


@check
def streams(r, _):
    first = r.xadd("x", {"temperature": "21"})
    second = r.xadd("x", {"temperature": "22", "room": "attic"})
    assert first < second
    equal(r.xlen("x"), 2)
    entries = r.xrange("x")
    equal([entry for entry, _ in entries], [first, second])
    equal(dict(entries[1][1]), {b"temperature": b"22", b"room": b"attic"})
    equal(r.xadd("fixed", {"a": "1"}, id="5-1"), b"5-1")
    raises(redis.ResponseError, "equal or smaller", r.xadd, "fixed", {"a": "2"}, id="5-1")


@check
def stream_groups(r, _):
    ids = [r.xadd("x", {"n": str(n)}) for n in range(3)]
    equal(r.xgroup_create("x", "g", id="0"), True)
    raises(redis.ResponseError, "BUSYGROUP", r.xgroup_create, "x", "g")
    r.xreadgroup("g", "alice", {"x": ">"}, count=2)
    r.xreadgroup("g", "bob", {"x": ">"})
    equal(r.xpending("x", "g")["pending"], 3)
    equal(r.xack("x", "g", ids[0]), 1)
    equal([entry for entry, _ in r.xclaim("x", "g", "bob", 0, [ids[1]])], [ids[1]])
    equal(len(r.xpending_range("x", "g", "-", "+", 10, "bob")), 2)
    equal(len(r.xinfo_consumers("x", "g")), 2)
    equal(r.xgroup_delconsumer("x", "g", "bob"), 2)
    equal(r.xgroup_destroy("x", "g"), 1)


@check
def bitmaps(r, _):
    equal(r.setbit("b", 7, 1), 0)
    equal(r.getbit("b", 7), 1)
    equal(r.bitcount("b"), 1)
    equal(r.bitpos("b", 1), 7)
    r.set("c", b"\x81")
    equal(r.bitop("AND", "d", "b", "c"), 1)
    equal(r.get("d"), b"\x01")
    equal(r.bitfield("b").set("u8", 8, 255).incrby("u8", 8, 10).execute(), [0, 9])


@check
def hyperloglogs(r, _):
    equal(r.pfadd("p", "a", "b", "c"), 1)
    equal(r.pfadd("p", "a"), 0)
    r.pfadd("q", "c", "d")
    equal(r.pfcount("p", "q"), 4)
    equal(r.pfmerge("all", "p", "q"), True)
    equal(r.pfcount("all"), 4)


@check
def geo(r, _):
    equal(r.geoadd("g", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")), 2)
    assert abs(r.geodist("g", "Palermo", "Catania", unit="km") - 166.2742) < 0.001
    (place,) = r.geohash("g", "Palermo")
    # Text from redis-py 8 on.
    equal(place.encode() if isinstance(place, str) else place, b"sqc8b49rny0")
    near = r.geosearch("g", longitude=15, latitude=37, radius=100, unit="km", withdist=True)
    equal([name for name, _ in near], [b"Catania"])
    equal(r.geosearchstore("h", "g", member="Palermo", width=400, height=400, unit="km"), 2)


@check
def sorting(r, _):
    r.rpush("l", 3, 1, 2)
    equal(r.sort("l", desc=True), [b"3", b"2", b"1"])
    r.mset({"weight:1": 9, "weight:2": 5, "weight:3": 7, "name:1": "one", "name:2": "two", "name:3": "three"})
    equal(r.sort("l", by="weight:*", get=["#", "name:*"], start=0, num=2), [b"2", b"two", b"3", b"three"])
    equal(r.sort("l", store="sorted"), 3)
    equal(r.lrange("sorted", 0, -1), [b"1", b"2", b"3"])


@check
def hash_field_expiry(r, _):
    r.hset("h", mapping={"f": 1, "g": 2})
    equal(r.hexpire("h", 100, "f", "none"), [1, -2])
    assert 98 <= r.httl("h", "f")[0] <= 100
    equal(r.httl("h", "g"), [-1])
    equal(r.hpersist("h", "f"), [1])
    equal(r.hpexpire("h", 1, "g"), [1])
    deadline = time.time() + 5
    while r.hexists("h", "g") and time.time() < deadline:
        pass
    equal(r.hgetall("h"), {b"f": b"1"})


@check
def pipelines(r, _):
    with r.pipeline(transaction=False) as pipe:
        for i in range(5_000):
            pipe.set(f"p{i}", i)
            pipe.get(f"p{i}")
        replies = pipe.execute()
    equal(replies, [reply for i in range(5_000) for reply in (True, b"%d" % i)])
    with r.pipeline(transaction=False) as pipe:
        pipe.set("s", "x").lpush("s", "y").get("s")
        replies = pipe.execute(raise_on_error=False)
    equal([replies[0], replies[2]], [True, b"x"])
    assert isinstance(replies[1], redis.ResponseError), replies


@check
def transactions(r, connect):
    with r.pipeline(transaction=True) as pipe:
        pipe.set("n", 1).incr("n").lpush("n", "x").get("n")
        replies = pipe.execute(raise_on_error=False)
    equal([replies[0], replies[1], replies[3]], [True, 2, b"2"])
    assert isinstance(replies[2], redis.ResponseError), replies
    with r.pipeline(transaction=True) as pipe:
        pipe.set("unseen", 1).execute_command("NOSUCHCOMMAND")
        raises(redis.ResponseError, "unknown command", pipe.execute)
    equal(r.exists("unseen"), 0)
    with connect() as other, r.pipeline() as pipe:
        pipe.watch("n")
        seen = int(pipe.get("n"))
        other.set("n", 100)
        pipe.multi()
        pipe.set("n", seen + 1)
        raises(redis.WatchError, "", pipe.execute)
    equal(r.get("n"), b"100")


@check
def optimistic_counters_lose_nothing(r, connect):
    def count():
        with connect() as own:
            for _ in range(50):
                own.transaction(lambda pipe: increment(pipe), "counter")

    def increment(pipe):
        value = int(pipe.get("counter") or 0)
        pipe.multi()
        pipe.set("counter", value + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(r.get("counter"), b"200")


@check
def waiting(r, connect):
    got = []

    def wait(call):
        with connect() as own:
            got.append(call(own))

    def served(call, push):
        thread = threading.Thread(target=wait, args=[call])
        thread.start()
        while r.info("clients")["blocked_clients"] == 0:
            pass
        push()
        thread.join()
        return got.pop()

    equal(list(served(lambda own: own.blpop(["a", "b"], 20), lambda: r.rpush("b", "x", "y"))), [b"b", b"x"])
    equal(served(lambda own: own.blmove("l", "m", 20), lambda: r.rpush("l", "z")), b"z")
    equal(r.lrange("m", 0, -1), [b"z"])
    popped = served(lambda own: own.bzpopmin("z", 20), lambda: r.zadd("z", {"low": 1, "high": 2}))
    equal([popped[0], popped[1], float(popped[2])], [b"z", b"low", 1.0])
    read = served(lambda own: own.xread({"x": "$"}, block=20_000), lambda: r.xadd("x", {"f": "v"}, id="1-1"))
    equal(b"1-1" in str(read).encode(), True)
    r.xgroup_create("x", "g", id="$")
    read = served(
        lambda own: own.xreadgroup("g", "me", {"x": ">"}, block=20_000), lambda: r.xadd("x", {"f": "w"}, id="2-1")
    )
    equal(b"2-1" in str(read).encode(), True)
    equal(r.xack("x", "g", "2-1"), 1)
    equal(r.blpop("none", 0.01), None)


@check
def messages_come_once_and_in_order(r, connect):
    def heard(listener, count):
        got = []
        deadline = time.time() + 20
        while len(got) < count and time.time() < deadline:
            message = listener.get_message(ignore_subscribe_messages=True, timeout=1)
            if message is not None:
                got.append((message["type"], message["channel"], message["data"]))
        return got

    with connect() as other, other.pubsub() as listener, other.pubsub() as shard:
        listener.subscribe("news")
        listener.psubscribe("n*")
        shard.ssubscribe("part")
        for subscribed, count in ((listener, 2), (shard, 1)):
            for _ in range(count):
                assert subscribed.get_message(timeout=20)["type"].endswith("subscribe")
        equal(r.pubsub_numsub("news", "none"), [(b"news", 1), (b"none", 0)])
        equal((r.pubsub_channels("n*"), r.pubsub_numpat(), r.pubsub_shardchannels()), ([b"news"], 1, [b"part"]))
        for n in range(100):
            equal((r.publish("news", n), r.spublish("part", n)), (2, 1))
        wanted = [(kind, b"news", b"%d" % n) for n in range(100) for kind in ("message", "pmessage")]
        equal(heard(listener, 200), wanted)
        equal(heard(shard, 100), [("smessage", b"part", b"%d" % n) for n in range(100)])
        listener.unsubscribe("news")
        listener.ping()
        assert listener.get_message(timeout=20)["type"] == "unsubscribe"
        equal(listener.get_message(timeout=20)["type"], "pong")
        equal(r.publish("news", "x"), 1)


@check
def cached_reads_follow_changes(r, connect):
    options = r.connection_pool.connection_kwargs
    # redis-py caches on RESP3, and over TCP only.
    if options["protocol"] != 3 or "path" in options:
        return
    from redis.cache import CacheConfig

    with connect(cache_config=CacheConfig()) as cached:
        equal(cached.get("k"), None)
        for value in (b"1", b"2"):
            r.set("k", value)
            # The push that drops the cached reply is on its way by another connection.
            deadline = time.time() + 5
            while cached.get("k") != value and time.time() < deadline:
                pass
            equal(cached.get("k"), value)
            assert cached.get_cache().size >= 1
        reads = r.info("commandstats")["cmdstat_get"]["calls"]
        for _ in range(100):
            equal(cached.get("k"), b"2")
        assert r.info("commandstats")["cmdstat_get"]["calls"] - reads <= 2, "the cache is not used"


@check
def databases(r, connect):
    r.set("here", "9")
    other = connect(db=10)
    other.flushdb()
    equal(other.get("here"), None)
    equal(r.move("here", 10), True)
    equal(other.get("here"), b"9")
    equal(r.exists("here"), 0)
    other.flushdb()
    other.close()


@check
def client_commands(r, connect):
    own = connect(single_connection_client=True)
    equal(own.client_setname("smoke"), True)
    assert own.client_getname() in ("smoke", b"smoke")
    identity = own.client_id()
    listed = [client for client in r.client_list() if int(client["id"]) == identity]
    equal([client["name"] for client in listed], ["smoke"])
    equal(int(own.client_info()["id"]), identity)
    equal(r.client_kill_filter(_id=identity), 1)
    own.close()


@check
def server_commands(r, _):
    info = r.info()
    assert info["redis_version"] and info["connected_clients"] >= 1
    equal(r.config_get("maxmemory-policy"), {"maxmemory-policy": "noeviction"})
    assert r.command_count() > 50
    r.set("one", "1")
    assert r.memory_usage("one") > 0
    equal(r.object("encoding", "one"), b"int")
    raises(redis.ResponseError, "unknown command", r.execute_command, "NOSUCHCOMMAND")
    raises(redis.ResponseError, "wrong number of arguments", r.execute_command, "GET")


@check
def many_threads_count_right(r, connect):
    def count():
        own = connect()
        for _ in range(200):
            own.incr("counter")
        own.close()

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(r.get("counter"), b"1600")


def password_is_asked_for(where, protocol):
    """A client without the password, or with a wrong one, gets nowhere."""
    # On RESP3 the first command is HELLO, whose refusal has words of its own.
    words = "Authentication required" if protocol == 2 else "HELLO must be called"
    with redis.Redis(**where, protocol=protocol) as r:
        raises(redis.AuthenticationError, words, r.ping)
    with redis.Redis(**where, protocol=protocol, password="wrong") as r:
        raises(redis.AuthenticationError, "invalid username-password pair", r.ping)


def main():
    """Runs the checks; the exit status is 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--tls", nargs=3, help="the port is one for TLS: files of authority, certificate, key")
    parser.add_argument("--unix", help="path of a Unix socket, instead of host and port")
    parser.add_argument("--password")
    parser.add_argument("--only", help="run the check of this name")
    options = parser.parse_args()
    where = {"unix_socket_path": options.unix} if options.unix else {"host": options.host, "port": options.port}
    where["socket_timeout"] = 20
    passed, failed = 0, []
    if options.tls:
        authority, certificate, key = options.tls
        where |= {"ssl": True, "ssl_ca_certs": authority, "ssl_certfile": certificate, "ssl_keyfile": key}
    if options.password:
        password_is_asked_for(where, 2)
        password_is_asked_for(where, 3)
        where["password"] = options.password
    for protocol in (2, 3):
        def connect(**more):
            return redis.Redis(**{"db": 9, **where, "protocol": protocol, **more})

        for function in CHECKS:
            if options.only and function.__name__ != options.only:
                continue
            with connect() as r:
                try:
                    r.flushdb()
                    function(r, connect)
                    r.flushdb()
                    passed += 1
                except (AssertionError, redis.RedisError) as error:
                    failed.append(f"{function.__name__} on RESP{protocol}: {type(error).__name__}: {error}")
    for failure in failed:
        print(failure)
    print(f"redis-py {redis.__version__}: {passed} checks passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
