// Package history records what the workers of a chaos run did, and checks it.
//
// Every stamp is CLOCK_MONOTONIC, which all processes of a machine read alike, so that the records of several processes
// can be put in order. A stamp is always taken on the safe side: an instant at which a lock was certainly asked for,
// had certainly been given, or was certainly still believed in. A check that fails has therefore seen a fault, and not
// a late goroutine of the test's.
//
// There are two checks, which share nothing. Linearize gives each path's operations to porcupine, with a model of the
// lock: who holds it, and the last token. Overlaps compares the spans in which holders believed in their hold. Both are
// tested on histories that are wrong in each way they must notice.
package history
