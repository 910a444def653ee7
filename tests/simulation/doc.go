// Package simulation is a test: it runs the whole library against the in-process server in
// simulated time, under random use and random faults, and checks the library's guarantees after
// every step.
//
// A seed determines everything that is random: three to five clients, three lock paths and their
// kinds, fifty operations per client, the faults, and the delay of each message. The ordinary test
// run has a thousand seeds, or as many as fit into a minute, with the race detector into half a
// minute:
//
//	go test ./tests/simulation
//	go test ./tests/simulation -timeout 0 -seeds 100000 -first 1 // any number, from any first one
//	go test ./tests/simulation -seeds 1 -first 4711 -cpu 1       // one of them again, as a failure prints it
//
// The oracle (oracle_test.go) checks that no two clients hold a lock between the return of Lock and
// the end of the hold's context; that a hold's znode exists as long as the hold; that tokens grow;
// that no contender is overtaken; that every call returns by its deadline; and that nothing is left
// after the faults are over and all locks are released: no znode, no watch, no session, no
// goroutine. Removal by force is the documented exception, for each znode that is removed: there
// only the token and Hold.Multi are checked.
//
// In a quarter of the seeds the clients take several locks at the same instant, and their writes
// queue, so that the creates and deletes of several calls are sent as one transaction.
//
// Two runs of a seed draw the same random numbers. No two messages are sent at the same instant, so
// that simulated time orders the events and not the scheduler; and a message's delay depends on its
// contents and not on earlier messages. Chance decides only which of several goroutines that one
// event wakes runs first, and in which order the contexts below a session's end. It decides least
// with -cpu 1 and without the race detector; -again 20 runs a seed that often.
package simulation
