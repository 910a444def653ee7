package recipe

// Kind is what a contender wants. It determines which contenders are in its way.
type Kind int

const (
	// None is the kind of a name that is no contender's.
	None Kind = iota
	// Lock is a mutex's contender, or a candidate of an election: every contender before it is in its way.
	Lock
	// Read is a reader of a read/write lock: writers before it are in its way.
	Read
	// Write is a writer of a read/write lock: readers and writers before it are in its way.
	Write
	// Permits is a semaphore's contender: the permits of those before it count. See tally in order.go.
	Permits

	kinds // how many there are
)

var words = [kinds]struct{ kind, label string }{
	None:    {"nothing", ""},
	Lock:    {"mutex", "-lock-"},
	Read:    {"read lock", "-__READ__"},
	Write:   {"write lock", "-__WRIT__"},
	Permits: {"semaphore", "-lease-"},
}

// String returns the kind in words.
func (k Kind) String() string {
	if k < 0 || k >= kinds {
		k = None
	}
	return words[k].kind
}

// label is the text between the id and the number in the names that we make.
func (k Kind) label() string { return words[k].label }

// blocks reports whether a contender of kind ahead that is before one of kind k is in its way.
func (k Kind) blocks(ahead Kind) bool { return k.shares(ahead) && (k != Read || ahead != Read) }

// shares reports whether contenders of the two kinds may share one directory.
func (k Kind) shares(other Kind) bool {
	rw := func(k Kind) bool { return k == Read || k == Write }
	return k == other || rw(k) && rw(other)
}

// alone reports whether a contender of kind k holds only when no other contender is before it: none holds beside it.
func (k Kind) alone() bool { return k == Lock || k == Write }

// wayOnlyShrinks reports whether the set of contenders in the way of one of kind k can only shrink, so that it holds without another
// list when the only one of them has gone. In the way of a writer new ones may appear: a writer that downgrades leaves a reader
// with its number in its place (see Downgrade), and a reader under a writer's lock of Curator's has the writer's number.
func (k Kind) wayOnlyShrinks() bool { return k != Write }
