package adapters_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source"
	sourcestub "github.com/golang-migrate/migrate/v4/source/stub"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// upUnder is the page's recipe.
func upUnder(ctx context.Context, m *zklock.Mutex, migrations *migrate.Migrate) error {
	return m.Do(ctx, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { migrations.GracefulStop <- true })
		defer stop()
		err := migrations.Up()
		if errors.Is(err, migrate.ErrNoChange) {
			return nil
		}
		return errors.Join(err, context.Cause(ctx))
	})
}

// watched is a database that calls run for each migration.
type watched struct {
	database.Driver
	run func() error
}

func (w watched) Run(migration io.Reader) error {
	if err := w.run(); err != nil {
		return err
	}
	return w.Driver.Run(migration)
}

func newMigrations(t *testing.T, run func() error) *migrate.Migrate {
	t.Helper()
	db, err := stub.WithInstance(nil, &stub.Config{})
	require.NoError(t, err)
	files, err := sourcestub.WithInstance(nil, &sourcestub.Config{})
	require.NoError(t, err)
	all := source.NewMigrations()
	for version := uint(1); version <= 3; version++ {
		all.Append(&source.Migration{Version: version, Direction: source.Up, Identifier: "CREATE"})
	}
	files.(*sourcestub.Stub).Migrations = all
	m, err := migrate.NewWithInstance("stub", files, "stub", watched{db, run})
	require.NoError(t, err)
	return m
}

func TestGolangMigrateRunsUnderTheLock(t *testing.T) {
	c := locktest.Dial(t, zktest.Run(t))
	ran := 0
	m := newMigrations(t, func() error {
		ran++
		return nil
	})
	for range 2 {
		require.NoError(t, upUnder(t.Context(), c.Mutex("/migrate"), m))
		require.Equal(t, 3, ran)
	}
}

// Scenario 97: the lock is lost during a migration. That one ends, and none follows.
func TestScenario97_GolangMigrateStopsBetweenMigrations(t *testing.T) {
	if underRaceDetector {
		t.Skip("Migrate.stop of golang-migrate 4.20.1 reads and writes a field in two goroutines")
	}
	srv := zktest.Run(t)
	c := locktest.Dial(t, srv)
	ran := 0
	stopped := make(chan struct{})
	m := newMigrations(t, func() error {
		ran++
		if err := srv.Expire(srv.Sessions()[0].ID); err != nil {
			return err
		}
		<-stopped
		return nil
	})
	err := c.Mutex("/migrate").Do(t.Context(), func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() {
			m.GracefulStop <- true
			close(stopped)
		})
		defer stop()
		return errors.Join(m.Up(), context.Cause(ctx))
	})
	require.ErrorIs(t, err, zklock.ErrLost)
	require.Equal(t, 1, ran)
}
