package org.apache.curator.test;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** One server, in place of the one that Curator's tests start: a process that stands in for ZooKeeper's. */
public class TestingServer implements Closeable {
	private static final long BOUND_MS = 30_000;

	private final InstanceSpec spec;
	private final File config;
	private Process process;

	public TestingServer() throws Exception {
		this(InstanceSpec.newInstanceSpec(), List.of(), true);
	}

	TestingServer(InstanceSpec spec, Collection<InstanceSpec> ensemble, boolean start) throws Exception {
		this.spec = spec;
		File dir = spec.getDataDirectory();
		Files.createDirectories(dir.toPath());
		List<String> lines = new ArrayList<>();
		lines.add("dataDir=" + dir);
		lines.add("clientPort=" + spec.getPort());
		for (InstanceSpec s : ensemble) {
			lines.add("server." + s.getServerId() + "=127.0.0.1:" + s.getQuorumPort() + ":" + s.getElectionPort());
		}
		Files.writeString(new File(dir, "myid").toPath(), spec.getServerId() + "\n");
		config = new File(dir, "zoo.cfg");
		Files.write(config.toPath(), lines);
		if (start) {
			start();
		}
	}

	public InstanceSpec getInstanceSpec() {
		return spec;
	}

	public int getPort() {
		return spec.getPort();
	}

	public String getConnectString() {
		return spec.getConnectString();
	}

	/** Returns when the server takes connections. */
	public synchronized void start() throws Exception {
		if (process != null) {
			return;
		}
		process = new ProcessBuilder("zkServer.sh", "start-foreground", config.toString())
			.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.INHERIT).start();
		for (long end = System.currentTimeMillis() + BOUND_MS;;) {
			try (Socket s = new Socket()) {
				s.connect(new InetSocketAddress("127.0.0.1", spec.getPort()), 1000);
				return;
			} catch (IOException e) {
				if (!process.isAlive() || System.currentTimeMillis() > end) {
					stop();
					throw new FailedServerStartException("nothing listens at " + spec.getPort());
				}
				Thread.sleep(10);
			}
		}
	}

	public synchronized void stop() throws IOException {
		if (process == null) {
			return;
		}
		process.destroy();
		try {
			if (!process.waitFor(BOUND_MS, TimeUnit.MILLISECONDS)) {
				throw new IOException("the server does not end");
			}
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			throw new IOException(e);
		}
		process = null;
	}

	public void restart() throws Exception {
		stop();
		start();
	}

	@Override
	public void close() throws IOException {
		stop();
		DirectoryUtils.deleteRecursively(spec.getDataDirectory());
	}
}
