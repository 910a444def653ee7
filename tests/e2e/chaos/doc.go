// Package chaos runs every kind of lock on a real ensemble while it breaks servers, network and
// clients, and checks what the clients saw.
//
// A Run has some clients in its own process and some in processes of their own, which it can stop.
// Each client reaches the servers through proxies of its own, and runs every workload. In each
// round faults strike at random, from a seed; then everything is healed, and the run must come to
// rest: every worker completes one more cycle, and no znode and no watch is left. Then the round's
// history is checked (package history).
package chaos
