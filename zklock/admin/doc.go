// Package admin is for those who operate locks: who holds and who waits (Queue, ReadQueue), which
// locks are in use (Locks), and taking a lock away from a holder that hangs (Evict). It sees every
// client's locks, other libraries' too, and needs a Client of package zklock only to reach the
// ensemble.
//
//	for k, err := range admin.Queue(ctx, client, "/locks/rebuild-index") {
//		…
//	}
package admin
