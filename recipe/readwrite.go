package recipe

// A reader of a read/write lock waits for the writers before it, and not for other readers.
// "__READ__" is Curator's label too, "__rlock__" is Kazoo's.
var reader = kind{
	name:     "read lock",
	labels:   []string{"__READ__", "__rlock__"},
	waitsFor: []Kind{Write},
	holds:    noneInWay,
}

// A writer waits for all before it. One reader can overtake it: Curator gives the reader inside its
// own write lock the writer's number.
var writer = kind{
	name:      "write lock",
	labels:    []string{"__WRIT__"},
	waitsFor:  []Kind{Read, Write},
	holds:     noneInWay,
	alone:     true,
	overtaken: true,
}

// Inside returns the index of the first writer of line, or -1 if there is none, and the indexes of
// the readers that may be inside that writer's lock. line is in order of arrival.
//
// A program may take the read lock while it holds the write lock. Curator then gives its reader the
// writer's number, and the reader holds too, although the writer is before it. So the result has
// the readers behind the writer that have its number. Each of them is inside if the writer's
// session owns it, which the caller has to find out; otherwise another client has made up its name.
//
// A reader with another number that is before the writer keeps it from holding, so nobody is inside
// then. And those inside are next to the writer: a reader behind one with another number is not
// inside.
//
// Near the end of the directory's counter, line is in the order of czxids, and Curator's contenders
// go by their numbers all the same. So a reader that waits for the writer may stand before it, and
// the result then has no readers, although some may be inside.
func Inside(line []string) (first int, readers []int) {
	first = -1
	var writer Name
	outsideBefore := false // a reader that is not inside came before
	for i, name := range line {
		n, _ := Parse(name)
		switch {
		case n.Kind == Write && first < 0:
			first, writer = i, n
		case n.Kind != Read:
		case first >= 0 && n.Number == writer.Number && !outsideBefore:
			readers = append(readers, i)
		default:
			outsideBefore = true
		}
	}
	return first, readers
}
