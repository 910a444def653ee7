package main

// steps are those of a client, in the order of queue.pml. Each reports whether its guard holds.
var steps = []func(w *walk) bool{
	begin, giveUp, unlock, answered, list, watch, hear, find, expired,
	commitCreate, commitDelete, commitMark, commitLate, end,
	disconnect, advance, reconnect, lose, killSession, removeZnode,
}

func begin(w *walk) bool {
	c := w.c
	if !w.at(idle) {
		return false
	}
	keep := w.old[c]
	if w.late[c] > 0 {
		keep |= bit(w.late[c] - 1)
	}
	for i := range w.state.n + 1 {
		keep |= w.tree[i]
	}
	for i := range w.settings.n {
		if w.st[i] == watching || w.st[i] == waiting {
			keep |= bit(w.pred[i])
		}
	}
	for i := range w.slots {
		id := uint8(c*w.slots + i)
		if keep&bit(id) != 0 {
			continue
		}
		w.me[c], w.st[c], w.seen[c], w.pend[c] = id, creating, w.state.n, create
		w.cur[c] |= bit(id)
		if w.state.cut[c] {
			w.st[c], w.pend[c] = finding, 0
		}
		break
	}
	return true
}

func giveUp(w *walk) bool {
	c := w.c
	if !w.giveup || w.st[c] < creating || w.st[c] > waiting || w.at(sweeping) || w.at(cleaning) {
		return false
	}
	switch {
	case w.st[c] >= listing && w.mutant == giveUpStays:
		w.over()
	case w.st[c] >= listing && w.mutant == markWithoutHold:
		w.leave(marked)
	case w.st[c] >= listing:
		w.leave(remove)
	case w.mutant == createForgotten:
		w.st[c], w.me[c], w.pend[c], w.reply[c] = idle, 0, 0, 0
	default: // creating to sweeping, finding to cleaning
		w.st[c]++
	}
	return true
}

func unlock(w *walk) bool {
	if !w.at(holding) {
		return false
	}
	w.release()
	return true
}

func answered(w *walk) bool {
	if w.state.cut[w.c] || !w.replied() || !w.at(sweeping) && !w.at(leaving) {
		return false
	}
	if w.at(sweeping) {
		w.leave(remove)
	} else {
		w.over()
	}
	return true
}

func list(w *walk) bool {
	c := w.c
	if w.state.cut[c] || !w.at(listing) && !(w.at(creating) && w.replied()) {
		return false
	}
	w.reply[c] = 0
	ahead := w.view() & w.before[w.me[c]]
	switch {
	case w.view()&w.own() == 0:
		w.over()
	case ahead == 0:
		w.hold()
	default:
		w.pred[c] = w.edge(ahead, w.mutant == watchHead)
		w.last[c], w.waited[c], w.st[c] = ahead == bit(w.pred[c]), true, watching
	}
	return true
}

func watch(w *walk) bool {
	c := w.c
	if w.state.cut[c] || !w.at(watching) {
		return false
	}
	switch {
	case w.view()&w.own() == 0 && w.mutant != ownNotWatched:
		w.over()
	case w.view()&bit(w.pred[c]) == 0:
		w.told(false)
	default:
		w.st[c] = waiting
		w.waiting()
	}
	return true
}

func hear(w *walk) bool {
	c := w.c
	if w.state.cut[c] || w.seen[c] >= w.state.n || w.at(idle) {
		return false
	}
	w.seen[c]++
	if !w.at(waiting) && !w.at(holding) {
		return true
	}
	own, before := w.view()&w.own() != 0, w.view()&bit(w.pred[c]) != 0
	word := w.state.marked&bit(w.pred[c]) != 0
	switch {
	case !own && !(w.mutant == ownNotWatched && w.at(waiting)):
		w.over()
	case w.at(waiting) && !before:
		w.told(w.marks && word)
	case own && w.at(waiting) && w.mutant == markFirst && word:
		w.hold()
	default:
		w.waiting()
	}
	return true
}

func find(w *walk) bool {
	c := w.c
	if w.state.cut[c] || !w.at(finding) && !w.at(cleaning) || w.seen[c] != w.state.n && w.mutant != noSync {
		return false
	}
	switch {
	case w.view()&w.own() == 0:
		w.over()
	case w.at(finding):
		w.st[c] = listing
	default:
		w.leave(remove)
	}
	return true
}

func expired(w *walk) bool {
	c := w.c
	if !w.dead[c] || w.at(idle) {
		return false
	}
	w.dead[c], w.cur[c], w.state.cut[c] = false, 0, false
	w.over()
	return true
}

func commitCreate(w *walk) bool {
	c := w.c
	if w.pend[c] != create || !w.room() || w.dead[c] {
		return false
	}
	w.create(w.me[c])
	w.pend[c], w.reply[c] = 0, w.state.n+1
	return true
}

func commitDelete(w *walk) bool {
	c := w.c
	there := w.leader()&w.own() != 0
	if w.pend[c] != remove && w.pend[c] != marked || !w.room() && there || w.dead[c] {
		return false
	}
	if there {
		if w.pend[c] == marked {
			w.state.marked |= w.own()
		}
		w.commit(w.leader() &^ w.own())
	}
	w.pend[c], w.reply[c] = 0, w.state.n+1
	return true
}

func commitMark(w *walk) bool {
	c := w.c
	if w.pend[c] != mark || !w.room() || w.dead[c] {
		return false
	}
	w.state.marked |= w.leader() & w.own()
	w.commit(w.leader())
	w.pend[c] = remove
	return true
}

func commitLate(w *walk) bool {
	if w.late[w.c] == 0 || !w.room() {
		return false
	}
	w.create(w.late[w.c] - 1)
	w.late[w.c] = 0
	return true
}

// end is that of a session that its client has given up.
func end(w *walk) bool {
	c := w.c
	there := w.leader()&w.old[c] != 0
	if w.old[c] == 0 && w.late[c] == 0 || !w.room() && there {
		return false
	}
	if there {
		w.commit(w.leader() &^ w.old[c])
	}
	w.old[c], w.late[c] = 0, 0
	return true
}

func disconnect(w *walk) bool {
	c := w.c
	if !w.settings.cut || w.state.cut[c] || w.at(idle) {
		return false
	}
	w.state.cut[c] = true
	return true
}

func advance(w *walk) bool {
	c := w.c
	if !w.state.cut[c] || w.seen[c] >= w.state.n || w.at(idle) {
		return false
	}
	w.seen[c]++
	return true
}

func reconnect(w *walk) bool {
	c := w.c
	if !w.state.cut[c] || w.at(idle) {
		return false
	}
	w.state.cut[c], w.reply[c], w.pend[c] = false, 0, 0
	own := w.view()&w.own() != 0
	before := w.view()&bit(w.pred[c]) != 0
	switch {
	case w.at(creating), w.at(sweeping):
		w.st[c] += finding - creating
	case w.at(leaving) && w.mutant == deleteOnce:
		w.over()
	case w.at(leaving):
		w.release()
	case (w.at(waiting) || w.at(holding)) && !own && w.mutant != oldConnection:
		w.over()
	case w.at(waiting) && !before && w.mutant == oldConnection:
		w.told(false)
	case w.at(waiting) && !before && w.mutant == notWatched:
		w.waiting()
	case w.at(waiting) && !before:
		w.again()
	default:
		w.waiting()
	}
	return true
}

func lose(w *walk) bool {
	c := w.c
	if !w.settings.lose || w.at(idle) || w.dead[c] || w.old[c] != 0 || w.late[c] != 0 {
		return false
	}
	w.old[c], w.cur[c] = w.cur[c], 0
	if w.pend[c] == create {
		w.late[c] = 1 + w.me[c]
	}
	w.state.cut[c] = false
	w.over()
	return true
}

func killSession(w *walk) bool {
	c := w.c
	there := w.leader()&w.cur[c] != 0
	if !w.kill || w.at(idle) || w.dead[c] || !w.room() && there {
		return false
	}
	w.forced |= w.cur[c]
	if there {
		w.commit(w.leader() &^ w.cur[c])
	}
	w.dead[c], w.pend[c] = true, 0
	return true
}

func removeZnode(w *walk) bool {
	if !w.force || w.at(idle) || w.leader()&w.own() == 0 || !w.room() {
		return false
	}
	w.forced |= w.own()
	w.commit(w.leader() &^ w.own())
	return true
}
