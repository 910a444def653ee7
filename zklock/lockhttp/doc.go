// Package lockhttp puts locks into net/http. Middleware puts a handler under a lock: in the whole
// fleet, one request at a time is in it for each lock, or any number of readers. StatusHandler is a
// page on which an operator sees what this process holds and waits for. HealthHandler answers an
// orchestrator's probes, and MetricsHandler answers Prometheus.
//
// What is not guaranteed is what package zklock does not guarantee either: a handler that ignores
// its request's context, or a process that was stopped, may act for a moment after the lock has
// been lost. The token is for that, in a column that is BIGINT NOT NULL DEFAULT 0:
//
//	hold, _ := zklock.HoldFrom(r.Context(), path)
//	res, err := db.ExecContext(r.Context(),
//		`UPDATE orders SET state = 'paid', token = $1 WHERE id = 4711 AND token <= $1`,
//		int64(hold.Token())) // no error and no row: refused
package lockhttp
