// Package ensemble runs real ZooKeeper servers for tests, and breaks them on request.
//
// Start gives a test its own ensemble of one or three servers; Shared gives it one that all tests
// of the package use, because a JVM takes seconds to start. Servers come from Debian's jars
// (libzookeeper-java), listen on loopback only, and die with the test process. Where the
// environment variable ZKLOCK_TEST_SERVERS names a running ensemble
// ("host:port,host:port,host:port"), that one is used instead, and tests that would have to signal
// or configure its servers skip themselves (see Ensemble.NeedControl). With
// ZKLOCK_TEST_BACKEND=inprocess all tests that ask for an ensemble are skipped: what is left needs
// no Java.
//
// A Proxy stands between a client and a server (or between two servers) and cuts, freezes, delays
// or loses what passes.
//
// Every wait is bounded and fails with its reason and the end of the servers' logs. Nothing
// outlives the test that started it: processes are reaped and goroutines joined in its cleanup.
//
// The package needs a Unix: it signals processes.
package ensemble
