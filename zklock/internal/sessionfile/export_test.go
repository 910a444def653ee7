package sessionfile

import (
	"errors"
	"os"
)

const MaxKeys = maxKeys

// Crash does what the system does when the process has ended.
func (f *File) Crash() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	unclaim(f.id)
	return f.f.Close()
}

// WriteAsOfBoot writes the record that f would have, had the system started with that boot id.
func (f *File) WriteAsOfBoot(boot string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Boot = boot
	return f.writeLocked()
}

// Parse parses the contents of a file, and returns the keys.
func Parse(contents []byte) ([]Key, error) {
	r, err := parse(contents)
	return r.Keys, err
}

// MakeReadOnly makes every later write of f fail. mend does what the end of the process does.
func (f *File) MakeReadOnly() (mend func() error, err error) {
	readOnly, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	writable := f.f
	f.f = readOnly
	return func() error {
		unclaim(f.id)
		return errors.Join(readOnly.Close(), writable.Close())
	}, nil
}
