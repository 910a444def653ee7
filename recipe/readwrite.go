package recipe

// A reader of a read/write lock waits for the writers before it, and not for other readers. "__READ__" is Curator's label too,
// "__rlock__" Kazoo's.
var reader = kind{
	name:     "read lock",
	labels:   []string{"__READ__", "__rlock__"},
	waitsFor: []Kind{Write},
	holds:    first,
}

// A writer waits for all before it. It can be overtaken by one reader: Curator gives the reader inside its own write lock the
// writer's number.
var writer = kind{
	name:      "write lock",
	labels:    []string{"__WRIT__"},
	waitsFor:  []Kind{Read, Write},
	holds:     first,
	alone:     true,
	overtaken: true,
}

// Inside returns, of a line in order of arrival, the first writer's index and those of readers that may be inside its lock. Each
// of them holds too if it is of the writer's session.
func Inside(line []string) (first int, readers []int) {
	var w Name
	first = -1
	all := 0 // readers so far
	for i, name := range line {
		switch n, _ := Parse(name); {
		case n.Kind == Write && first < 0:
			first, w = i, n
		case n.Kind == Read:
			if first >= 0 && n.Number == w.Number && all == len(readers) {
				readers = append(readers, i)
			}
			all++
		}
	}
	return first, readers
}
