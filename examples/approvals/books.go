package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
)

// books is the record of a run: the answers that clients got, the rows of accepted updates, and the counters.
type books struct {
	lock     bool
	accepted int   // rows in the table
	counters int64 // sum over all keys
	busy     int
	refused  int
	unknown  int
	already  int
	stale    int   // writes that the rows refused
	lost     int64 // updates that ended with the lock, before their write
	wrong    []string
}

// audit compares them.
func audit(ctx context.Context, st *store, l *load, lock bool) (books, error) {
	rows, err := st.rows(ctx)
	if err != nil {
		return books{}, err
	}
	entries, err := st.entries(ctx)
	if err != nil {
		return books{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := books{lock: lock, accepted: len(entries), busy: l.busy, refused: l.refused, unknown: l.unknown, already: l.already}
	for _, r := range rows {
		b.counters += r.Updates
	}

	// The answers must match the table: every update once, under the number that its client got.
	if len(l.accepted) != l.updates {
		b.fault("%d updates were asked for, and %d answered", l.updates, len(l.accepted))
	}
	missing := maps.Clone(l.accepted)
	for _, e := range entries {
		told, found := missing[e.ID]
		if !found {
			b.fault("%s is in the table, and no client was told so", e.ID)
		} else if told.N != e.N {
			b.fault("%s is number %d of %s, and its client was told %d", e.ID, e.N, e.Key, told.N)
		}
		delete(missing, e.ID)
	}
	for id := range missing {
		b.fault("the client of %s was told that it was accepted, and it is not in the table", id)
	}
	if lock {
		b.auditKeys(rows, entries)
	}
	return b, nil
}

// auditKeys checks that each key's updates are numbered without a gap or a double, in the order of their tokens, and
// that the counter has the last number.
func (b *books) auditKeys(rows map[string]row, entries []entry) {
	last := map[string]entry{}
	for _, e := range entries {
		before := last[e.Key]
		if e.N != before.N+1 {
			b.fault("%s: number %d is followed by number %d", e.Key, before.N, e.N)
		}
		if e.Token <= before.Token {
			b.fault("%s: number %d has token %d, and number %d has %d", e.Key, before.N, before.Token, e.N, e.Token)
		}
		last[e.Key] = e
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if r := rows[key]; r.Updates != last[key].N {
			b.fault("%s: the counter says %d, and %d updates were accepted", key, r.Updates, last[key].N)
		}
	}
}

func (b *books) fault(format string, args ...any) {
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// balanced reports whether everything adds up. Without the lock nobody expects the counters to.
func (b *books) balanced() bool {
	return len(b.wrong) == 0 && (!b.lock || b.counters == int64(b.accepted))
}

// table prints both runs side by side.
func table(out io.Writer, with, without books) {
	line := func(name string, a, b any) { fmt.Fprintf(out, "%-52s %10v %10v\n", name, a, b) }
	const none = "–"
	line("", "lock", "no lock")
	line("updates accepted, each once", with.accepted, without.accepted)
	line("updates that the counters say", with.counters, without.counters)
	line("lost", int64(with.accepted)-with.counters, int64(without.accepted)-without.counters)
	line("late writes that the token refused", with.stale, none)
	line("updates that ended with their lock, before a write", with.lost, none)
	line("answers “busy”, asked again", with.busy, without.busy)
	line("answers “not done”, asked again", with.refused, without.refused)
	line("answers that never came, asked again", with.unknown, without.unknown)
	line("… of which the update had been accepted", with.already, without.already)
	for _, b := range []books{with, without} {
		for i, w := range b.wrong {
			if i == 10 {
				fmt.Fprintf(out, "… and %d more\n", len(b.wrong)-i)
				break
			}
			fmt.Fprintln(out, "WRONG:", w)
		}
	}
}
