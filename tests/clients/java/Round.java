// Drives a server through Jedis, as a user's program would, over every data type, and checks each reply.
// Database 9 is emptied before and after each check; nothing else is touched. Runs on RESP2 and on RESP3.
//
//     java -cp 'lib/*' Round.java PORT [CA CERTIFICATE KEY]     (the files: over TLS)

import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.GeoCoordinate;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.BitOP;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.args.ListPosition;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XAddParams;
import redis.clients.jedis.params.SortingParams;
import redis.clients.jedis.params.XClaimParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.params.ZParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.resps.StreamEntry;
import redis.clients.jedis.resps.Tuple;
import redis.clients.jedis.util.KeyValue;

public class Round {
    static final Map<String, Consumer<Jedis>> CHECKS = new LinkedHashMap<>();

    /** Where the server is, and how the running checks talk to it. */
    static HostAndPort address;

    static DefaultJedisClientConfig config;

    static {
        CHECKS.put("strings", Round::strings);
        CHECKS.put("keys", Round::keys);
        CHECKS.put("scanning", Round::scanning);
        CHECKS.put("lists", Round::lists);
        CHECKS.put("hashes", Round::hashes);
        CHECKS.put("sets", Round::sets);
        CHECKS.put("sorted sets", Round::sortedSets);
        CHECKS.put("streams", Round::streams);
        CHECKS.put("stream groups", Round::streamGroups);
        CHECKS.put("bitmaps", Round::bitmaps);
        CHECKS.put("hyperloglogs", Round::hyperLogLogs);
        CHECKS.put("geo", Round::geo);
        CHECKS.put("sorting", Round::sorting);
        CHECKS.put("hash field expiry", Round::hashFieldExpiry);
        CHECKS.put("pipelines", Round::pipelines);
        CHECKS.put("transactions", Round::transactions);
        CHECKS.put("publish and subscribe", Round::publishAndSubscribe);
        CHECKS.put("cached reads", Round::cachedReads);
    }

    /** Fails the running check unless the reply is the wanted one. */
    static void equal(Object got, Object wanted) {
        if (got == null ? wanted != null : !got.equals(wanted)) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    /** Fails the running check unless the call is refused with these words. */
    static void fails(Runnable call, String words) {
        try {
            call.run();
        } catch (JedisDataException error) {
            if (error.getMessage().contains(words)) {
                return;
            }
            throw error;
        }
        throw new AssertionError("no error that says " + words);
    }

    static void strings(Jedis r) {
        equal(r.set("a", "1"), "OK");
        equal(r.get("a"), "1");
        equal(r.get("none"), null);
        equal(r.set("a", "2", SetParams.setParams().nx()), null);
        equal(r.setGet("a", "2", SetParams.setParams().ex(100)), "1");
        equal(r.incrBy("n", 41), 41L);
        equal(r.incrByFloat("f", 2.5), 2.5);
        equal(r.append("s", "Hello"), 5L);
        equal(r.setrange("s", 5, " World"), 11L);
        equal(r.getrange("s", -5, -1), "World");
        equal(r.mset("k1", "v1", "k2", "v2"), "OK");
        equal(r.mget("k1", "none", "k2"), Arrays.asList("v1", null, "v2"));
        equal(r.getDel("k1"), "v1");
        byte[] name = "bytes".getBytes(StandardCharsets.UTF_8);
        byte[] bytes = {0, (byte) 255, 13, 10};
        equal(r.set(name, bytes), "OK");
        equal(Arrays.equals(r.get(name), bytes), true);
        fails(() -> r.incr("s"), "not an integer");
    }

    static void keys(Jedis r) {
        r.mset("x", "1", "y", "2");
        equal(r.exists("x", "y", "none"), 2L);
        equal(r.type("x"), "string");
        equal(r.rename("x", "z"), "OK");
        equal(r.expire("z", 100), 1L);
        equal(r.ttl("z"), 100L);
        equal(r.persist("z"), 1L);
        equal(r.copy("z", "twin", false), true);
        equal(r.del("z", "twin"), 2L);
        equal(r.unlink("y"), 1L);
        equal(r.dbSize(), 0L);
        r.psetex("short", 1, "x");
        while (r.exists("short")) {
            Thread.onSpinWait();
        }
    }

    static void scanning(Jedis r) {
        try (Pipeline pipeline = r.pipelined()) {
            for (int i = 0; i < 500; i++) {
                pipeline.set("scan:" + i, "x");
            }
        }
        Set<String> seen = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = r.scan(cursor, new ScanParams().match("scan:*").count(37));
            seen.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        equal(seen.size(), 500);
    }

    static void lists(Jedis r) {
        equal(r.rpush("l", "a", "b", "c"), 3L);
        equal(r.lpush("l", "z"), 4L);
        equal(r.lrange("l", 0, -1), List.of("z", "a", "b", "c"));
        equal(r.linsert("l", ListPosition.BEFORE, "b", "ab"), 5L);
        equal(r.lpos("l", "b"), 3L);
        equal(r.lset("l", 0, "y"), "OK");
        equal(r.lrem("l", 0, "ab"), 1L);
        equal(r.lmove("l", "m", ListDirection.LEFT, ListDirection.RIGHT), "y");
        equal(r.lpop("l", 2), List.of("a", "b"));
        equal(r.rpop("l"), "c");
        equal(r.lmpop(ListDirection.LEFT, "l", "m").getValue(), List.of("y"));
        r.set("s", "x");
        fails(() -> r.lpush("s", "x"), "WRONGTYPE");
    }

    static void hashes(Jedis r) {
        equal(r.hset("h", Map.of("f", "1", "g", "2")), 2L);
        equal(r.hgetAll("h"), Map.of("f", "1", "g", "2"));
        equal(r.hmget("h", "f", "none"), Arrays.asList("1", null));
        equal(r.hincrBy("h", "f", 4), 5L);
        equal(r.hdel("h", "g"), 1L);
        equal(r.hexists("h", "f"), true);
        equal(r.hrandfieldWithValues("h", 1), List.of(Map.entry("f", "5")));
        equal(r.hscan("h", ScanParams.SCAN_POINTER_START).getResult(), List.of(Map.entry("f", "5")));
    }

    static void sets(Jedis r) {
        equal(r.sadd("a", "1", "2", "3"), 3L);
        equal(r.sadd("b", "2", "3", "x"), 3L);
        equal(new TreeSet<>(r.sinter("a", "b")), new TreeSet<>(Set.of("2", "3")));
        equal(r.sunion("a", "b").size(), 4);
        equal(new HashSet<>(r.sdiff("a", "b")), Set.of("1"));
        equal(r.sintercard("a", "b"), 2L);
        equal(r.smismember("a", "1", "9"), List.of(true, false));
        equal(r.smove("a", "b", "1"), 1L);
        equal(r.spop("b", 10).size(), 4);
    }

    static void sortedSets(Jedis r) {
        equal(r.zadd("z", Map.of("a", 1.0, "b", 2.5, "c", Double.POSITIVE_INFINITY)), 3L);
        List<Tuple> all = List.of(new Tuple("a", 1.0), new Tuple("b", 2.5), new Tuple("c", Double.POSITIVE_INFINITY));
        equal(r.zrangeWithScores("z", 0, -1), all);
        equal(r.zrangeByScore("z", "(1", "3"), List.of("b"));
        equal(r.zrank("z", "b"), 1L);
        equal(r.zincrby("z", 2, "a"), 3.0);
        equal(r.zscore("z", "none"), null);
        equal(r.zadd("y", 10, "a"), 1L);
        equal(r.zunionstore("u", new ZParams().weights(1, 2), "z", "y"), 3L);
        equal(r.zscore("u", "a"), 23.0);
        equal(r.zpopmax("z"), new Tuple("c", Double.POSITIVE_INFINITY));
        equal(r.zremrangeByRank("z", 0, -1), 2L);
    }

    static void streams(Jedis r) {
        StreamEntryID first = new StreamEntryID(1, 1);
        StreamEntryID second = new StreamEntryID(1, 2);
        equal(r.xadd("s", Map.of("f", "v"), XAddParams.xAddParams().id(first)), first);
        equal(r.xadd("s", Map.of("f", "w"), XAddParams.xAddParams().id(second)), second);
        equal(r.xlen("s"), 2L);
        List<StreamEntry> entries = r.xrange("s", "-", "+");
        equal(entries.size(), 2);
        equal(entries.get(0).getID(), first);
        equal(entries.get(0).getFields(), Map.of("f", "v"));
        List<Map.Entry<String, List<StreamEntry>>> read = r.xread(XReadParams.xReadParams(), Map.of("s", first));
        equal(read.get(0).getKey(), "s");
        equal(read.get(0).getValue().get(0).getID(), second);
        equal(r.xdel("s", first), 1L);
        equal(r.xtrim("s", 0, false), 1L);
    }

    static void streamGroups(Jedis r) {
        StreamEntryID first = new StreamEntryID(1, 1);
        StreamEntryID second = new StreamEntryID(1, 2);
        for (StreamEntryID id : List.of(first, second)) {
            equal(r.xadd("s", Map.of("f", "v"), XAddParams.xAddParams().id(id)), id);
        }
        equal(r.xgroupCreate("s", "g", new StreamEntryID(0, 0), false), "OK");
        fails(() -> r.xgroupCreate("s", "g", new StreamEntryID(0, 0), false), "BUSYGROUP");
        List<Map.Entry<String, List<StreamEntry>>> read = r.xreadGroup("g", "alice",
                XReadGroupParams.xReadGroupParams(), Map.of("s", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
        equal(read.get(0).getValue().size(), 2);
        equal(r.xack("s", "g", first), 1L);
        equal(r.xclaim("s", "g", "bob", 0, XClaimParams.xClaimParams(), second).get(0).getID(), second);
        equal(r.xpending("s", "g").getConsumerMessageCount(), Map.of("bob", 1L));
        equal(r.xgroupDelConsumer("s", "g", "bob"), 1L);
        equal(r.xgroupDestroy("s", "g"), 1L);
    }

    static void bitmaps(Jedis r) {
        equal(r.setbit("b", 7, true), false);
        equal(r.getbit("b", 7), true);
        equal(r.bitcount("b"), 1L);
        equal(r.bitpos("b", true), 7L);
        equal(r.setbit("c", 0, true), false);
        equal(r.bitop(BitOP.OR, "d", "b", "c"), 1L);
        equal(r.bitcount("d"), 2L);
        equal(r.bitfield("b", "SET", "u8", "8", "255", "INCRBY", "u8", "8", "10"), List.of(0L, 9L));
    }

    static void hyperLogLogs(Jedis r) {
        equal(r.pfadd("p", "a", "b", "c"), 1L);
        equal(r.pfadd("q", "c", "d"), 1L);
        equal(r.pfcount("p", "q"), 4L);
        equal(r.pfmerge("all", "p", "q"), "OK");
        equal(r.pfcount("all"), 4L);
    }

    static void geo(Jedis r) {
        equal(r.geoadd("g", 13.361389, 38.115556, "Palermo"), 1L);
        equal(r.geoadd("g", 15.087269, 37.502669, "Catania"), 1L);
        equal(Math.abs(r.geodist("g", "Palermo", "Catania", GeoUnit.KM) - 166.2742) < 0.001, true);
        equal(r.geohash("g", "Palermo"), List.of("sqc8b49rny0"));
        equal(r.geosearch("g", new GeoCoordinate(15, 37), 100, GeoUnit.KM).get(0).getMemberByString(), "Catania");
        equal(r.geosearchStore("h", "g", "Palermo", 400, 400, GeoUnit.KM), 2L);
    }

    static void sorting(Jedis r) {
        equal(r.rpush("l", "3", "1", "2"), 3L);
        equal(r.sort("l", new SortingParams().desc()), List.of("3", "2", "1"));
        r.mset("w1", "9", "w2", "5", "w3", "7", "n2", "two", "n3", "three");
        SortingParams by = new SortingParams().by("w*").limit(0, 2).get("#", "n*");
        equal(r.sort("l", by), List.of("2", "two", "3", "three"));
        equal(r.sort("l", "sorted"), 3L);
    }

    static void hashFieldExpiry(Jedis r) {
        equal(r.hset("h", Map.of("f", "1", "g", "2")), 2L);
        equal(r.hexpire("h", 100, "f", "none"), List.of(1L, -2L));
        equal(r.httl("h", "f", "g"), List.of(100L, -1L));
        equal(r.hpersist("h", "f"), List.of(1L));
        equal(r.hpexpire("h", 1, "g"), List.of(1L));
        while (r.hexists("h", "g")) {
        }
        equal(r.hgetAll("h"), Map.of("f", "1"));
    }

    static void pipelines(Jedis r) {
        try (Pipeline pipeline = r.pipelined()) {
            pipeline.set("a", "1");
            Response<Long> incremented = pipeline.incr("a");
            Response<Long> refused = pipeline.lpush("a", "x");
            Response<String> last = pipeline.get("a");
            pipeline.sync();
            equal(incremented.get(), 2L);
            fails(refused::get, "WRONGTYPE");
            equal(last.get(), "2");
        }
    }

    static void publishAndSubscribe(Jedis r) {
        List<String> heard = java.util.Collections.synchronizedList(new java.util.ArrayList<>());
        java.util.concurrent.CountDownLatch ready = new java.util.concurrent.CountDownLatch(2);
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                ready.countDown();
            }

            @Override
            public void onPSubscribe(String pattern, int count) {
                ready.countDown();
            }

            @Override
            public void onMessage(String channel, String message) {
                heard.add(channel + " " + message);
                if (message.equals("last")) {
                    unsubscribe();
                    punsubscribe();
                }
            }

            @Override
            public void onPMessage(String pattern, String channel, String message) {
                heard.add(pattern + " " + channel + " " + message);
            }
        };
        Thread thread = new Thread(() -> {
            try (Jedis other = new Jedis(address, config)) {
                other.subscribe(listener, "news");
            }
        });
        thread.start();
        try {
            while (!listener.isSubscribed()) {
                Thread.sleep(1);
            }
            listener.psubscribe("n*");
            ready.await();
            List<String> wanted = new java.util.ArrayList<>();
            for (int n = 0; n < 100; n++) {
                equal(r.publish("news", "" + n), 2L);
                wanted.add("news " + n);
                wanted.add("n* news " + n);
            }
            equal(r.publish("news", "last"), 2L);
            wanted.add("news last");
            wanted.add("n* news last");
            thread.join();
            equal(heard, wanted);
            equal(r.publish("news", "x"), 0L);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    /** Reads come from Jedis' own cache until the server says that the key changed. */
    static void cachedReads(Jedis r) {
        if (config.getRedisProtocol() != RedisProtocol.RESP3) {
            return;
        }
        CacheConfig cache = CacheConfig.builder().maxSize(100).build();
        try (JedisPooled cached = new JedisPooled(address, config, cache)) {
            for (String value : List.of("1", "2")) {
                r.set("k", value);
                long end = System.nanoTime() + 20_000_000_000L;
                while (!value.equals(cached.get("k")) && System.nanoTime() < end) {
                    // The message that drops the cached reply comes by another connection.
                    Thread.onSpinWait();
                }
                equal(cached.get("k"), value);
                equal(cached.getCache().getSize(), 1);
            }
        }
    }

    static void transactions(Jedis r) {
        Transaction first = r.multi();
        first.set("a", "1");
        Response<Long> incremented = first.incr("a");
        first.exec();
        equal(incremented.get(), 2L);
        r.watch("a");
        r.set("a", "changed");
        Transaction second = r.multi();
        second.set("a", "mine");
        equal(second.exec(), null);
        equal(r.get("a"), "changed");
        equal(r.blpop(0.01, "none"), null);
    }

    /** A client that waits is served by another that pushes. */
    static void waiting(HostAndPort address, DefaultJedisClientConfig config) throws InterruptedException {
        try (Jedis waits = new Jedis(address, config); Jedis pushes = new Jedis(address, config)) {
            Thread pusher = new Thread(() -> pushes.rpush("m", "x"));
            pusher.start();
            KeyValue<String, String> popped = waits.blpop(20.0, "l", "m");
            equal(popped, new KeyValue<>("m", "x"));
            pusher.join();
        }
    }

    /** One client that several threads use, over a pool of connections. */
    static void manyThreads(HostAndPort address, DefaultJedisClientConfig config) throws InterruptedException {
        try (JedisPooled pooled = new JedisPooled(address, config)) {
            pooled.del("n");
            Runnable work = () -> {
                for (int i = 0; i < 500; i++) {
                    pooled.incr("n");
                }
            };
            Thread[] threads = {new Thread(work), new Thread(work), new Thread(work)};
            for (Thread thread : threads) {
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            equal(pooled.get("n"), "1500");
            pooled.del("n");
        }
    }

    /** What a client with these files encrypts with: authority, certificate, key. */
    static SSLSocketFactory encryption(String authority, String certificate, String key) throws Exception {
        char[] password = "in memory only".toCharArray();
        CertificateFactory certificates = CertificateFactory.getInstance("X.509");
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, password);
        try (InputStream file = Files.newInputStream(Path.of(authority))) {
            trusted.setCertificateEntry("authority", certificates.generateCertificate(file));
        }
        String text = Files.readString(Path.of(key)).replaceAll("-----[A-Z ]+-----|\\s", "");
        PrivateKey own = KeyFactory.getInstance("EC")
            .generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(text)));
        KeyStore shown = KeyStore.getInstance("PKCS12");
        shown.load(null, password);
        try (InputStream file = Files.newInputStream(Path.of(certificate))) {
            Certificate[] chain = {certificates.generateCertificate(file)};
            shown.setKeyEntry("own", own, password, chain);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(shown, password);
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context.getSocketFactory();
    }

    public static void main(String[] arguments) throws Exception {
        address = new HostAndPort("127.0.0.1", Integer.parseInt(arguments[0]));
        for (RedisProtocol protocol : RedisProtocol.values()) {
            DefaultJedisClientConfig.Builder builder =
                DefaultJedisClientConfig.builder().protocol(protocol).database(9);
            if (arguments.length > 1) {
                builder.ssl(true).sslSocketFactory(encryption(arguments[1], arguments[2], arguments[3]));
            }
            config = builder.build();
            try (Jedis r = new Jedis(address, config)) {
                for (Map.Entry<String, Consumer<Jedis>> check : CHECKS.entrySet()) {
                    r.flushDB();
                    try {
                        check.getValue().accept(r);
                    } catch (RuntimeException | AssertionError problem) {
                        throw new AssertionError(check.getKey() + ", " + protocol, problem);
                    }
                    r.flushDB();
                }
            }
            waiting(address, config);
            manyThreads(address, config);
        }
        System.out.println("Jedis: " + (CHECKS.size() + 2) + " checks passed, on RESP2 and RESP3");
    }
}
