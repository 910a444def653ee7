package dial

import "context"

// ReplaceLookup has lookup look names up, until restore is called. It forgets all addresses.
func ReplaceLookup(
	lookup func(ctx context.Context, host string) ([]string, error),
) (restore func()) {
	before := lookupHost
	lookupHost = lookup
	known.mu.Lock()
	defer known.mu.Unlock()
	known.of = nil
	return func() { lookupHost = before }
}
