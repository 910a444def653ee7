package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	_ "modernc.org/sqlite"
)

// store is the table of orders, and beside it one row for each stage that an order has gone through, in that order. No
// constraint keeps a stage from being entered twice: the locks and the tokens do.
type store struct{ db *sql.DB }

// errLate says that a newer holder of the order's lock has left its token.
var errLate = errors.New("refused: the order has a newer token")

func openStore(file string) (*store, error) { return open(file, time.Minute) }

// open is openStore with a bound on how long a transaction waits for those of others.
func open(file string, patience time.Duration) (*store, error) {
	// Several processes write: they wait for each other. A commit need not reach the disk: processes are killed here, not
	// machines.
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: file, RawQuery: url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()), "journal_mode(WAL)", "synchronous(OFF)"}, "_txlock": {"immediate"},
	}.Encode()}).String())
	if err != nil {
		return nil, err
	}
	return &store{db}, nil
}

func (s *store) close() error { return s.db.Close() }

// writable reports whether a transaction can be made within a second.
func writable(ctx context.Context, file string) bool {
	s, err := open(file, time.Second)
	if err != nil {
		return false
	}
	defer s.close()
	_, err = s.db.ExecContext(ctx, `UPDATE orders SET stage = 0 WHERE id = -1`)
	return err == nil
}

// fill makes the tables and n orders.
func (s *store) fill(ctx context.Context, n int) error {
	for _, statement := range []string{
		`CREATE TABLE orders (id INTEGER PRIMARY KEY, stage INTEGER NOT NULL DEFAULT 0, token BIGINT NOT NULL DEFAULT 0)`,
		`CREATE TABLE history (n INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER, stage INTEGER, token BIGINT, worker TEXT)`,
	} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return s.open(ctx, n)
}

// open makes new orders until n are not finished.
func (s *store) open(ctx context.Context, n int) error {
	var open int
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM orders WHERE stage < ?`, stages).Scan(&open); err != nil || open >= n {
		return err
	}
	_, err := s.db.ExecContext(ctx, `WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < ?)
		INSERT INTO orders (id) SELECT (SELECT coalesce(max(id), 0) FROM orders) + i FROM k`, n-open)
	return err
}

// orders returns how many there are.
func (s *store) orders(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&n)
	return n, err
}

// some returns up to n unfinished orders, each time others.
func (s *store) some(ctx context.Context, n int) (ids []int, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id FROM orders WHERE stage < ? ORDER BY random() LIMIT ?`, stages, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// claim leaves the token with an order and returns the stage that it has reached.
func (s *store) claim(ctx context.Context, id int, token int64) (stage int, err error) {
	err = s.db.QueryRowContext(ctx, `UPDATE orders SET token = ?1 WHERE id = ?2 AND token <= ?1 RETURNING stage`, token, id).Scan(&stage)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errLate
	}
	return stage, err
}

// advance records that an order has reached a stage.
func (s *store) advance(ctx context.Context, id, stage int, token int64, worker string) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if rollback := tx.Rollback(); !errors.Is(rollback, sql.ErrTxDone) {
			err = errors.Join(err, rollback)
		}
	}()
	res, err := tx.ExecContext(ctx, `UPDATE orders SET stage = ?1, token = ?2 WHERE id = ?3 AND token <= ?2`, stage, token, id)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errLate, err)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO history (id, stage, token, worker) VALUES (?, ?, ?, ?)`, id, stage, token, worker); err != nil {
		return err
	}
	return tx.Commit()
}

// progress returns how many stages have been gone through in all.
func (s *store) progress(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM history`).Scan(&n)
	return n, err
}

// at returns an order that a worker is in the middle of: the last one whose stage it entered, if that was not the final one.
func (s *store) at(ctx context.Context, worker string) (id int, ok bool, err error) {
	var stage int
	err = s.db.QueryRowContext(ctx, `SELECT id, stage FROM history WHERE worker = ? ORDER BY n DESC LIMIT 1`, worker).Scan(&id, &stage)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return id, err == nil && stage < stages, err
}

// check reports errors in the orders.
func (s *store) check(ctx context.Context) error {
	var wrong []error
	for what, query := range map[string]string{
		"orders not finished": `SELECT count(*) FROM orders WHERE stage <> 3`,
		"stages lost":         `SELECT 3 * (SELECT count(*) FROM orders) - count(*) FROM (SELECT DISTINCT id, stage FROM history)`,
		"stages twice":        `SELECT count(*) FROM (SELECT 1 FROM history GROUP BY id, stage HAVING count(*) > 1)`,
		"stages out of order, or tokens that fall": `SELECT count(*) FROM (SELECT stage - lag(stage, 1, 0) OVER w AS step,
			token - lag(token, 1, 0) OVER w AS more FROM history WINDOW w AS (PARTITION BY id ORDER BY n)) WHERE step <> 1 OR more < 0`,
	} {
		var n int
		if err := s.db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return err
		}
		if n != 0 {
			wrong = append(wrong, fmt.Errorf("%d %s", n, what))
		}
	}
	return errors.Join(wrong...)
}
