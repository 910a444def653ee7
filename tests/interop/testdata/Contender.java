import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;

/**
 * Contenders for Curator's locks, each a thread with a session of its own. Arguments: servers and session timeout in
 * milliseconds. Standard input has a line "ID WORD [ARGUMENT]" for each step; each is answered by a line "ID ANSWER".
 * A contender's steps are done one after the other, those of different contenders at once. The end of the input ends
 * the program.
 */
public class Contender implements Runnable {
    final String id;
    final String servers;
    final int timeout;
    final LinkedBlockingQueue<String[]> steps = new LinkedBlockingQueue<>();
    CuratorFramework client;
    InterProcessMutex mutex;
    InterProcessReadWriteLock both;

    Contender(String id, String servers, int timeout) {
        this.id = id;
        this.servers = servers;
        this.timeout = timeout;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Contender> all = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            all.computeIfAbsent(words[0], id -> {
                Contender c = new Contender(id, args[0], Integer.parseInt(args[1]));
                new Thread(c).start(); // Curator's locks belong to the thread that took them
                return c;
            }).steps.add(words);
        }
        System.exit(0);
    }

    public void run() {
        while (true) {
            String answer;
            try {
                String[] words = steps.take();
                answer = step(words[1], words.length > 2 ? words[2] : "");
            } catch (Throwable e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(id + " " + answer);
        }
    }

    String step(String word, String argument) throws Exception {
        switch (word) {
            case "open":
                client = CuratorFrameworkFactory.newClient(servers, timeout, 15000, new RetryNTimes(20, 200));
                client.start();
                if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
                    return "error not connected";
                }
                mutex = new InterProcessMutex(client, argument);
                both = new InterProcessReadWriteLock(client, argument);
                return "open " + client.getZookeeperClient().getZooKeeper().getSessionId();
            case "lock":
                return acquire(mutex, argument);
            case "read":
                return acquire(both.readLock(), argument);
            case "write":
                return acquire(both.writeLock(), argument);
            case "unlock":
                mutex.release();
                return "free";
            case "unread":
                both.readLock().release();
                return "free";
            case "unwrite":
                both.writeLock().release();
                return "free";
            case "line":
                return "line " + mutex.getParticipantNodes().size();
            case "token":
                return "token " + client.checkExists().forPath(mutex.getParticipantNodes().iterator().next()).getCzxid();
            case "close":
                client.close();
                return "closed";
            default:
                return "error unknown step " + word;
        }
    }

    static String acquire(InterProcessMutex m, String millis) throws Exception {
        return m.acquire(Long.parseLong(millis), TimeUnit.MILLISECONDS) ? "held" : "late";
    }
}
