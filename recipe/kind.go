package recipe

import "slices"

// Kind is what a contender wants. It determines which contenders are in its way.
type Kind int

const (
	None    Kind = iota // of a name that is not a contender's
	Lock                // a mutex's contender, or a candidate of an election
	Read                // a reader of a read/write lock
	Write               // a writer of a read/write lock
	Permits             // a semaphore's contender

	numKinds // how many kinds there are
)

// kinds has everything that distinguishes one kind from another. Each entry stands in the file of
// its lock. Package queue asks for these facts, and compares no kinds.
var kinds = [numKinds]kind{
	None:    {name: "nothing"},
	Lock:    mutex,
	Read:    reader,
	Write:   writer,
	Permits: semaphore,
}

// kind is what the library knows about a kind of contender.
type kind struct {
	name string // in words

	// labels are the texts that stand in a name before the number or, of a sized kind, before the
	// permits. A name that we make has the first one, after an id and a hyphen. The others are
	// those of other clients. No label may end in another kind's: a name is read from its end.
	labels []string

	// waitsFor are the kinds that are in the way of this one when they are before it.
	waitsFor []Kind

	// holds reports whether a contender holds if those counted are all that came before it.
	holds func(k *kind, before tally, own Name, size int) bool

	// alone says that no contender of another session holds beside this one. So a holder that had
	// to wait can leave by a release mark, which tells the next in line that its turn has come. It
	// is false for a sized kind, whose waiters list in any case.
	alone bool

	// overtaken says that contenders may come into its way after it has entered. Then it holds
	// without a list only by a release mark.
	overtaken bool

	// sized says that several contenders hold together, as far as their permits go.
	//   - A name has the permits that are wanted, or 1 if there is no choice.
	//   - The directory's data have the size.
	//   - A contender has to announce that it holds, because its znode stays.
	//   - Its waitsFor must have every kind that Shares allows in its directory, because waitersIn
	//     counts the whole line.
	sized bool
}

// noneInWay reports whether no contender is in the way. It is the rule of all kinds but the sized
// ones.
func noneInWay(k *kind, before tally, _ Name, _ int) bool { return before.inWay(k) == 0 }

func (k Kind) facts() *kind {
	if k < 0 || k >= numKinds {
		k = None
	}
	return &kinds[k]
}

// String returns the kind in words.
func (k Kind) String() string { return k.facts().name }

// Shares reports whether contenders of the two kinds may share one directory.
func (k Kind) Shares(other Kind) bool {
	return k == other || k.WaitsFor(other) || other.WaitsFor(k)
}

// WaitsFor reports whether a contender of kind before is in the way of one of kind k that comes
// later.
func (k Kind) WaitsFor(before Kind) bool { return slices.Contains(k.facts().waitsFor, before) }

// Alone reports whether no contender of another session holds together with a holder of kind k.
// Such a holder may leave by a release mark, which tells the next in line that its turn has come.
func (k Kind) Alone() bool { return k.facts().alone }

// Overtaken reports whether contenders may come into the way of one of kind k after it has entered.
// If not, it holds without another list once the last of those in its way has gone.
func (k Kind) Overtaken() bool { return k.facts().overtaken }

// Sized reports whether several contenders of kind k hold together, as far as their permits go.
func (k Kind) Sized() bool { return k.facts().sized }
