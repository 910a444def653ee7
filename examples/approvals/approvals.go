package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/zklock/locker/zklock"
)

// schema is what a migration makes. The column of the token must not be nullable: NULL <= 1 is not
// true, so that no statement below would ever find its row.
const schema = `
CREATE TABLE documents (
	id        BIGINT PRIMARY KEY,
	approvals BIGINT NOT NULL DEFAULT 0, -- how many; computed from what was read, and so easily lost
	token     BIGINT NOT NULL DEFAULT 0  -- of the latest holder of the document's lock
);
CREATE TABLE approvals (
	document BIGINT NOT NULL,
	id       TEXT NOT NULL, -- the caller's name for it: one that gets no answer asks again, under the same name
	PRIMARY KEY (document, id)
)`

// errOvertaken says that nothing was written.
var errOvertaken = errors.New(
	"not written: a newer holder of the lock has been here, or there is no such row")

// create makes the row of a document, which must be there before it is updated. Any number of
// callers may do it at once.
func create(ctx context.Context, db *sql.DB, document int64) error {
	_, err := db.ExecContext(ctx,
		`INSERT INTO documents (id) VALUES ($1) ON CONFLICT (id) DO NOTHING`, document)
	return err
}

// approve records an approval of a document. In the whole fleet one instance at a time does so for
// a document.
func approve(
	ctx context.Context, client *zklock.Client, db *sql.DB, document int64, id string,
) error {
	path := zklock.KeyPath("/locks/document", strconv.FormatInt(document, 10))
	return client.Mutex(path, zklock.WithContainer()).Do(ctx, func(ctx context.Context) error {
		// this ctx ends when the lock is lost
		hold, _ := zklock.HoldFrom(ctx, path)
		return update(ctx, db, int64(hold.Token()), document, id)
	})
}

// update reads, takes a moment, and writes. Of two at once for one document, one is lost.
func update(ctx context.Context, db *sql.DB, token, document int64, id string) error {
	n, err := read(ctx, db, token, document)
	if err != nil {
		return err
	}
	// Here a service asks another one, or sends a mail: no transaction should be open meanwhile.
	select {
	case <-time.After(2 * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return write(ctx, db, token, document, id, n+1)
}

// read returns how many approvals a document has, and leaves the token in its row: no older holder
// writes from then on. Without that, one that was stopped could write between this read and its
// write.
func read(ctx context.Context, db *sql.DB, token, document int64) (n int64, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE documents SET token = $2 WHERE id = $1 AND token <= $2 RETURNING approvals`,
		document, token).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errOvertaken
	}
	return n, err
}

// write makes approval id the document's nth. It changes both tables or none.
func write(ctx context.Context, db *sql.DB, token, document int64, id string, n int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO approvals (document, id) VALUES ($1, $2)`,
		document, id); err != nil {
		return fmt.Errorf("approval %s: %w", id, err)
	}
	res, err := tx.ExecContext(ctx,
		`UPDATE documents SET approvals = $3, token = $2 WHERE id = $1 AND token <= $2`,
		document, token, n)
	if err != nil {
		return err
	}
	switch rows, err := res.RowsAffected(); {
	case err != nil:
		return err
	case rows == 0: // a write that the token refuses is no error: it changes no row
		return errOvertaken
	}
	return tx.Commit()
}
