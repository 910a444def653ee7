// Package locktest is shared by the tests of the locks: of zklock, its handlers, and the programs
// on top of it.
//
// Bubble and Simulate run a test on an in-process server in simulated time (testing/synctest):
// faults strike at exact moments, time costs nothing, and after synctest.Wait everything that could
// happen has happened. SiteOf gives a test real servers, or, with ZKLOCK_TEST_BACKEND=inprocess, an
// in-process server in real time.
package locktest
