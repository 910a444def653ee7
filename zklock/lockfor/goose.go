package lockfor

import (
	"context"
	"database/sql"

	"github.com/zklock/locker/zklock"
)

// GooseLocker is a lock.Locker of github.com/pressly/goose/v3: see Goose.
type GooseLocker struct {
	m     *zklock.Mutex
	holds holds
}

// Goose returns the locker with which goose migrates a database on one host at a time, for goose
// from v3.26 on:
//
//	locker := lockfor.Goose(client.Mutex("/locks/migrate", zklock.WithMaxWait(10*time.Minute)))
//	provider, err := goose.NewProvider(dialect, db, migrations, goose.WithLocker(locker))
//
// The others wait, and find nothing to migrate.
//
// If the lock is lost, nobody tells goose: it makes all the migrations that remain, beside the next
// holder, and then returns an error that matches zklock.ErrLost. Where that matters call
// provider.Up inside m.Do, without a locker: no migration begins after the loss.
func Goose(m *zklock.Mutex) *GooseLocker {
	return &GooseLocker{m: m}
}

// Lock waits for the lock. Errors are those of zklock.Mutex.Lock.
func (l *GooseLocker) Lock(ctx context.Context, _ *sql.DB) error {
	return l.holds.lock(ctx, l.m.String(), l.m)
}

// Unlock releases the lock, even if its context has ended. Call it once for each Lock. Errors are
// those of zklock.Hold.Unlock, and ErrNotLocked.
func (l *GooseLocker) Unlock(context.Context, *sql.DB) error {
	return l.holds.unlock(l.m.String())
}
