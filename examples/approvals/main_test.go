package main

import (
	"database/sql"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zktest"
)

// database is the URL of the database of all tests: APPROVALS_DB, or a server of their own.
var database = os.Getenv("APPROVALS_DB")

func TestMain(m *testing.M) {
	if database != "" {
		os.Exit(m.Run())
	}
	url, stop, err := startPostgres()
	if err != nil {
		log.Fatal(err)
	}
	database = url
	code := m.Run()
	if err := stop(); err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// connect returns a connection whose tables are temporary: they are its own, and go with it.
func connect(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", database)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	change(t, db, `SET search_path TO pg_temp`)
	return db
}

// change carries out a statement and returns how many rows it has changed. Of several statements,
// the last one counts.
func change(t *testing.T, db *sql.DB, statement string, args ...any) int64 {
	t.Helper()
	res, err := db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err, statement)
	rows, err := res.RowsAffected()
	require.NoError(t, err)
	return rows
}

// number returns the one number that a query finds.
func number(t *testing.T, db *sql.DB, query string) (n int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n), query)
	return n
}

func TestUpdatesAreLostOnlyWithoutTheLock(t *testing.T) {
	self := filepath.Join(t.TempDir(), "approvals")
	built, err := exec.Command("go", "build", "-buildvcs=false", "-o", self, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)
	// within five minutes
	out, err := exec.CommandContext(t.Context(), self, "-db", database).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `^   with the lock: 400 updates, the document says 400, 0 lost
without the lock: 400 updates, the document says \d+, [1-9]\d* lost\n$`, string(out))
	require.Zero(t,
		number(t, connect(t),
			`SELECT count(*) FROM pg_tables WHERE tablename IN ('documents', 'approvals')`))
}

func TestAnUpdateWithAnOlderTokenIsReportedAndChangesNeitherTable(t *testing.T) {
	ctx, db := t.Context(), connect(t)
	change(t, db, schema)
	require.NoError(t, create(ctx, db, 1))
	require.NoError(t, create(ctx, db, 1), "two holders may create the same row")
	require.NoError(t, update(ctx, db, 5, 1, "a"))
	require.NoError(t, update(ctx, db, 5, 1, "b"), "the same holder goes on")

	require.ErrorIs(t, update(ctx, db, 4, 1, "c"), errOvertaken)
	require.ErrorIs(t, write(ctx, db, 4, 1, "c", 7), errOvertaken)
	require.Error(t, write(ctx, db, 6, 1, "a", 7), "made already")
	require.EqualValues(t, 2, number(t, db, `SELECT approvals FROM documents WHERE id = 1`))
	require.EqualValues(t, 5, number(t, db, `SELECT token FROM documents WHERE id = 1`))
	require.EqualValues(t, 2, number(t, db, `SELECT count(*) FROM approvals`))

	require.NoError(t, update(ctx, db, 6, 1, "c"))
	require.EqualValues(t, 3, number(t, db, `SELECT approvals FROM documents WHERE id = 1`))
}

func TestAHolderWhoseLockIsLostBetweenReadAndWriteIsRefusedOnceTheNextOneHasRead(t *testing.T) {
	ctx, db := t.Context(), connect(t)
	change(t, db, schema)
	require.NoError(t, create(ctx, db, 1))
	client, err := zklock.Dial(ctx, zktest.Run(t).Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	lock := client.Mutex("/locks/document/1")

	_, late, err := lock.Lock(ctx)
	require.NoError(t, err)
	_, err = read(ctx, db, int64(late.Token()), 1)
	require.NoError(t, err)
	require.NoError(t, admin.Evict(ctx, client, "/locks/document/1", late.Token()))
	_, next, err := lock.Lock(ctx)
	require.NoError(t, err)
	_, err = read(ctx, db, int64(next.Token()), 1)
	require.NoError(t, err)
	require.ErrorIs(t, write(ctx, db, int64(late.Token()), 1, "late", 1), errOvertaken)
	require.NoError(t, write(ctx, db, int64(next.Token()), 1, "next", 1))
	require.NoError(t, next.Unlock())
	require.NoError(t, approve(ctx, client, db, 1, "after"))
	require.EqualValues(t, 2, number(t, db, `SELECT count(*) FROM approvals`))
}

// statements returns what a regular expression finds in the pages for users.
func statements(t *testing.T, wanted string) (all []string) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*/*.md")
	require.NoError(t, err)
	for _, name := range append(pages, "../../README.md", "../../docs/start.md",
		"../../zklock/lockhttp/doc.go") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(wanted).FindAllSubmatch(text, -1) {
			all = append(all, string(found[1]))
		}
	}
	return all
}

// updating finds the UPDATEs, in Go and in SQL.
const updating = "(?m)(?:`|^)(UPDATE [^`;]+)"

// arguments returns those of an UPDATE of the pages: the last one is the token.
func arguments(statement string, token int64) []any {
	if strings.Contains(statement, "$2") {
		return []any{"1", token}
	}
	return []any{token}
}

func TestTheStatementsOfThePagesWriteForANewerHolderAndForNoOlderOne(t *testing.T) {
	db := connect(t)
	change(t, db, `CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT); INSERT INTO orders VALUES (4710);
		CREATE TABLE reports (id BIGINT PRIMARY KEY, body TEXT); INSERT INTO reports VALUES (6), (7);
		CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT); INSERT INTO accounts VALUES (16, 0), (17, 0)`)
	page := statements(t, "(?s)```sql\n(.*?)```")
	require.Len(t, page, 1)
	alter, rest, _ := strings.Cut(page[0], ";")
	insert, _, _ := strings.Cut(rest, ";")
	change(t, db, alter)
	require.EqualValues(t, 1, change(t, db, insert))
	require.Zero(t, change(t, db, insert), "the row is there, and stays")
	change(t, db,
		strings.Replace(alter, "orders", "reports", 1)+";"+
			strings.Replace(alter, "orders", "accounts", 1))
	for _, table := range []string{"orders", "reports", "accounts"} {
		require.EqualValues(t, 2, change(t, db, `UPDATE `+table+` SET token = 5 WHERE token <= 5`),
			"the rows of before, too")
	}
	writes := statements(t, updating)
	require.Len(t, writes, 8)
	for _, statement := range writes {
		require.Zero(t, change(t, db, statement, arguments(statement, 4)...), statement)
		require.EqualValues(t, 1, change(t, db, statement, arguments(statement, 6)...), statement)
		require.Zero(t, change(t, db, statement, arguments(statement, 5)...), statement)
	}
}

func TestANullableTokenLetsNobodyWriteAndLooksLikeANewerHolder(t *testing.T) {
	ctx, db := t.Context(), connect(t)
	nullable := strings.ReplaceAll(schema, "token     BIGINT NOT NULL DEFAULT 0", "token BIGINT")
	require.NotEqual(t, schema, nullable)
	change(t, db,
		nullable+
			`; CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT, token BIGINT); INSERT INTO orders (id) VALUES (4711)`)
	require.NoError(t, create(ctx, db, 1))
	orders := statements(t, strings.Replace(updating, "UPDATE", "UPDATE orders", 1))
	require.Len(t, orders, 5)
	for _, token := range []int64{0, 1, math.MaxInt64} {
		require.ErrorIs(t, update(ctx, db, token, 1, "a"), errOvertaken)
		for _, statement := range orders {
			require.Zero(t, change(t, db, statement, arguments(statement, token)...), statement)
		}
	}
}
