package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// store is the table of approval settings, and beside it one row for each update that was accepted.
//
// The row of a key keeps the token of the latest holder of the key's lock and refuses older ones, twice:
//
//   - claim, the first statement of an update, reads the row and puts the holder's token into it, in one statement;
//   - apply, the last one, writes only if the token is not older than the row's.
//
// The second alone is not enough for an update that reads before it writes. Without the first, a late holder could
// write between a newer holder's read and write: the row's token would still be older than both, so both writes would
// be accepted, and the newer one, computed from the earlier read, would undo the other. With it, no write of an older
// holder counts once a newer one has read.
// older holder does counts any more once a newer one has read.
type store struct {
	db       *sql.DB
	postgres bool
	settings string // names of the tables
	accepted string
}

// errStale says that a newer holder of the lock has left its token in the row.
var errStale = errors.New("refused: the row has a newer token")

// databaseBound limits every statement and transaction.
const databaseBound = 30 * time.Second

// openStore opens the database: a PostgreSQL URL, or the name of a file for SQLite. suffix distinguishes the tables of
// several runs.
func openStore(database, suffix string) (*store, error) {
	s := &store{settings: "approval_settings_" + suffix, accepted: "approval_accepted_" + suffix}
	s.postgres = isPostgres(database)
	var err error
	if s.postgres {
		s.db, err = sql.Open("pgx", database)
	} else {
		// Several processes write: they wait for each other (busy_timeout), and say at the beginning of a transaction
		// that they will (immediate). A commit need not reach the disk: processes are killed here, not machines.
		s.db, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: database, RawQuery: url.Values{
			"_pragma": {fmt.Sprintf("busy_timeout(%d)", databaseBound.Milliseconds()), "journal_mode(WAL)", "synchronous(NORMAL)"},
			"_txlock": {"immediate"},
		}.Encode()}).String())
	}
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	s.db.SetMaxOpenConns(4)
	return s, nil
}

func isPostgres(database string) bool {
	return strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://")
}

// text fits a statement to the database: names of tables, and placeholders.
func (s *store) text(query string) string {
	query = strings.NewReplacer("SETTINGS", s.settings, "ACCEPTED", s.accepted).Replace(query)
	if !s.postgres {
		query = strings.ReplaceAll(query, "$", "?")
	}
	return query
}

// create makes the tables.
func (s *store) create(ctx context.Context) error {
	for _, q := range []string{
		`CREATE TABLE SETTINGS (key TEXT PRIMARY KEY, approver TEXT NOT NULL, updates BIGINT NOT NULL, token BIGINT NOT NULL, instance TEXT NOT NULL)`,
		`CREATE TABLE ACCEPTED (id TEXT PRIMARY KEY, key TEXT NOT NULL, n BIGINT NOT NULL, token BIGINT NOT NULL, instance TEXT NOT NULL)`,
	} {
		if _, err := s.db.ExecContext(ctx, s.text(q)); err != nil {
			return fmt.Errorf("database: create tables: %w", err)
		}
	}
	return nil
}

// drop removes the tables.
func (s *store) drop(ctx context.Context) error {
	for _, q := range []string{`DROP TABLE IF EXISTS SETTINGS`, `DROP TABLE IF EXISTS ACCEPTED`} {
		if _, err := s.db.ExecContext(ctx, s.text(q)); err != nil {
			return fmt.Errorf("database: drop tables: %w", err)
		}
	}
	return nil
}

func (s *store) close() error { return s.db.Close() }

// update is one change of a key's settings.
type update struct {
	ID       string // the client's own name for this update, the same whenever it asks again
	Key      string
	Approver string
	Token    int64 // of the lock's hold; 0 without the lock
	Instance string
}

// claim returns how many updates the key has had, and whether u is one of them already: n is its number then. After its
// return, no older token is accepted. errStale: there is a newer one.
func (s *store) claim(ctx context.Context, u update) (n int64, already bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseBound)
	defer cancel()
	err = s.db.QueryRowContext(ctx, s.text(`INSERT INTO SETTINGS AS s (key, approver, updates, token, instance) VALUES ($1, '', 0, $2, $3)
		ON CONFLICT (key) DO UPDATE SET token = excluded.token, instance = excluded.instance WHERE s.token <= excluded.token
		RETURNING updates`), u.Key, u.Token, u.Instance).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, errStale
	}
	if err != nil {
		return 0, false, fmt.Errorf("database: claim: %w", err)
	}
	// Only now: an older holder that has not written before the claim never will.
	var number int64
	err = s.db.QueryRowContext(ctx, s.text(`SELECT n FROM ACCEPTED WHERE id = $1`), u.ID).Scan(&number)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return n, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("database: look up: %w", err)
	}
	return number, true, nil
}

// apply writes u as the key's nth update, and records its id in the same transaction, so that exactly the updates that
// were made are recorded. errStale: nothing was written.
func (s *store) apply(ctx context.Context, u update, n int64) (err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseBound)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("database: begin: %w", err)
	}
	defer func() {
		if err != nil {
			if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
				err = errors.Join(err, e)
			}
		}
	}()
	res, err := tx.ExecContext(ctx, s.text(`UPDATE SETTINGS SET approver = $1, updates = $2, token = $3, instance = $4
		WHERE key = $5 AND token <= $3`), u.Approver, n, u.Token, u.Instance, u.Key)
	if err != nil {
		return fmt.Errorf("database: update: %w", err)
	}
	rows, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("database: update: %w", err)
	}
	if rows == 0 {
		return errStale
	}
	_, err = tx.ExecContext(ctx, s.text(`INSERT INTO ACCEPTED (id, key, n, token, instance) VALUES ($1, $2, $3, $4, $5)`),
		u.ID, u.Key, n, u.Token, u.Instance)
	if err != nil {
		return fmt.Errorf("database: note: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("database: commit: %w", err)
	}
	return nil
}

// row is a key's settings.
type row struct {
	Updates, Token int64
	Instance       string // that claimed it or wrote it last
}

// row returns the zero row for a key that does not exist.
func (s *store) row(ctx context.Context, key string) (r row, err error) {
	err = s.db.QueryRowContext(ctx, s.text(`SELECT updates, token, instance FROM SETTINGS WHERE key = $1`), key).Scan(&r.Updates, &r.Token, &r.Instance)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, nil
	}
	return r, err
}

// rows returns every key's settings.
func (s *store) rows(ctx context.Context) (map[string]row, error) {
	all := map[string]row{}
	rows, err := s.db.QueryContext(ctx, s.text(`SELECT key, updates, token, instance FROM SETTINGS`))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var r row
		if err := rows.Scan(&key, &r.Updates, &r.Token, &r.Instance); err != nil {
			return nil, err
		}
		all[key] = r
	}
	return all, rows.Err()
}

// entry is one update that was accepted.
type entry struct {
	ID, Key  string
	N, Token int64
}

// entries returns all of them, by key and in the order of their numbers.
func (s *store) entries(ctx context.Context) ([]entry, error) {
	rows, err := s.db.QueryContext(ctx, s.text(`SELECT id, key, n, token FROM ACCEPTED ORDER BY key, n, id`))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []entry
	for rows.Next() {
		var e entry
		if err := rows.Scan(&e.ID, &e.Key, &e.N, &e.Token); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, rows.Err()
}
