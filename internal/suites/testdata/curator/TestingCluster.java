package org.apache.curator.test;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.stream.Collectors;

/** Several servers of one ensemble, in place of those that Curator's tests start. */
public class TestingCluster implements Closeable {
	private final List<TestingServer> servers = new ArrayList<>();

	public TestingCluster(int instances) throws Exception {
		this(specs(instances));
	}

	public TestingCluster(InstanceSpec... specs) throws Exception {
		for (InstanceSpec s : specs) {
			servers.add(new TestingServer(s, Arrays.asList(specs), false));
		}
	}

	private static InstanceSpec[] specs(int instances) {
		InstanceSpec[] specs = new InstanceSpec[instances];
		for (int i = 0; i < instances; i++) {
			specs[i] = InstanceSpec.newInstanceSpec();
		}
		return specs;
	}

	public Collection<InstanceSpec> getInstances() {
		return servers.stream().map(TestingServer::getInstanceSpec).collect(Collectors.toList());
	}

	public String getConnectString() {
		return servers.stream().map(TestingServer::getConnectString).collect(Collectors.joining(","));
	}

	public void start() throws Exception {
		for (TestingServer s : servers) {
			s.start();
		}
	}

	public void stop() throws IOException {
		for (TestingServer s : servers) {
			s.stop();
		}
	}

	@Override
	public void close() throws IOException {
		for (TestingServer s : servers) {
			s.close();
		}
	}
}
