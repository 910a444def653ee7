package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stores runs a test in SQLite, and in PostgreSQL where there is one.
func stores(t *testing.T, test func(t *testing.T, st *store)) {
	for name, database := range map[string]func(t *testing.T) string{
		"SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "approvals.db") },
		"PostgreSQL": postgres,
	} {
		t.Run(name, func(t *testing.T) {
			st, err := openStore(database(t), "test")
			require.NoError(t, err)
			defer func() { require.NoError(t, st.close()) }()
			require.NoError(t, st.create(t.Context()))
			defer func() { require.NoError(t, st.drop(t.Context())) }()
			test(t, st)
		})
	}
}

func claims(t *testing.T, st *store, u update, n int64, already bool) {
	t.Helper()
	gotN, gotAlready, err := st.claim(t.Context(), u)
	require.NoError(t, err)
	require.Equal(t, n, gotN)
	require.Equal(t, already, gotAlready)
}

func TestAnUpdateIsCountedAndRecordedOnce(t *testing.T) {
	stores(t, func(t *testing.T, st *store) {
		first := update{ID: "a", Key: "k", Approver: "ann", Token: 5, Instance: "one"}
		claims(t, st, first, 0, false)
		require.NoError(t, st.apply(t.Context(), first, 1))
		again := first
		again.Token, again.Instance = 7, "two" // its client got no answer and sends the request to another instance
		claims(t, st, again, 1, true)
		claims(t, st, update{ID: "b", Key: "k", Token: 7}, 1, false)
		require.Error(t, st.apply(t.Context(), again, 2), "an id is noted once")

		r, err := st.row(t.Context(), "k")
		require.NoError(t, err)
		assert.EqualValues(t, 1, r.Updates, "what was not noted was not counted")
		entries, err := st.entries(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []entry{{ID: "a", Key: "k", N: 1, Token: 5}}, entries)
	})
}

// The holder with token 5 has read and is stopped; the one with token 7 has the lock now. Whether the latter has only
// read or written too, the late write does nothing; nor may the late holder read again.
func TestAHoldersWriteIsRefusedAsSoonAsALaterHolderHasRead(t *testing.T) {
	stores(t, func(t *testing.T, st *store) {
		late := update{ID: "late", Key: "k", Token: 5, Instance: "one"}
		newer := update{ID: "newer", Key: "k", Token: 7, Instance: "two"}
		claims(t, st, late, 0, false)
		claims(t, st, newer, 0, false)
		refused := func() {
			t.Helper()
			require.ErrorIs(t, st.apply(t.Context(), late, 1), errStale)
			_, _, err := st.claim(t.Context(), late)
			require.ErrorIs(t, err, errStale)
		}
		refused()
		require.NoError(t, st.apply(t.Context(), newer, 1))
		refused()
		r, err := st.row(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, row{Updates: 1, Token: 7, Instance: "two"}, r)
		claims(t, st, update{ID: "late", Key: "k", Token: 9}, 1, false) // it was never accepted, and can be requested again
	})
}

// The audit finds falsified books.
func TestTheAuditReportsInconsistentData(t *testing.T) {
	for name, c := range map[string]struct {
		change, says string
	}{
		"a lost update":       {`UPDATE SETTINGS SET updates = 1`, "the counter says 1, and 2 updates were accepted"},
		"one too many":        {`UPDATE SETTINGS SET updates = 3`, "the counter says 3"},
		"a number twice":      {`UPDATE ACCEPTED SET n = 1`, "number 1 is followed by number 1"},
		"an unknown update":   {`INSERT INTO ACCEPTED VALUES ('c', 'k', 3, 9, 'x')`, "c is in the table, and no client was told so"},
		"a forgotten update":  {`DELETE FROM ACCEPTED WHERE id = 'b'`, "the client of b was told that it was accepted"},
		"an older token last": {`UPDATE ACCEPTED SET token = 4 WHERE id = 'b'`, "number 2 has 4"},
		"nothing":             {`DELETE FROM ACCEPTED WHERE id = 'none'`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := openStore(filepath.Join(t.TempDir(), "approvals.db"), "test")
			require.NoError(t, err)
			defer func() { require.NoError(t, st.close()) }()
			require.NoError(t, st.create(t.Context()))
			l := newLoad("", "", config{updates: 2, keys: 1})
			for i, id := range []string{"a", "b"} {
				u := update{ID: id, Key: "k", Token: int64(5 + 2*i)}
				claims(t, st, u, int64(i), false)
				require.NoError(t, st.apply(t.Context(), u, int64(i+1)))
				l.note(id, reply{answer: answer{N: int64(i + 1)}})
			}
			_, err = st.db.ExecContext(t.Context(), st.text(c.change))
			require.NoError(t, err)
			b, err := audit(t.Context(), st, l, true)
			require.NoError(t, err)
			if c.says == "" {
				assert.True(t, b.balanced(), b.wrong)
				return
			}
			assert.False(t, b.balanced())
			assert.Contains(t, strings.Join(b.wrong, "\n"), c.says)
		})
	}
}
