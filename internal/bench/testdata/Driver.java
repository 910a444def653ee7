import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex as a contestant of the benchmark. The protocol is in ../load/doc.go. */
public class Driver {
    static final long BOUND_SECONDS = 300;
    static final byte[] DATA = ("{\"host\":\"" + host() + "\",\"pid\":" + ProcessHandle.current().pid() + "}")
        .getBytes(StandardCharsets.UTF_8);
    static final PrintStream OUT =
        new PrintStream(new java.io.BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false);

    static String host() {
        try {
            return java.net.InetAddress.getLocalHost().getHostName();
        } catch (java.net.UnknownHostException e) {
            return "unknown";
        }
    }

    /** A mutex whose znodes have the same data as everybody's. */
    static class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        @Override
        protected byte[] getLockNodeBytes() {
            return DATA;
        }
    }

    /** What a worker did, five numbers a cycle. */
    static class Log {
        long[] numbers = new long[5 * 256];
        int n;

        void add(long... cycle) {
            if (n + 5 > numbers.length) {
                numbers = Arrays.copyOf(numbers, 2 * numbers.length);
            }
            System.arraycopy(cycle, 0, numbers, n, 5);
            n += 5;
        }

        void print() {
            for (int i = 0; i < n; i += 5) {
                OUT.println("op " + numbers[i] + " " + numbers[i + 1] + " " + numbers[i + 2] + " " + numbers[i + 3] + " "
                    + numbers[i + 4]);
            }
        }
    }

    static final AtomicReference<Throwable> failed = new AtomicReference<>();
    static final AtomicInteger cycles = new AtomicInteger();
    static volatile boolean over;
    static CuratorFramework[] clients = {};
    static List<Thread> waiting = new ArrayList<>();
    static Log[] logs = {};
    static Mutex held;
    static Log holders;
    static long before;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            try {
                step(words);
            } catch (Throwable e) {
                say("error " + words[0] + ": " + e.toString().replace('\n', ' '));
            }
        }
        end();
        System.exit(0);
    }

    static void step(String[] w) throws Exception {
        switch (w[0]) {
            case "run":
                run(w, number(w[5]), number(w[6]), number(w[7]), number(w[8]), number(w[9]));
                return;
            case "park":
                park(w, number(w[5]), number(w[6]));
                return;
            case "hold":
                park(w, 1, 1);
                return;
            case "measure":
                say("memory " + (memory() - before));
                return;
            case "drain":
                drain();
                return;
            default:
                throw new IllegalArgumentException("unknown command " + w[0]);
        }
    }

    static int number(String s) {
        return Integer.parseInt(s);
    }

    static void say(String line) {
        OUT.println(line);
        OUT.flush();
    }

    static Mutex[] open(String[] w, int count, int workers, int locks) throws Exception {
        end();
        String[] servers = w[1].split(",");
        clients = new CuratorFramework[count];
        for (int i = 0; i < count; i++) {
            String server = servers[(i + number(w[2])) % servers.length];
            clients[i] = CuratorFrameworkFactory.newClient(server, number(w[3]), 15000, new ExponentialBackoffRetry(100, 3));
            clients[i].start();
        }
        Mutex[] all = new Mutex[count * workers];
        for (int i = 0; i < count; i++) {
            if (!clients[i].blockUntilConnected(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("client " + i + " is not connected");
            }
            for (int k = i * workers; k < (i + 1) * workers; k++) {
                all[k] = new Mutex(clients[i], w[4] + "/" + k % locks);
            }
        }
        return all;
    }

    static void end() {
        for (CuratorFramework c : clients) {
            c.close();
        }
        clients = new CuratorFramework[] {};
        waiting = new ArrayList<>();
        held = null;
        failed.set(null);
    }

    static void cycle(Mutex m, int lock, Log log) throws Exception {
        long asked = System.nanoTime();
        if (!m.acquire(BOUND_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not acquired within " + BOUND_SECONDS + " s");
        }
        long got = System.nanoTime();
        long leaving = System.nanoTime();
        m.release();
        log.add(lock, asked, got, leaving, System.nanoTime());
    }

    static void check() throws Exception {
        Throwable e = failed.get();
        if (e != null) {
            throw new Exception(e);
        }
    }

    /** Starts a thread for each worker; Curator's locks belong to the thread that took them. */
    static void start(Mutex[] all, int from, int locks) {
        cycles.set(0);
        logs = new Log[all.length];
        for (int i = from; i < all.length; i++) {
            int worker = i;
            logs[i] = new Log();
            Thread t = new Thread(() -> {
                try {
                    do {
                        cycle(all[worker], worker % locks, logs[worker]);
                        cycles.incrementAndGet();
                    } while (!over && failed.get() == null);
                } catch (Throwable e) {
                    failed.compareAndSet(null, e);
                }
            });
            t.start();
            waiting.add(t);
        }
    }

    static void join() throws Exception {
        for (Thread t : waiting) {
            t.join();
        }
        check();
    }

    static void at(String word, long millis, int enough) throws Exception {
        TimeUnit.MILLISECONDS.sleep(millis);
        while (cycles.get() < enough && failed.get() == null) {
            TimeUnit.MILLISECONDS.sleep(1);
        }
        say(word + " " + System.nanoTime());
    }

    static void run(String[] w, int count, int workers, int locks, int warm, int run) throws Exception {
        Mutex[] all = open(w, count, workers, locks);
        say("opened");
        over = false;
        start(all, 0, locks);
        int few = Math.max(locks, all.length / 20);
        at("start", warm, few);
        at("end", run, cycles.get() + few);
        over = true;
        join();
        for (Log l : logs) {
            l.print();
        }
        end();
        say("done");
    }

    static void park(String[] w, int count, int workers) throws Exception {
        Mutex[] all = open(w, count, workers, 1);
        before = memory();
        say("opened");
        long asked = System.nanoTime();
        all[0].acquire();
        long got = System.nanoTime();
        held = all[0];
        holders = new Log();
        holders.add(0, asked, got, 0, 0);
        over = true;
        start(all, 1, 1);
        say("held " + got);
    }

    static void drain() throws Exception {
        if (held == null) {
            throw new IllegalStateException("nothing is held");
        }
        holders.numbers[3] = System.nanoTime();
        held.release();
        holders.numbers[4] = System.nanoTime();
        join();
        holders.print();
        for (int i = 1; i < logs.length; i++) {
            logs[i].print();
        }
        end();
        say("done");
    }

    /** The heap after a collection; the threads' stacks are not in it. */
    static long memory() {
        System.gc();
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
