package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// journal is a file that the workers append to, one line each time, and that the show checks at its
// end: what was done, by which worker, and under which token.
type journal string

// entry is a line of a journal.
type entry struct {
	Item  int
	Token int64
	Host  string
	What  string
}

// append writes an entry at the end, whole or not at all.
func (j journal) append(e entry) error {
	f, err := os.OpenFile(string(j), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %d %s %s\n", e.Item, e.Token, e.Host, e.What)
	return errors.Join(err, f.Close())
}

// read returns the entries; none when there is no file yet.
func (j journal) read() (all []entry, err error) {
	f, err := os.Open(string(j))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		var e entry
		if _, err := fmt.Sscan(in.Text(), &e.Item, &e.Token, &e.Host, &e.What); err != nil {
			return nil, fmt.Errorf("journal: %q: %w", in.Text(), err)
		}
		all = append(all, e)
	}
	return all, in.Err()
}

// last returns the last entry of a kind; false: there is none.
func (j journal) last(what string) (entry, bool, error) {
	all, err := j.read()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].What == what {
			return all[i], true, err
		}
	}
	return entry{}, false, err
}

// check reports what is wrong with the entries of a kind: items must be there from first on without
// a gap, each once and in order, under tokens that do not fall.
func (j journal) check(what string, first int) (items int, err error) {
	all, err := j.read()
	if err != nil {
		return 0, err
	}
	var wrong []string
	var token int64
	for _, e := range all {
		if e.What != what {
			continue
		}
		switch want := first + items; {
		case e.Item < want:
			wrong = append(wrong, fmt.Sprintf("%d by %s: twice", e.Item, e.Host))
			continue
		case e.Item > want:
			wrong = append(wrong, fmt.Sprintf("%d to %d: lost", want, e.Item-1))
		}
		if e.Token < token {
			wrong = append(wrong,
				fmt.Sprintf("%d by %s: token %d after %d", e.Item, e.Host, e.Token, token))
		}
		token, items = e.Token, e.Item-first+1
	}
	if len(wrong) > 0 {
		return items, errors.New(strings.Join(wrong, "; "))
	}
	return items, nil
}
