// Package simulation is a test: it runs the whole library against the in-process server in simulated time, under random
// use and random faults, and checks the library's guarantees after every step.
//
// A seed fixes everything that is drawn: three to five clients, three lock paths and their kinds, fifty operations per
// client, the faults, and the delay of each message. The ordinary test run has a thousand seeds, or as many as run in a
// minute, under the race detector in half a minute:
//
//	go test ./internal/simulation
//	go test ./internal/simulation -timeout 0 -seeds 100000 -first 1 // any number, from any first one
//	go test ./internal/simulation -seeds 1 -first 4711 -cpu 1       // one of them again, as a failure prints it
//
// What has to hold (oracle_test.go): no two clients hold a lock between the return of Lock and the end of the hold's
// context; a hold's znode exists as long as the hold; tokens grow; no contender is overtaken; every call returns by its
// deadline; and after the faults are over and everything is released, nothing is left: no znode, no watch, no session,
// no goroutine. Removal by force is the documented exception, znode by znode: there only the token and Hold.Multi are
// checked.
//
// In a quarter of the seeds the clients take several locks at the same instant, and their writes queue, so that their
// creates and deletes are sent as transactions of several calls.
//
// In half of the seeds there is a neighbour (neighbour_test.go): a foreign client that creates znodes of any name, number
// and size in the locks' directories, and deletes its own.
//
// Some runs, of mutexes alone, are compared with the model of the queue as well (follow_test.go).
//
// Two runs of a seed draw the same. No two messages are sent at the same instant, so that the order of events is the
// simulated time's and not the scheduler's, and a message's delay depends on its contents and not on earlier messages.
// Chance decides only which of several goroutines that one event wakes runs first, and in which order the contexts
// below a session's end; -cpu 1 without the race detector leaves least of it: six repetitions in ten have the very same
// history, to the nanosecond and to the last line (-again 2 counts them).
package simulation
