package main

import (
	"context"

	"github.com/zklock/locker/session"
)

// gone returns nil when node does not exist any more, or was changed.
func gone(ctx context.Context, s *session.Session, node string) error {
	w, err := s.Watch(ctx, node)
	if err != nil {
		return err
	}
	defer w.Close()
	if !w.Exists {
		return nil
	}
	select {
	case <-w.Fired():
		return nil
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
