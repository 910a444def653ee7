package adapters_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockfor"
	"github.com/zklock/locker/zktest"
)

var _ lock.Locker = (*lockfor.GooseLocker)(nil)

// versions are those of a database that several hosts migrate. They are in memory.
type versions struct {
	mu      sync.Mutex // guards applied
	applied []int64
}

func (*versions) Tablename() string {
	return "versions"
}
func (v *versions) CreateVersionTable(context.Context, database.DBTxConn) error { return nil }

func (v *versions) Insert(_ context.Context, _ database.DBTxConn, r database.InsertRequest) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains(v.applied, r.Version) {
		return errors.New("duplicate key")
	}
	v.applied = append(v.applied, r.Version)
	return nil
}

func (v *versions) Delete(context.Context, database.DBTxConn, int64) error {
	return errors.ErrUnsupported
}

func (v *versions) GetMigration(
	_ context.Context, _ database.DBTxConn, version int64,
) (*database.GetMigrationResult, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.applied, version) {
		return nil, database.ErrVersionNotFound
	}
	return &database.GetMigrationResult{IsApplied: true}, nil
}

func (v *versions) GetLatestVersion(context.Context, database.DBTxConn) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.applied) == 0 {
		return 0, database.ErrVersionNotFound
	}
	return slices.Max(v.applied), nil
}

func (v *versions) ListMigrations(
	context.Context, database.DBTxConn,
) (all []*database.ListMigrationsResult, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, version := range slices.Backward(v.applied) {
		all = append(all, &database.ListMigrationsResult{Version: version, IsApplied: true})
	}
	return all, nil
}

// noDatabase is a database that accepts connections, and nothing else.
type noDatabase struct{}

func (noDatabase) Connect(context.Context) (driver.Conn, error) { return noDatabase{}, nil }
func (noDatabase) Driver() driver.Driver                        { return nil }
func (noDatabase) Prepare(string) (driver.Stmt, error) {
	return nil, errors.ErrUnsupported
}
func (noDatabase) Begin() (driver.Tx, error) { return noDatabase{}, nil }
func (noDatabase) Close() error              { return nil }
func (noDatabase) Commit() error             { return nil }
func (noDatabase) Rollback() error           { return nil }

// provider returns goose's provider for that database, with two migrations of which each calls
// work.
func provider(
	t *testing.T, v *versions, work func(context.Context) error, opts ...goose.ProviderOption,
) *goose.Provider {
	t.Helper()
	db := sql.OpenDB(noDatabase{})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	step := &goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error { return work(ctx) }}
	opts = append(opts, goose.WithStore(v), goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(1, step, nil),
			goose.NewGoMigration(2, step, nil)))
	p, err := goose.NewProvider("", db, nil, opts...)
	require.NoError(t, err)
	return p
}

// Goose's own tests of lockers, on the in-process server and on a real one.
func TestGooseAcceptsTheLocker(t *testing.T) {
	servers := map[string]func(t *testing.T) *zklock.Client{
		"in-process": func(t *testing.T) *zklock.Client { return locktest.Dial(t, zktest.Run(t)) },
		"ZooKeeper": func(t *testing.T) *zklock.Client {
			return locktest.SiteOn(t, ensemble.Start(t, 1)).Client(t)
		},
	}
	for name, dial := range servers {
		t.Run(name, func(t *testing.T) {
			v := new(versions)
			c := dial(t)
			newLocker := func(*testing.T) lock.Locker { return lockfor.Goose(c.Mutex("/migrate")) }
			slowly := func(context.Context) error {
				time.Sleep(50 * time.Millisecond)
				return nil
			}
			locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
				return provider(t, v, slowly, goose.WithLocker(newLocker(t)))
			})
			locktesting.TestConcurrentLocking(t, nil, newLocker, 2*time.Second)
		})
	}
}

// Scenario 97: the session ends while a migration runs. With the locker the migration is not told,
// and the provider says that the lock was lost. Inside Do it is told.
func TestScenario97_AMigrationAndItsLostLock(t *testing.T) {
	t.Run("locker", func(t *testing.T) {
		srv := zktest.Run(t)
		c := locktest.Dial(t, srv)
		expire := func(ctx context.Context) error {
			old := srv.Sessions()[0].ID
			if err := srv.Expire(old); err != nil {
				return err
			}
			return srv.Await(ctx, func() bool { // the client has noticed
				all := srv.Sessions()
				return len(all) > 0 && all[0].ID != old
			})
		}
		p := provider(t, new(versions), expire,
			goose.WithLocker(lockfor.Goose(c.Mutex("/migrate"))))
		_, err := p.UpByOne(t.Context())
		require.ErrorIs(t, err, zklock.ErrLost)
	})
	t.Run("Do", func(t *testing.T) {
		srv := zktest.Run(t)
		c := locktest.Dial(t, srv)
		p := provider(t, new(versions), func(ctx context.Context) error {
			if err := srv.Expire(srv.Sessions()[0].ID); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		err := c.Mutex("/migrate").Do(t.Context(), func(ctx context.Context) error {
			_, err := p.Up(ctx)
			return err
		})
		require.ErrorIs(t, err, zklock.ErrLost)
	})
}
