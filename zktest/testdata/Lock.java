import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Two Curator clients take and release one InterProcessMutex in turn. Argument: host:port; prints one line per step. */
public class Lock {
    static CuratorFramework client(String servers) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.newClient(servers, 10000, 10000, new RetryOneTime(100));
        c.start();
        if (!c.blockUntilConnected(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected");
        }
        return c;
    }

    public static void main(String[] args) throws Exception {
        try (CuratorFramework one = client(args[0]); CuratorFramework two = client(args[0])) {
            InterProcessMutex a = new InterProcessMutex(one, "/curator/lock");
            InterProcessMutex b = new InterProcessMutex(two, "/curator/lock");
            System.out.println("one holds: " + a.acquire(20, TimeUnit.SECONDS));
            System.out.println("two holds: " + b.acquire(300, TimeUnit.MILLISECONDS));
            a.release();
            System.out.println("two holds: " + b.acquire(20, TimeUnit.SECONDS));
            b.release();
            System.out.println("left: " + one.getChildren().forPath("/curator/lock"));
            one.create().withProtection().forPath("/curator/x", "data".getBytes());
            System.out.println("protected: " + one.getChildren().forPath("/curator").size());
        }
        System.exit(0);
    }
}
