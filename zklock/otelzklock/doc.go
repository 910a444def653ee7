// Package otelzklock records what happens to a program's locks as OpenTelemetry metrics and spans:
//
//	c, err := zklock.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181", zklock.WithHooks(otelzklock.Hooks()))
//
// It is a module of its own, so that a program without OpenTelemetry does not get it.
//
// # Metrics
//
//	zklock.lock.wait.duration  histogram, s        from asking for a lock to having it, or not
//	zklock.lock.wait.count     up/down, {call}     calls that wait now
//	zklock.lock.wait.oldest    gauge, s            how long the longest of these waits has lasted
//	zklock.lock.hold.duration  histogram, s        from having a lock to its release or loss
//	zklock.lock.hold.count     up/down, {hold}     locks that are held now
//	zklock.lock.hold.oldest    gauge, s            how long the longest of these holds has lasted
//	zklock.lock.losses         counter, {loss}     holds that were lost, by cause
//	zklock.lock.retries        counter, {retry}    steps that failed and were repeated
//	zklock.session.changes     counter, {change}   by state: connected, disconnected, over
//	zklock.session.count       up/down, {session}  sessions that are connected now
//
// They have these attributes:
//   - Metrics of locks have zklock.lock.kind: mutex, read, write, semaphore, multi, election.
//   - Durations of what went wrong, and losses, have error.type: busy, timeout, canceled, deadlock,
//     closed, conflict, …; session_expired, lease_expired, node_deleted, node_gone, max_hold.
//   - zklock.lock.hold.duration has zklock.lock.end: released, lost, closed.
//
// None has a path, since there may be one for each key: see WithMetricAttributes.
//
// A wait or hold under way counts once. A call that joins a hold (zklock.WithReentrancy) is a wait,
// and no hold of its own.
//
// # Spans
//
// "lock <kind>" lasts from asking for a lock to having it, or not. "hold <kind>" lasts from then to
// the lock's release or loss. Both are children of the span in the context that the lock was asked
// for with. Their attributes are the lock's path, owner, number of the call, token and znode
// (zklock.lock.path, zklock.lock.owner, zklock.call, zklock.lock.token, zklock.lock.node). The
// place in line and each retry are events (queued, retried). A failure or a loss is an error, with
// its text. A TryLock that finds the lock busy is none.
//
// There is no semantic convention for locks in OpenTelemetry. Names are below zklock, as those
// conventions ask of a library's own names, and follow their rules for units and plurals.
// error.type is theirs.
package otelzklock
