package chaos

import "github.com/zklock/locker/tests/e2e/servers"

// Witness starts the witnesses of an ensemble on znodes below root; the function stops them and
// returns what they found.
func Witness(e *servers.Ensemble, root string) (finish func() []string) {
	return (&Run{conf: Config{Ensemble: e}}).watchEnsemble(root).finish
}

// OpenStore, and what a test needs of it.
func OpenStore() (s *Store, addr string, closeStore func() error, err error) {
	if s, err = openStore(); err != nil {
		return nil, "", nil, err
	}
	return s, s.listener.Addr().String(), s.close, nil
}
