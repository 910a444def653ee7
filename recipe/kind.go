package recipe

import "slices"

// Kind is what a contender wants. It determines which contenders are in its way.
type Kind int

const (
	None    Kind = iota // of a name that is no contender's
	Lock                // a mutex's contender, or a candidate of an election
	Read                // a reader of a read/write lock
	Write               // a writer of a read/write lock
	Permits             // a semaphore's contender

	numKinds // how many there are
)

// kinds has all that distinguishes one kind from another, each in the file of its lock. Package queue asks for these facts, and
// compares no kinds.
var kinds = [numKinds]kind{None: {name: "nothing"}, Lock: mutex, Read: reader, Write: writer, Permits: semaphore}

// kind is what the library knows of a kind of contender.
type kind struct {
	name string // in words

	// labels are what stands before the number in a name, or of a sized kind before the permits. A name that we make has the
	// first one, after an id and a hyphen. The others are other clients'. None may end in another kind's: a name is read from
	// its end.
	labels []string

	// waitsFor are the kinds that are in its way when they are before it.
	waitsFor []Kind

	// holds reports whether a contender holds if those counted are all that came before it.
	holds func(k *kind, before *tally, own Name, size int) bool

	// alone: nobody of another session holds beside it. Whoever has held after queueing can therefore leave by a release mark,
	// which tells the next in line that its turn has come. A sized kind leaves it false: those who wait for it look anyway.
	alone bool

	// overtaken: contenders may come into its way after it has entered. Then it holds without a list only by a release mark.
	overtaken bool

	// sized: several hold together, as far as their permits go. A name has the permits that are wanted (1 if there is no
	// choice), the directory's data have the size, and a contender has to say when it begins to hold, since its znode stays.
	// It waits for every kind of its directory: who waits depends on the whole line.
	sized bool
}

// first reports that nobody is in the way.
func first(k *kind, before *tally, _ Name, _ int) bool { return before.inWay(k) == 0 }

func (k Kind) facts() *kind {
	if k < 0 || k >= numKinds {
		k = None
	}
	return &kinds[k]
}

// String returns the kind in words.
func (k Kind) String() string { return k.facts().name }

// Shares reports whether contenders of the two kinds may share one directory.
func (k Kind) Shares(other Kind) bool { return k == other || k.WaitsFor(other) || other.WaitsFor(k) }

// WaitsFor reports whether a contender of kind before is in the way of one of kind k that comes later.
func (k Kind) WaitsFor(before Kind) bool { return slices.Contains(k.facts().waitsFor, before) }

// Alone reports whether nobody of another session holds together with a holder of kind k. Such a holder may leave by a
// release mark, which tells the next in line that its turn has come.
func (k Kind) Alone() bool { return k.facts().alone }

// Overtaken reports whether contenders may come into the way of one of kind k after it has entered. If not, it holds without
// another list once the last of those in its way has gone.
func (k Kind) Overtaken() bool { return k.facts().overtaken }

// Sized reports whether several contenders of kind k hold together, as far as their permits go.
func (k Kind) Sized() bool { return k.facts().sized }
