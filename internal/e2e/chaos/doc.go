// Package chaos runs every kind of lock on a real ensemble while it breaks servers, network and clients, and checks what
// the clients saw.
//
// A Run has some clients in its own process and some in processes of their own, which it can stop. Each reaches the
// servers through proxies of its own. Every client runs every workload. In each round the faults come at random for
// some time, from a seed; then all is healed, and all must come to rest: every worker completes one more cycle, and
// nothing is left in the tree or watched. Then the round's history is checked (package history).
package chaos
