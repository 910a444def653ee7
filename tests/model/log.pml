/*
 * The log of transactions of queue.pml, which includes this: what the leader appends, and what nobody needs any more.
 */

/* tidy cuts off what everybody has read, and forgets the znodes that nobody can see any more. */
inline tidy() {
	m = n;
	i = 0;
	do
	:: i < N ->
		if
		:: st[i] == IDLE ->
			seen[i] = n;
			assert(!(tree[n] & cur[i]) || dead[i]) /* nothing left */
		:: else -> if :: seen[i] < m -> m = seen[i] :: else -> skip fi
		fi;
		i++
	:: else -> break
	od;
	if
	:: m > 0 ->
		i = 0;
		do
		:: i + m <= n -> tree[i] = tree[i + m]; i++
		:: else -> break
		od;
		do
		:: i <= n -> tree[i] = 0; i++
		:: else -> break
		od;
		n = n - m;
		i = 0;
		do
		:: i < N ->
			seen[i] = seen[i] - m;
			if
			:: reply[i] > m + 1 -> reply[i] = reply[i] - m
			:: reply[i] > 0 && reply[i] <= m + 1 -> reply[i] = 1
			:: else -> skip
			fi;
			i++
		:: else -> break
		od
	:: else -> skip
	fi;
	all = 0;
	i = 0;
	do
	:: i <= n -> all = all | tree[i]; i++
	:: else -> break
	od;
	keep = all;
	i = 0;
	do
	:: i < N ->
		if :: st[i] != IDLE -> keep = keep | BIT(me[i]) :: else -> skip fi;
		if :: late[i] > 0 -> keep = keep | BIT(late[i] - 1) :: else -> skip fi;
		cur[i] = cur[i] & (all | (st[i] != IDLE -> BIT(me[i]) : 0));
		if
		:: st[i] == IDLE && cur[i] == 0 -> dead[i] = 0; cut[i] = 0 /* nothing depends on the session */
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < IDS ->
		before[i] = ((all & BIT(i)) -> (before[i] & all) : 0);
		came[i] = ((keep & BIT(i)) -> came[i] : 0);
		i++
	:: else -> break
	od;
	marked = marked & all;
	again = again & keep;
	led = led & keep;
	outlived = outlived & keep;
	headed = headed & keep;
	forced = forced & keep;
	i = 0
}

/* commit appends a transaction after which the znodes of set exist. */
inline commit(set) {
	x = set;
	n++;
	tree[n] = x;
	i = 0;
	do
	:: i < IDS ->
		if :: (x & BIT(i)) && !(x & before[i]) -> headed = headed | BIT(i) :: else -> skip fi;
		i++
	:: else -> break
	od
}

inline create(id) {
	before[id] = tree[n];
	commit(tree[n] | BIT(id))
}

inline delete(id, how) {
	if
	:: tree[n] & BIT(id) ->
		if :: how == MARKED -> marked = marked | BIT(id) :: else -> skip fi;
		commit(tree[n] & ~BIT(id))
	:: else -> skip
	fi
}

/* nearest sets y to the one of set that was created last, first to the one that was created first. */
inline nearest(set) {
	y = NONE;
	i = 0;
	do
	:: i < IDS ->
		if :: (set & BIT(i)) && (y == NONE || (before[i] & BIT(y))) -> y = i :: else -> skip fi;
		i++
	:: else -> break
	od
}

inline first(set) {
	y = NONE;
	i = 0;
	do
	:: i < IDS ->
		if :: (set & BIT(i)) && (y == NONE || (before[y] & BIT(i))) -> y = i :: else -> skip fi;
		i++
	:: else -> break
	od
}
