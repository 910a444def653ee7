/*
 * How the contenders of a semaphore wake each other, as internal/queue/semaphore.go has it: whom a waiter watches, when it
 * looks, and who says that it holds.
 *
 * The ensemble is a log of what happens in one directory: contenders enter and leave, holders say that they hold, the size
 * changes. Each client reads through a server of its own, which has applied the log up to seen[c]. A contender lists the
 * directory and then reads the size; its server may go on in between. Contender c is the one that enters as the c-th. It asks
 * for one or two permits, and leaves, or holds for ever; one may give up while it waits.
 *
 * Left out: broken connections and sessions, which queue.pml has; and looks that no event has caused, which would hide a lost
 * wake-up.
 *
 * Checked in every reachable state:
 *   exclusion         whoever concludes that it holds has, with all before it, no more permits than there were at some moment
 *                     since it entered
 *   no herd           where the size is never lowered, nobody who leaves wakes more than two
 *   no lost wake-up   when nothing can happen any more, nobody waits whose permits are free
 *
 * Parameters: N clients; the MOST permits that one asks for; the FIRST size; up to R changes, to 1, 2 or 3 permits; LOWER=0: only to more. MUTANT: one of the ways
 * to break it, named below.
 */

#ifndef N
#define N 3
#endif
#ifndef R
#define R 1
#endif
#ifndef FIRST
#define FIRST 2
#endif
#ifndef MOST
#define MOST 2
#endif
#ifndef LOWER
#define LOWER 1
#endif
#ifndef MUTANT
#define MUTANT 0
#endif

#define SILENT          1 /* one that holds by its first list never says so */
#define NEVER_SAYS      2 /* one that holds after waiting does not say so */
#define NO_LOOK         3 /* a waiter does not look once its watches are set */
#define OLD_SIZE        4 /* a contender holds by the size that was read before it entered */
#define SIZE_IGNORED    5 /* one that holds by its first list is silent though the size has changed since it entered */
#define LARGEST_UNKNOWN 6 /* a waiter knows only the present size */
#define NO_HEAD         7 /* the first waiter watches its predecessor, as the others do */
#define SIZE_FIRST      8 /* the size is read before the list */
#define ALL_HEADS       9 /* every waiter watches the directory */

#define LOG (3 * N + R + 1)
#define BIT(i) (1 << (i))
#define BEFORE(c) (BIT(c) - 1)
#define HEAD N
#define RESIZED (1 + 2 * N)

#define IDLE     0
#define LISTING  1
#define SIZING   2
#define WATCHING 3
#define WAITING  4
#define HOLDING  5
#define OVER     6 /* it has left, or holds for ever */

/* The ensemble after each event. */
byte n;
byte exist[LOG];   /* the contenders */
byte size[LOG];
byte largest[LOG]; /* that there ever was, if larger than size */
byte older[LOG];   /* the contenders that had entered when the size was written */
byte event[LOG];   /* 1 + who entered or left, 1 + N + who said that it holds, RESIZED for a size */

byte st[N];
byte want[N];
byte seen[N];
byte most[N];     /* the largest size since then */
byte list[N];     /* the contenders as listed */
byte early[N];    /* of SIZE_FIRST: the size */
byte at[N];       /* the contender that it watches, or HEAD */
bool watches[N];
bool fired[N];    /* a watch has */
bool waited[N];
bool owes[N];     /* it is about to say that it holds */
byte resizes = R;
byte giveups = 1;
byte next;        /* the contender that enters next */

hidden byte i, sum, s, p;

#define VIEW exist[seen[c]]

inline append(what, now) {
	event[n + 1] = what; exist[n + 1] = now; size[n + 1] = size[n]; largest[n + 1] = largest[n]; older[n + 1] = older[n];
	n++
}

/* tidy cuts off the part of the log that all who read have read, so that fewer states differ. */
inline tidy() {
	p = n; i = 0;
	do
	:: i < N -> if :: st[i] != IDLE && st[i] < HOLDING && seen[i] < p -> p = seen[i] :: else -> skip fi; i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < N -> if :: st[i] != IDLE && st[i] < HOLDING -> seen[i] = seen[i] - p :: else -> skip fi; i++
	:: else -> break
	od;
	n = n - p; i = 0;
	do
	:: i < LOG ->
		if
		:: i <= n -> event[i] = event[i + p]; exist[i] = exist[i + p]; size[i] = size[i + p]; largest[i] = largest[i + p]; older[i] = older[i + p]
		:: else -> event[i] = 0; exist[i] = 0; size[i] = 0; largest[i] = 0; older[i] = 0
		fi;
		i++
	:: else -> break
	od;
	event[0] = 0; i = 0; p = 0
}

/* before sums up the permits in set of those before c. */
inline before(c, set) {
	sum = 0; i = 0;
	do
	:: i < c -> if :: set & BIT(i) -> sum = sum + want[i] :: else -> skip fi; i++
	:: else -> break
	od
}

/* over forgets what nobody asks for any more, so that fewer states differ. */
inline over(c) {
	st[c] = OVER; seen[c] = 0; most[c] = 0; list[c] = 0; at[c] = 0; watches[c] = 0; fired[c] = 0; waited[c] = 0; owes[c] = 0
}

inline leave(c) {
	s = 0; i = 0;
	do
	:: i < N ->
		if :: i != c && st[i] == WAITING && (at[i] == HEAD || at[i] == c) -> s++ :: else -> skip fi;
		i++
	:: else -> break
	od;
	assert(LOWER || s <= 2); /* no herd */
	append(1 + c, exist[n] & ~BIT(c));
	over(c)
}

/* place sets p to what c has to watch. */
inline place(c) {
	p = N; i = 0;
	do
	:: i < c -> if :: list[c] & BIT(i) -> p = i :: else -> skip fi; i++
	:: else -> break
	od;
	if
	:: watches[c] && at[c] == HEAD -> p = HEAD
	:: else ->
		if
		:: MUTANT != NO_HEAD && (MUTANT == ALL_HEADS || sum <= s || (MUTANT != LARGEST_UNKNOWN && sum <= largest[seen[c]] &&
		   (VIEW & older[seen[c]] & BIT(p)))) -> p = HEAD
		:: else -> skip
		fi
	fi
}

/* told notes whether the latest event that c's server has applied fires one of its watches. */
inline told(c) {
	i = event[seen[c]];
	if
	:: watches[c] && (at[c] == HEAD -> i <= N || i == RESIZED : i == 1 + at[c] || i == 1 + N + at[c]) -> fired[c] = 1
	:: else -> skip
	fi
}

proctype client(byte c) {
end:	do
	:: d_step { st[c] == IDLE && next == c ->
		append(1 + c, exist[n] | BIT(c));
		next++;
		seen[c] = n; most[c] = size[n]; st[c] = LISTING; tidy() }
	:: d_step { st[c] != IDLE && st[c] < HOLDING && seen[c] < n -> seen[c]++; told(c); tidy() }
	:: d_step { st[c] == LISTING -> list[c] = VIEW; early[c] = (MUTANT == SIZE_FIRST -> size[seen[c]] : 0); st[c] = SIZING }
	:: d_step { st[c] == SIZING ->
		s = (MUTANT == OLD_SIZE && !waited[c] -> FIRST : size[seen[c]]);
		if :: MUTANT == SIZE_FIRST -> s = early[c]; list[c] = VIEW; early[c] = 0 :: else -> skip fi;
		before(c, list[c]);
		if
		:: want[c] > s -> leave(c) /* refused: there are not that many */
		:: want[c] <= s && sum + want[c] <= s ->
			owes[c] = (waited[c] -> MUTANT != NEVER_SAYS :
				MUTANT != SILENT && ((older[seen[c]] & BIT(c)) && MUTANT != SIZE_IGNORED || list[c] > BIT(c) + BEFORE(c)));
			before(c, exist[seen[c]]);
			assert(sum + want[c] <= size[seen[c]]); /* exclusion, at the moment at which the size was read */
			before(c, exist[n]);
			assert(sum + want[c] <= most[c]); /* exclusion */
			list[c] = 0; most[c] = 0; watches[c] = 0; fired[c] = 0; at[c] = 0; waited[c] = 0; seen[c] = 0; st[c] = HOLDING
		:: else ->
			place(c);
			waited[c] = 1; list[c] = 0;
			if
			:: watches[c] && at[c] == p && !fired[c] -> st[c] = WAITING
			:: else -> at[c] = p; st[c] = WATCHING
			fi
		fi;
		tidy() }
	:: d_step { st[c] == WATCHING ->
		watches[c] = 1; fired[c] = (at[c] != HEAD && !(VIEW & BIT(at[c])));
		st[c] = (MUTANT == NO_LOOK -> WAITING : LISTING) }
	:: d_step { st[c] == WAITING && fired[c] -> st[c] = LISTING }
	:: d_step { st[c] == WAITING && giveups > 0 -> giveups--; leave(c); tidy() }
	:: d_step { st[c] == HOLDING && owes[c] -> append(1 + N + c, exist[n]); owes[c] = 0; tidy() }
	:: d_step { st[c] == HOLDING -> leave(c); tidy() }
	:: d_step { st[c] == HOLDING && !owes[c] -> over(c) }
	od
}

inline resize(to) {
	append(RESIZED, exist[n]);
	largest[n] = (size[n] > largest[n] -> size[n] : largest[n]);
	if :: largest[n] <= to -> largest[n] = 0 :: else -> skip fi;
	size[n] = to; older[n] = BEFORE(next); resizes--;
	i = 0;
	do
	:: i < N -> if :: to > most[i] -> most[i] = to :: else -> skip fi; i++
	:: else -> break
	od;
	i = 0
}

proctype resizer() {
end:	do
	:: d_step { resizes > 0 && size[n] != 1 && LOWER -> resize(1); tidy() }
	:: d_step { resizes > 0 && size[n] != 2 && (LOWER || size[n] < 2) -> resize(2); tidy() }
	:: d_step { resizes > 0 && size[n] != 3 -> resize(3); tidy() }
	:: d_step { resizes > 0 -> resizes-- }
	:: d_step { giveups > 0 -> giveups-- }
	od
}

proctype end_of_run() {
	timeout;
	d_step {
		i = 0; p = 0;
		do
		:: p < N ->
			if
			:: st[p] == WAITING -> before(p, exist[n]); assert(sum + want[p] > size[n]) /* no lost wake-up */
			:: else -> skip
			fi;
			p++
		:: else -> break
		od
	}
}

init {
	size[0] = FIRST;
	p = 0;
	do
	:: p < N -> if :: want[p] = 1 :: MOST > 1 -> want[p] = 2 fi; p++
	:: else -> break
	od;
	atomic {
		p = 0;
		do
		:: p < N -> run client(p); p++
		:: else -> break
		od;
		run resizer();
		run end_of_run()
	}
}
