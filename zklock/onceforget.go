package zklock

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
)

// Forget takes the runs of key out of the record, "" those of Every, so that the next call runs the job again. It reports
// whether there were any. It does not wait for the lock: a run that is under way is recorded behind it all the same. It
// costs a sync, a read and a write.
//
// Errors: ErrConflict, when the record's znode has data that are not a record; after one that matches ErrUnknownOutcome
// they may have been taken out.
func (o *Once) Forget(ctx context.Context, key string) (bool, error) {
	o.use().need(ctx)
	found, err := o.forget(ctx, key)
	if err != nil {
		return false, o.fail(err)
	}
	return found, nil
}

func (o *Once) forget(ctx context.Context, key string) (bool, error) {
	if err := o.m.lock.err; err != nil {
		return false, err
	}
	s, err := o.m.lock.c.Session(ctx)
	if err != nil {
		return false, err
	}
	for {
		if err := s.Sync(ctx, o.record); err != nil {
			return false, err
		}
		runs, stat, err := o.read(ctx, s)
		if errors.Is(err, zk.ErrNoNode) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		rest := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Key == key })
		if len(rest) == len(runs) {
			return false, nil
		}
		_, err = s.Set(ctx, o.record, encodeRuns(rest), stat.Version)
		if err == nil || !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return err == nil, err
		}
	}
}
