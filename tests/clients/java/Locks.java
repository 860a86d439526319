// Takes Redisson's locks, which are Lua scripts and messages, from several processes that are killed at random.
//
// Each worker takes a lock, reads a counter, waits, and writes it increased by one, together with a line of a log:
// two holders at once would write the same number. A script writes only for who holds the lock still, or whose
// fencing token is the greatest, so that a worker that was slower than its lease does no harm; such are counted.
// The lock of a killed holder is over with its lease. Then single promises: waiters are woken by a message, a fair
// lock is had in the order of asking, a lease ends, readers share, a semaphore and a rate limiter hold.
//
//     java Locks PORT DATABASE SEED        (workers are started with one more word)

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RScript;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class Locks {
    static final int JOBS = 1000;
    static final int WORKERS = 3;
    static final int THREADS = 2;
    static final int KILLS = 3;
    static final List<String> KINDS = List.of("watched", "leased", "fair", "fenced");
    /** Without a sign of its holder, a lock is over after so long. */
    static final long LEASE_MS = 2000;
    static final long LIMIT_MS = 120_000;
    /** Sections whose holder was slower than its lease. */
    static final int LATE_MAX = JOBS / 50;

    /** Writes the next number of a kind, if the lock (a hash of its holders) is still held. */
    static final String WRITE_HELD = "if redis.call('hexists', KEYS[3], ARGV[2]) == 0 then return 0 end "
            + "redis.call('set', KEYS[1], ARGV[1]) redis.call('rpush', KEYS[2], ARGV[1]) return 1";
    /** Likewise, if no greater token has written. */
    static final String WRITE_FENCED = "if tonumber(ARGV[2]) <= tonumber(redis.call('get', KEYS[3]) or '0') then "
            + "return 0 end redis.call('set', KEYS[3], ARGV[2]) "
            + "redis.call('set', KEYS[1], ARGV[1]) redis.call('rpush', KEYS[2], ARGV[1]) return 1";

    static String[] arguments;
    static RedissonClient redisson;

    static RedissonClient connect(boolean works) {
        Config config = new Config();
        config.setThreads(4).setNettyThreads(4).setCodec(StringCodec.INSTANCE);
        if (works) {
            config.setLockWatchdogTimeout(LEASE_MS).setFairLockWaitTimeout(LEASE_MS);
        }
        config.useSingleServer().setAddress("redis://127.0.0.1:" + arguments[0])
                .setDatabase(Integer.parseInt(arguments[1])).setConnectionMinimumIdleSize(4)
                .setConnectionPoolSize(16).setSubscriptionConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }

    static void check(boolean holds, String words) {
        if (!holds) {
            throw new AssertionError(words);
        }
    }

    static void until(BooleanSupplier condition, String words) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LIMIT_MS);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < end, "not within " + LIMIT_MS + " ms: " + words);
            Thread.sleep(5);
        }
    }

    static String counter(String kind) {
        return "counter:" + kind;
    }

    static String log(String kind) {
        return "log:" + kind;
    }

    /** One section under the lock of a kind: whether it counts. */
    static boolean section(String kind, Random chance) throws InterruptedException {
        String name = "lock:" + kind;
        RLock lock = kind.equals("fair") ? redisson.getFairLock(name) : redisson.getLock(name);
        Object proof = redisson.getId() + ":" + Thread.currentThread().getId();
        String script = WRITE_HELD;
        String guard = name;
        if (kind.equals("fenced")) {
            RFencedLock fenced = redisson.getFencedLock(name);
            lock = fenced;
            proof = fenced.lockAndGetToken();
            script = WRITE_FENCED;
            guard = "token";
        } else if (kind.equals("leased")) {
            lock.lock(LEASE_MS, TimeUnit.MILLISECONDS);
        } else {
            lock.lock();
        }
        Object last = redisson.getBucket(counter(kind)).get();
        Thread.sleep(chance.nextInt(3));
        int next = (last == null ? 0 : Integer.parseInt(last.toString())) + 1;
        Long written = redisson.getScript().eval(RScript.Mode.READ_WRITE, script, RScript.ReturnType.INTEGER,
                Arrays.asList(counter(kind), log(kind), guard), next, proof);
        try {
            lock.unlock();
        } catch (IllegalMonitorStateException late) {
            // Its lease was over.
        }
        return written == 1;
    }

    /** A worker: sections of all kinds, until it is killed. */
    static void work(long seed) {
        for (int thread = 0; thread < THREADS; thread++) {
            Random chance = new Random(seed + thread);
            new Thread(() -> {
                try {
                    while (true) {
                        if (!section(KINDS.get(chance.nextInt(KINDS.size())), chance)) {
                            redisson.getAtomicLong("late").incrementAndGet();
                        }
                    }
                } catch (InterruptedException | RuntimeException problem) {
                    problem.printStackTrace();
                    System.exit(1);
                }
            }).start();
        }
        // The end of the program that started it ends it, too.
        try {
            while (System.in.read() >= 0) {
            }
        } catch (IOException closed) {
            // As at its end.
        }
        Runtime.getRuntime().halt(1);
    }

    static Process start(long seed) throws IOException {
        List<String> words = new ArrayList<>(List.of("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
                System.getProperty("java.class.path"), "Locks"));
        words.addAll(List.of(arguments).subList(0, 2));
        words.addAll(List.of(Long.toString(seed), "work"));
        return new ProcessBuilder(words).redirectOutput(ProcessBuilder.Redirect.INHERIT)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    static void kill(Process worker) throws InterruptedException {
        check(worker.isAlive(), "a worker had ended");
        worker.destroyForcibly();
        worker.waitFor();
    }

    static int done() {
        return KINDS.stream().mapToInt(kind -> redisson.getList(log(kind)).size()).sum();
    }

    /** A thousand sections while workers are killed. */
    static String contention(long seed) throws IOException, InterruptedException {
        Random chance = new Random(seed);
        List<Process> workers = new ArrayList<>();
        try {
            for (int n = 0; n < WORKERS; n++) {
                workers.add(start(chance.nextLong()));
            }
            int[] moments = chance.ints(KILLS, JOBS / 10, JOBS * 8 / 10).sorted().toArray();
            for (int moment : moments) {
                until(() -> done() >= moment, moment + " sections");
                kill(workers.remove(chance.nextInt(WORKERS)));
                workers.add(start(chance.nextLong()));
            }
            until(() -> done() >= JOBS, JOBS + " sections");
        } finally {
            for (Process worker : workers) {
                kill(worker);
            }
        }
        for (String kind : KINDS) {
            List<Object> written = redisson.<Object>getList(log(kind)).readAll();
            List<String> wanted = IntStream.rangeClosed(1, written.size()).mapToObj(Integer::toString).toList();
            check(written.equals(wanted), "two holders of " + kind + " at once: " + written);
        }
        long late = redisson.getAtomicLong("late").get();
        check(late <= LATE_MAX, late + " holders were slower than their lease");
        return done() + " sections, " + late + " too late, " + KILLS + " kills";
    }

    /** A waiter is woken when the lock is given back, not when it would have ended. */
    static void wakeUp() throws InterruptedException {
        RLock lock = redisson.getLock("wake");
        lock.lock(10, TimeUnit.MINUTES);
        CountDownLatch had = new CountDownLatch(1);
        Thread waiter = new Thread(() -> {
            lock.lock(10, TimeUnit.MINUTES);
            had.countDown();
            lock.unlock();
        });
        waiter.start();
        Thread.sleep(200);
        check(had.getCount() == 1, "a lock has two holders");
        lock.unlock();
        check(had.await(LIMIT_MS, TimeUnit.MILLISECONDS), "a waiter was not woken");
        waiter.join();
    }

    /** A lease ends by itself, and its holder cannot give back what another has. */
    static void lease() throws InterruptedException {
        RLock lock = redisson.getLock("lease");
        lock.lock(300, TimeUnit.MILLISECONDS);
        AtomicInteger had = new AtomicInteger();
        Thread other = new Thread(() -> {
            lock.lock(10, TimeUnit.MINUTES);
            had.incrementAndGet();
        });
        other.start();
        other.join(LIMIT_MS);
        check(had.get() == 1, "a lease did not end");
        try {
            lock.unlock();
        } catch (IllegalMonitorStateException refused) {
            lock.forceUnlock();
            return;
        }
        throw new AssertionError("who does not hold a lock unlocked it");
    }

    /** A fair lock is had in the order in which it was asked for. */
    static void fairness() throws InterruptedException {
        RLock lock = redisson.getFairLock("order");
        lock.lock(10, TimeUnit.MINUTES);
        List<Integer> order = java.util.Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            int number = n;
            Thread thread = new Thread(() -> {
                lock.lock(10, TimeUnit.MINUTES);
                order.add(number);
                lock.unlock();
            });
            thread.start();
            threads.add(thread);
            until(() -> redisson.getList("redisson_lock_queue:{order}").size() > number, "a waiter in the queue");
        }
        lock.unlock();
        for (Thread thread : threads) {
            thread.join();
        }
        check(order.equals(List.of(0, 1, 2, 3, 4)), "a fair lock was had in the order " + order);
    }

    static void readersAndWriters() throws InterruptedException {
        RReadWriteLock lock = redisson.getReadWriteLock("readers");
        lock.readLock().lock();
        lock.readLock().lock();
        AtomicInteger read = new AtomicInteger();
        Thread other = new Thread(() -> {
            check(lock.readLock().tryLock(), "readers do not share");
            check(!lock.writeLock().tryLock(), "a writer beside a reader");
            lock.readLock().unlock();
            read.incrementAndGet();
        });
        other.start();
        other.join();
        check(read.get() == 1, "no second reader");
        lock.readLock().unlock();
        lock.readLock().unlock();
        check(lock.writeLock().tryLock(), "no writer after the readers");
        lock.writeLock().unlock();
    }

    static void semaphore() throws InterruptedException {
        RSemaphore semaphore = redisson.getSemaphore("semaphore");
        semaphore.trySetPermits(3);
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 8; n++) {
            Thread thread = new Thread(() -> {
                try {
                    for (int turn = 0; turn < 10; turn++) {
                        semaphore.acquire();
                        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                        Thread.sleep(1);
                        inside.decrementAndGet();
                        semaphore.release();
                    }
                } catch (InterruptedException problem) {
                    throw new AssertionError(problem);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        check(most.get() <= 3 && semaphore.availablePermits() == 3, most + " held a semaphore of 3");
    }

    static void rateLimiter() {
        RRateLimiter limiter = redisson.getRateLimiter("rate");
        limiter.trySetRate(RateType.OVERALL, 30, java.time.Duration.ofDays(1));
        long passed = IntStream.range(0, 100).filter(n -> limiter.tryAcquire()).count();
        check(passed == 30, passed + " of 30 were let through");
    }

    public static void main(String[] given) throws Exception {
        arguments = given;
        redisson = connect(given.length > 3);
        if (given.length > 3) {
            work(Long.parseLong(given[2]));
            return;
        }
        redisson.getKeys().flushdb();
        String said = contention(Long.parseLong(given[2]));
        wakeUp();
        lease();
        fairness();
        readersAndWriters();
        semaphore();
        rateLimiter();
        redisson.getKeys().flushdb();
        redisson.shutdown(0, 1, TimeUnit.SECONDS);
        System.out.println("Redisson: " + said);
    }
}
