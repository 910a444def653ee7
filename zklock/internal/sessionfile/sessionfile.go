package sessionfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// File is a session file that this process has locked. Its methods may be called concurrently.
type File struct {
	path string
	f    *os.File
	id   fileID

	// mu guards what follows, and is held as the file is written, so that the last record is the
	// last one written. Only calls that write wait for it.
	mu     sync.Mutex
	now    record
	left   []Key // of now.Keys: those of earlier processes
	closed bool
}

// Left is what a file said when it was opened.
type Left struct {
	Keys []Key // sessions of processes that have ended, which may be closed
	PID  int   // of the latest of these processes
	Why  error // why Keys is empty although the file has a record; nil if it has none
}

// Errors of Open.
var (
	// ErrRefused matches the error for a file, or a system, that can't serve.
	ErrRefused = errors.New("session file")

	errLocked = errors.New("another process has it")
	errMoved  = errors.New("it was removed or replaced as it was opened")
)

// retryPause is the time between two attempts to lock a file.
const retryPause = 20 * time.Millisecond

// Open opens the file at path, or makes it, and locks it. If another process has it, Open waits
// until that ends, up to patience, or until ctx ends. servers are those of the ensemble.
//
// A file that is not empty, and not a session file, is refused, and not changed; so is one on a
// file system whose locks are not known to hold for this machine alone, and one that another File
// of this process has. These errors match ErrRefused. The error for a file that another process has
// does not.
//
// ctx does not bound the calls of the file system itself: the disk has to answer.
func Open(
	ctx context.Context, path string, servers []string, patience time.Duration,
) (*File, Left, error) {
	boot, err := bootID()
	if err != nil {
		return nil, Left{}, refused(path, err)
	}
	mine := record{Ensemble: hashOf(servers), PID: os.Getpid()}
	mine.Boot = boot
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		f, left, err := try(path, mine)
		if !errors.Is(err, errLocked) && !errors.Is(err, errMoved) {
			return f, left, err
		}
		select {
		case <-time.After(retryPause):
		case <-late.C:
			return nil, Left{}, err
		case <-ctx.Done():
			return nil, Left{}, fmt.Errorf("%w: waiting for a %w", ctx.Err(), err)
		}
	}
}

// try is one attempt of Open. mine is this process's first record, but for the file's id.
func try(path string, mine record) (*File, Left, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Left{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	sf, left, err := begin(path, f, mine)
	if err != nil {
		_ = f.Close() // nothing was written that could be lost
		return nil, Left{}, err
	}
	return sf, left, nil
}

// begin locks f, reads what the processes before have left, and writes the first record of this
// one.
func begin(path string, f *os.File, mine record) (_ *File, left Left, err error) {
	id, err := identify(f)
	if err != nil {
		return nil, left, refused(path, err)
	}
	if !claim(id) {
		return nil, left, refused(path, errors.New("another Client of this process has it"))
	}
	defer func() {
		if err != nil {
			unclaim(id)
		}
	}()
	if err := lock(path, f, id); err != nil {
		return nil, left, err
	}
	mine.Device, mine.Inode = id.device, id.inode
	sf := &File{path: path, f: f, id: id, now: mine}
	left, err = sf.read()
	if err != nil {
		return nil, left, refused(path, err)
	}
	if err := f.Chmod(0o600); err != nil { // who can read it can close the sessions
		return nil, left, refused(path, err)
	}
	sf.left = slices.Clone(left.Keys) // the caller goes through his while we remove from ours
	sf.now.Keys = slices.Clone(left.Keys)
	if err := sf.writeLocked(); err != nil {
		return nil, left, err
	}
	return sf, left, nil
}

// lock locks f, and checks that path leads to it: the next process must find it there.
func lock(path string, f *os.File, id fileID) error {
	switch isFree, err := tryLock(f); {
	case err != nil:
		return refused(path, err)
	case !isFree:
		return fmt.Errorf("session file %q: %w", path, holderOf(f))
	}
	there, err := os.Stat(path)
	if err != nil || !isThat(there, id) {
		return fmt.Errorf("session file %q: %w", path, errMoved)
	}
	return nil
}

// holderOf returns errLocked with the process that has locked f, if f names it.
func holderOf(f *os.File) error {
	contents, err := readAll(f)
	if err == nil {
		if r, err := parse(contents); err == nil {
			return fmt.Errorf("%w: process %d, or a child of it", errLocked, r.PID)
		}
	}
	return errLocked
}

// read returns what the file says, whose lock we have. A process that wrote it has ended.
func (f *File) read() (left Left, err error) {
	contents, err := readAll(f.f)
	if err != nil || len(contents) == 0 {
		return left, err
	}
	was, err := parse(contents)
	switch {
	case errors.Is(err, errForeign):
		return left, err
	case err != nil:
		left.Why = err
	case len(was.Keys) == 0: // the process has closed its sessions
	case was.Boot != f.now.Boot:
		left.Why = errors.New("it was written before the system started, or on another one")
	case was.file != f.now.file:
		left.Why = errors.New("it is a copy of another file")
	case was.Ensemble != f.now.Ensemble:
		left.Why = errors.New("it was written for other servers")
	default:
		left.Keys, left.PID = was.Keys, was.PID
	}
	return left, nil
}

// readAll returns the contents of f, as far as they can be a session file's.
func readAll(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, pageSize+1))
}

// Add notes a session of this process. After an error the file may be damaged: then nobody closes
// the sessions that it has named.
func (f *File) Add(k Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	if len(f.now.Keys) == maxKeys {
		f.now.Keys = slices.Delete(f.now.Keys, 0, 1)
	}
	f.now.Keys = append(f.now.Keys, k)
	return f.writeLocked()
}

// Remove notes that a session is closed.
func (f *File) Remove(id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	isIt := func(k Key) bool { return k.ID == id }
	f.left = slices.DeleteFunc(f.left, isIt)
	if f.closed || !slices.ContainsFunc(f.now.Keys, isIt) {
		return nil
	}
	f.now.Keys = slices.DeleteFunc(f.now.Keys, isIt)
	return f.writeLocked()
}

func (f *File) writeLocked() error {
	page, err := f.now.page()
	if err == nil {
		_, err = f.f.WriteAt(page, 0)
	}
	if err == nil {
		err = f.f.Truncate(pageSize)
	}
	if err != nil {
		return refused(f.path, err)
	}
	return nil
}

// Descriptor returns the open file, for children that must count as this process. The caller must
// not close it.
func (f *File) Descriptor() *os.File { return f.f }

// Close lets other processes have the file, once the children that have its descriptor have ended.
// It leaves no session of this process in it, since this process goes on; those of earlier
// processes that are not known to be closed stay. It may be called again.
//
// If the file can't be changed, and so still names this process's sessions, it stays locked until
// the process ends.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.now.Keys = f.left
	err := f.writeLocked()
	if err != nil {
		if emptyErr := f.f.Truncate(0); emptyErr != nil {
			return errors.Join(err, emptyErr)
		}
	}
	unclaim(f.id)
	return errors.Join(err, f.f.Close())
}

func refused(path string, why error) error {
	return fmt.Errorf("%w %q: %w", ErrRefused, path, why)
}

// fileID tells an open file from all others of the system.
type fileID struct{ device, inode uint64 }

// claims are the files that this process has. A lock excludes other processes' descriptors and our
// own alike, but a second Client of one process would wait for the first one for nothing.
var claims = struct {
	mu  sync.Mutex
	has map[fileID]bool
}{has: map[fileID]bool{}}

func claim(id fileID) bool {
	claims.mu.Lock()
	defer claims.mu.Unlock()
	if claims.has[id] {
		return false
	}
	claims.has[id] = true
	return true
}

func unclaim(id fileID) {
	claims.mu.Lock()
	defer claims.mu.Unlock()
	delete(claims.has, id)
}
