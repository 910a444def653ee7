// Package history records what the workers of a chaos run did, and checks it.
//
// Every stamp is CLOCK_MONOTONIC, which all processes of a machine read alike, so that the records
// of several processes can be put in order. A stamp errs on the safe side: the call of Lock is
// stamped before it, its return after it, and the hold's life before each check that finds it
// alive. So a check of the history fails only for a fault of the lock, and never for a late
// goroutine of the test.
//
// There are two checks, which share no code. Linearize gives each path's operations to porcupine,
// with a model of the lock: its holders and the latest token. Overlaps compares the intervals in
// which holders took the lock for held. Both are tested on histories with each error that they must
// find.
package history
