// Package hardened runs locks on ensembles as careful owners configure them: closed roots, enforced authentication,
// client certificates, quotas, observers, read-only servers, balancers that cut idle connections, names that move, and
// a rolling upgrade. It holds tests only.
package hardened
