// Jobs in a list, by Lettuce: BLMOVE to a list of the worker's own, LREM when it is done.
//
// Workers and server are killed; see crashes.rs of xtask. A worker that starts, or lost its connection, puts back the
// jobs in the lists of workers that run no more, and in its own: none is lost. Lettuce connects again by itself and
// sends requests that were not answered again, so a job may be done twice.
//
//     java ListCrashes send PORT LEDGER JOBS
//     java ListCrashes work PORT LEDGER

import io.lettuce.core.ClientOptions;
import io.lettuce.core.LMoveArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.Delay;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;

public class ListCrashes {
    static final Duration AGAIN = Duration.ofMillis(20);
    static final String OWN = "held:" + ProcessHandle.current().pid();

    static Path ledger;
    static RedisCommands<String, String> commands;

    /** Puts back the jobs of workers that have ended, and those of this one for which it had no answer. */
    static void putBack() {
        for (String held : commands.keys("held:*")) {
            boolean runs = ProcessHandle.of(Long.parseLong(held.substring("held:".length()))).isPresent();
            if (!runs || held.equals(OWN)) {
                while (commands.lmove(held, "jobs", LMoveArgs.Builder.rightLeft()) != null) {}
            }
        }
    }

    /** Does one job. */
    static void work() throws IOException, InterruptedException {
        String text = commands.blmove("jobs", OWN, LMoveArgs.Builder.rightLeft(), 1);
        if (text == null) {
            putBack();
            return;
        }
        long job = Long.parseLong(text.split(" ")[0]);
        Thread.sleep(job % 5);
        String line = text + " " + System.currentTimeMillis() + "\n";
        // One write: lines of several processes do not mix.
        Files.writeString(ledger, line, StandardOpenOption.APPEND);
        commands.lrem(OWN, 1, text);
    }

    /** Sends each job until the server takes it. */
    static void send(int jobs) throws InterruptedException {
        for (int job = 0; job < jobs; job++) {
            String text = job + " " + System.currentTimeMillis();
            while (true) {
                try {
                    commands.lpush("jobs", text);
                    break;
                } catch (RedisException e) {
                    Thread.sleep(AGAIN.toMillis());
                }
            }
        }
    }

    /** Connects, also to a server that is just starting. */
    static void connect(int port) throws InterruptedException {
        // Otherwise it waits up to half a minute between two tries to connect.
        ClientResources resources = ClientResources.builder().reconnectDelay(Delay.constant(AGAIN)).build();
        RedisURI uri = RedisURI.Builder.redis("127.0.0.1", port).withTimeout(Duration.ofSeconds(30)).build();
        RedisClient client = RedisClient.create(resources, uri);
        client.setOptions(ClientOptions.builder().autoReconnect(true).build());
        while (commands == null) {
            try {
                commands = client.connect().sync();
            } catch (RedisException e) {
                Thread.sleep(AGAIN.toMillis());
            }
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        ledger = Path.of(arguments[2]);
        connect(Integer.parseInt(arguments[1]));
        if (arguments[0].equals("send")) {
            send(Integer.parseInt(arguments[3]));
            System.exit(0);
        }
        boolean isClean = false;
        while (true) {
            try {
                if (!isClean) {
                    putBack();
                }
                isClean = true;
                work();
            } catch (RedisException e) {
                isClean = false;
                Thread.sleep(AGAIN.toMillis());
            }
        }
    }
}
