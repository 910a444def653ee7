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

// Inside returns two things about a line in order of arrival: the index of its first writer, or -1,
// and the indexes of the readers that may be inside that writer's lock. Such a reader holds too if
// it is of the writer's session. It has the writer's number, and every reader before it in line is
// inside too.
func Inside(line []string) (first int, readers []int) {
	first = -1
	var writer Name
	allInside := true // every reader so far
	for i, name := range line {
		n, _ := Parse(name)
		switch {
		case n.Kind == Write && first < 0:
			first, writer = i, n
		case n.Kind != Read:
		case first >= 0 && n.Number == writer.Number && allInside:
			readers = append(readers, i)
		default:
			allInside = false
		}
	}
	return first, readers
}
