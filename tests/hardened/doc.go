// Package hardened runs locks on hardened ensembles: closed roots, enforced authentication, client
// certificates, quotas, observers, read-only servers, balancers that cut idle connections, names
// whose address changes, and a rolling upgrade. It holds tests only.
package hardened
