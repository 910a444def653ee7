// Package fanout makes several calls at a time, for the packages that read many znodes.
package fanout

import "sync"

// atOnce is how many calls Each makes at a time.
const atOnce = 16

// Each calls fn for all paths, at most atOnce at a time. After an error it makes no more calls.
// When all calls have returned, it returns the first error.
func Each(paths []string, fn func(i int, path string) error) error {
	var calls sync.WaitGroup
	errs := make(chan error, len(paths))
	slots := make(chan struct{}, atOnce)
	for i := 0; i < len(paths) && len(errs) == 0; i++ {
		slots <- struct{}{}
		calls.Go(func() {
			if err := fn(i, paths[i]); err != nil {
				errs <- err
			}
			<-slots
		})
	}
	calls.Wait()
	close(errs)
	return <-errs
}
