// Package simulation is a test: it runs the whole library against the in-process server in a simulated time, under
// random use and random faults, and checks after every step what the library promises.
//
// A seed fixes everything that is drawn: three to five clients, three lock paths and their kinds, fifty operations a
// client, the faults, and how long each single message travels. A thousand seeds belong to the ordinary test run, or as
// many of them as a minute has room for, and those of half a minute under the race detector:
//
//	go test ./internal/simulation
//	go test ./internal/simulation -timeout 0 -seeds 100000 -first 1 // any number, from any first one
//	go test ./internal/simulation -seeds 1 -first 4711 -cpu 1       // one of them again, as a failure prints it
//
// What has to hold (oracle_test.go): nobody holds a lock beside another between the return of Lock and the end of the
// hold's context; a hold's znode stands as long as the hold; tokens grow; nobody is overtaken; every call returns by
// its deadline; and after the faults are over and everything is released, nothing is left: no znode, no watch, no
// session, no goroutine. What is removed by force is the documented exception, znode by znode: there only the token
// and Hold.Multi are held to their word.
//
// In a quarter of the seeds the clients take several locks at the same instant, and what they write waits, so that their
// creates and deletes leave as transactions of several calls.
//
// In half of the seeds there is a neighbour (neighbour_test.go): a foreign client that creates znodes of any name, number
// and size in the locks' directories, and deletes its own.
//
// Some runs, of mutexes alone, are held against the model of the queue as well (follow_test.go).
//
// Two runs of a seed draw the same. No two messages travel at the same instant, so that the order of events is the
// simulated time's and not the scheduler's, and how long each travels depends on what it says and not on what was sent
// before it. What is left to chance is which of several goroutines that one event wakes comes first, and in which order
// the contexts below a session's end; -cpu 1 without the race detector leaves least of it: six repetitions in ten have
// the very same history, to the nanosecond and to the last line (-again 2 counts them).
package simulation
