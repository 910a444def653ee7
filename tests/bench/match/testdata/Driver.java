import java.io.BufferedReader;
import java.io.InputStreamReader;
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

/** Curator's InterProcessMutex as a contestant of the benchmark. The protocol is in ../../load/load.go. */
public class Driver {
    static final long BOUND_SECONDS = 300;
    static final byte[] DATA = ("{\"host\":\"" + host() + "\",\"pid\":" + ProcessHandle.current().pid() + "}")
        .getBytes(StandardCharsets.UTF_8);

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

    /** What a worker did, four numbers a cycle. */
    static class Log {
        long[] numbers = new long[4 * 256];
        int n;

        void add(long... cycle) {
            if (n + 4 > numbers.length) {
                numbers = Arrays.copyOf(numbers, 2 * numbers.length);
            }
            System.arraycopy(cycle, 0, numbers, n, 4);
            n += 4;
        }

        void print(StringBuilder to) {
            for (int i = 0; i < n; i += 4) {
                to.append("op ").append(numbers[i]).append(' ').append(numbers[i + 1]).append(' ').append(numbers[i + 2])
                    .append(' ').append(numbers[i + 3]).append('\n');
            }
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            StringBuilder answer = new StringBuilder();
            Driver driver = new Driver();
            try {
                driver.run(line.split(" "), answer);
            } catch (Throwable e) {
                answer = new StringBuilder("error " + e.toString().replace('\n', ' ') + "\n");
            }
            driver.clients.forEach(CuratorFramework::close);
            System.out.print(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    final AtomicReference<Throwable> failed = new AtomicReference<>();
    final AtomicInteger cycles = new AtomicInteger();
    final List<CuratorFramework> clients = new ArrayList<>();
    volatile boolean over;

    void run(String[] w, StringBuilder answer) throws Exception {
        String[] servers = w[1].split(",");
        int[] n = Arrays.stream(w, 5, 10).mapToInt(Integer::parseInt).toArray();
        int count = n[0], workers = n[1], locks = n[2], warm = n[3], run = n[4];
        for (int i = 0; i < count; i++) {
            String server = servers[(i + Integer.parseInt(w[2])) % servers.length];
            clients.add(CuratorFrameworkFactory.newClient(server, Integer.parseInt(w[3]), 15000, new ExponentialBackoffRetry(100, 3)));
            clients.get(i).start();
        }
        for (CuratorFramework client : clients) {
            if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not connected");
            }
        }
        List<Thread> threads = new ArrayList<>();
        Log[] logs = new Log[count * workers];
        for (int i = 0; i < logs.length; i++) {
            Log log = logs[i] = new Log();
            int lock = i % locks;
            Mutex mutex = new Mutex(clients.get(i / workers), w[4] + "/" + lock);
            // Curator's locks belong to the thread that took them.
            threads.add(new Thread(() -> work(mutex, lock, log)));
            threads.get(i).start();
        }
        int few = Math.max(locks, logs.length / 20);
        long start = after(warm, few);
        long end = after(run, cycles.get() + few);
        over = true;
        for (Thread t : threads) {
            t.join();
        }
        if (failed.get() != null) {
            throw new Exception(failed.get());
        }
        for (Log log : logs) {
            log.print(answer);
        }
        answer.append("done ").append(start).append(' ').append(end).append('\n');
    }

    void work(Mutex mutex, int lock, Log log) {
        try {
            while (!over && failed.get() == null) {
                long asked = System.nanoTime();
                if (!mutex.acquire(BOUND_SECONDS, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("not acquired within " + BOUND_SECONDS + " s");
                }
                long got = System.nanoTime();
                mutex.release();
                log.add(lock, asked, got, System.nanoTime());
                cycles.incrementAndGet();
            }
        } catch (Throwable e) {
            failed.compareAndSet(null, e);
        }
    }

    long after(long millis, int enough) throws InterruptedException {
        TimeUnit.MILLISECONDS.sleep(millis);
        while (cycles.get() < enough && failed.get() == null) {
            TimeUnit.MILLISECONDS.sleep(1);
        }
        return System.nanoTime();
    }
}
