/*
 * The queue under every lock, as package internal/queue has it: who creates what, who watches whom, and who may conclude from
 * what it has been told that it holds the lock.
 *
 * The ensemble is a log of transactions. tree[i] is the set of znodes that exist after transaction i; a znode is a bit.
 * The leader appends. Every client reads through a server of its own, which has applied the log up to seen[c]; what the
 * client has been told is exactly that prefix, in order. A server lags behind the leader by up to LAG transactions.
 * Calls, faults and sessions may follow each other without end: identifiers of znodes are used again when nobody can
 * see the old one any more, and the log is cut off where everybody has read it.
 *
 * Checked in every reachable state:
 *   exclusion     whoever concludes that it holds has a znode that was the first in line at the leader at some moment;
 *                 unless it was removed by force it still is, and nobody else holds
 *   order         follows: nobody concludes while a znode that was created before its own exists
 *   no lost wake-up   a waiter that has been told of everything has a predecessor that exists
 *   no herd       no two waiters in line watch the same znode
 *   nothing left  a client that is idle has no znode, but for those of sessions that it has given up
 *   rank          nobody concludes while it has been told of a candidate that goes before it, unless it has stepped
 *                 aside since the last sign of a term
 *
 * Checked in every infinite run, with LIVE=1:
 *   somebody leads  as long as client 0 wants to lead, whatever the others do
 *
 * Taken from elsewhere: sessions end at the ensemble only after their clients have given them up (lease.pml), unless
 * they are ended by force; the ensemble gives each session one order of transactions, and refuses what a connection has
 * not got through to the leader when the session's next connection was accepted.
 *
 * Parameters: N clients; SLOTS znodes a client (2: one in a session that was given up, one in the next); LAG; MARKS=1: a
 * holder that has waited leaves by a transaction whose first operation tells its successor that it did hold; RANKS=1: the
 * clients are candidates, of ranks 0, 1, 1 (see RANK), and who is first while another one goes before it steps aside, once
 * for each sign of a term (by two transactions, as a client does whose one transaction is refused: more can come in
 * between); LIVE=1: client 0 gives nothing up, and the others begin a call only while nobody else has
 * something to do, since no schedule is to starve a client; CUT,
 * GIVEUP, LOSE, FORCE, KILL: 0 leaves out broken connections, cancelled calls, sessions given up, znodes removed by
 * force, sessions ended by force. CALLS and FAULTS bound how many there are in a run; then every run has to end (there is
 * no cycle of states) with everybody idle and an empty tree. MUTANT: one of the ways to break it, named below.
 */

#ifndef N
#define N 3
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef LAG
#define LAG 2
#endif
#ifndef MARKS
#define MARKS 0
#endif
#ifndef RANKS
#define RANKS 0
#endif
#ifndef CUT
#define CUT 1
#endif
#ifndef GIVEUP
#define GIVEUP 1
#endif
#ifndef LOSE
#define LOSE 1
#endif
#ifndef FORCE
#define FORCE 1
#endif
#ifndef KILL
#define KILL 1
#endif
#ifndef LIVE
#define LIVE 0
#endif
#ifndef MUTANT
#define MUTANT 0
#endif

#define WATCH_HEAD        1  /* watches the first in line instead of its predecessor */
#define NO_SECOND_LOOK    2  /* holds when the predecessor goes, whoever else was before it */
#define OWN_NOT_WATCHED   3  /* waits without a watch on its own znode */
#define GIVEUP_STAYS      4  /* a cancelled call leaves its znode */
#define NO_SYNC           5  /* looks for a lost create at a server that lags */
#define DELETE_ONCE       6  /* does not repeat a deletion whose reply was lost */
#define CREATE_FORGOTTEN  7  /* a call that is cancelled during its create does not look for the znode */
#define OLD_CONNECTION    8  /* believes the order of what the next connection tells of the time in between */
#define MARK_WITHOUT_HOLD 9  /* a cancelled call leaves with the mark of a release */
#define MARK_FIRST        10 /* the mark is a transaction of its own, before the deletion, and the waiter holds on it */
#define NOT_WATCHED       11 /* reconnects without setting its watches again */
#define HANGS_UP          12 /* leaves a connection that nobody has broken, again and again */
#define RANK_NOT_SEEN     13 /* a candidate holds when its predecessor goes, without a list that shows who is behind it */
#define EQUALS_GO_BEFORE  14 /* steps aside for candidates of its own rank, whenever they came */
#define ALWAYS_ASIDE      15 /* steps aside again and again, though nobody has led */
#define NO_SIGN           16 /* a leader leaves no sign of its term */

#define IDS  (N * SLOTS)
#define BIT(i) (1 << (i))
#define NONE 255

/* What a client is at. */
#define IDLE     0
#define CREATING 1 /* its create is under way */
#define SWEEPING 2 /* the same, and its caller has gone */
#define FINDING  3 /* the create's reply was lost */
#define CLEANING 4 /* the same, and its caller has gone */
#define LISTING  5
#define WATCHING 6 /* has read the list, and is about to watch */
#define WAITING  7
#define HOLDING  8
#define LEAVING  9 /* its delete is under way, or to be repeated */
#define AGAIN    10 /* has stepped aside, and is about to enter at the end of the line */

/* What of a session is on its way to the leader. */
#define CREATE 1
#define DELETE 2
#define MARKED 3 /* a delete with the mark of a release */
#define MARK   4 /* of MARK_FIRST: the mark alone */

/* The ensemble. */
byte tree[LAG + 1];  /* the znodes after each transaction that somebody has not read yet; tree[n] is the leader's */
byte n;
byte before[IDS];    /* the znodes that existed when this one was created */
byte marked;         /* znodes whose deletion carried a mark, or, of MARK_FIRST, that have one */
byte headed;         /* znodes that have been the first in line */
byte forced;         /* znodes that were removed by force */
byte came[IDS];      /* of a candidate's znode, what its name tells: when it first came, a higher number being earlier */
byte again;          /* znodes of candidates that have stepped aside */
byte led;            /* znodes that existed at a sign of a term, so that the sign is later than they are */
byte outlived;       /* the same of terms that should leave a sign */

/* The clients. */
byte st[N];
byte me[N];          /* the znode of the present call */
byte seen[N];        /* how much of the log the client's server has applied */
byte reply[N];       /* 1 + the transaction after which the reply comes; 0: none is due */
byte pend[N];        /* on its way to the leader */
byte pred[N];        /* the znode that is watched */
bool last[N];        /* it was the only one before us */
bool waited[N];      /* the call has had to wait */
bool aside[N];       /* a candidate steps aside */
bool held[N];        /* a candidate leaves that has led */
byte since[N];       /* when its call came */
bool cut[N];         /* the connection is broken */
bool dead[N];        /* the session was ended by force, and the client does not know */
byte cur[N];         /* the session's znodes */
byte old[N];         /* those of a session that was given up here and has not ended there */
bool called[N];      /* of LIVE: a call was begun since the session was given up */
byte late[N];        /* 1 + the znode of that session's whose create is still on its way to the leader */

#ifdef CALLS
byte calls = CALLS;
#define CALL (calls > 0)
#define CALLED calls--
#define CAME calls
#else
#define CALL true
#define CALLED skip
#define CAME 1
#endif
#ifdef FAULTS
byte faults = FAULTS;
#define FAULT (faults > 0)
#define FAILED faults--
#else
#define FAULT true
#define FAILED skip
#endif

hidden byte i, j, m, x, y, keep, all;

#define RANK(id) (((id) / SLOTS + 1) / 2)
#define OWN BIT(me[c])
#define VIEW tree[seen[c]]
#define ROOM (n < LAG)
#define MAY_STEP_ASIDE (!(again & OWN) || (led & OWN))
#define AT_REST(k) (k == c || st[k] == IDLE || st[k] == WAITING || st[k] == HOLDING)
#define MAY_BEGIN (!LIVE || c == 0 || \
	st[0] != IDLE && seen[0] == n && AT_REST(0) && AT_REST(1) && AT_REST(N - 1) && !(old[c] != 0 && called[c]))
#define FAULTY (!LIVE || c > 0)
#define REPLIED (reply[c] > 0 && seen[c] + 1 >= reply[c])

#include "log.pml"

/* over ends the present call. */
inline over() {
	st[c] = IDLE; me[c] = 0; pred[c] = 0; last[c] = 0; waited[c] = 0; pend[c] = 0; reply[c] = 0;
	aside[c] = 0; since[c] = 0; held[c] = 0
}

/* outranked sets y to whether the client has been told of a candidate that goes before it, though it came behind. */
inline outranked() {
	y = 0;
	i = 0;
	do
	:: RANKS && i < IDS ->
		if
		:: (VIEW & BIT(i)) && i != me[c] && (RANK(i) > RANK(me[c]) || (RANK(i) == RANK(me[c]) && came[i] > came[me[c]])) -> y = 1
		:: else -> skip
		fi;
		i++
	:: else -> break
	od
}

/* hold is the conclusion that the lock is ours. */
inline hold() {
	assert(headed & OWN);
	outranked();
	assert(y == 0 || ((again & OWN) && !(outlived & OWN))); /* rank */
	if
	:: !(forced & OWN) ->
		assert(tree[n] & OWN);
		assert(!(tree[n] & before[me[c]]));
		i = 0;
		do
		:: i < N ->
			assert(st[i] != HOLDING || (forced & BIT(me[i])));
			i++
		:: else -> break
		od
	:: else -> skip
	fi;
	st[c] = HOLDING; pred[c] = 0; last[c] = 0; held[c] = RANKS
}

/* leave sends the delete, if there is a connection; else it goes after the next one is there. */
inline leave(how) {
	st[c] = LEAVING; pred[c] = 0; last[c] = 0; waited[c] = 0; reply[c] = 0;
	pend[c] = (cut[c] -> 0 : how);
	if :: how != DELETE -> waited[c] = 1 :: else -> skip fi /* so that it is repeated as it was */
}

/* sign is the sign of a term, which all candidates in line see in the list by which they conclude. */
inline sign() {
	if
	:: RANKS && MUTANT != NO_SIGN -> led = led | tree[n]; outlived = outlived | tree[n]
	:: RANKS && MUTANT == NO_SIGN -> outlived = outlived | tree[n]
	:: else -> skip
	fi
}

/* release leaves with the mark, if the call has waited. A cancelled call forgets that it has, so its repeated delete has none. */
inline release() {
	y = (MARKS && waited[c] -> (MUTANT == MARK_FIRST -> MARK : MARKED) : DELETE);
	leave(y)
}

/* told decides on the predecessor's deletion, told on the connection on which the watches were set. */
inline told(bymark) {
	if
	:: (bymark || last[c] || MUTANT == NO_SECOND_LOOK) && (!RANKS || MUTANT == RANK_NOT_SEEN) -> hold()
	:: else -> st[c] = LISTING; pred[c] = 0; last[c] = 0
	fi
}

/* first_now is for one that its list shows as the first: it holds, or steps aside for one that goes before it. */
inline first_now() {
	outranked();
	if
	:: y == 0 && MUTANT == EQUALS_GO_BEFORE ->
		i = 0;
		do
		:: i < IDS -> if :: (VIEW & BIT(i)) && i != me[c] && RANK(i) == RANK(me[c]) -> y = 1 :: else -> skip fi; i++
		:: else -> break
		od
	:: else -> skip
	fi;
	if
	:: y == 0 || !(MAY_STEP_ASIDE || MUTANT == ALWAYS_ASIDE || MUTANT == EQUALS_GO_BEFORE) -> hold()
	:: else -> leave(DELETE); aside[c] = 1
	fi
}

/* waiting checks what has to hold of one who waits. */
inline waiting() {
	if
	:: st[c] == WAITING && !cut[c] && seen[c] == n && (tree[n] & OWN) -> assert(tree[n] & before[me[c]]) /* no lost wake-up */
	:: else -> skip
	fi;
	i = 0;
	do
	:: i < N ->
		if
		:: st[c] == WAITING && i != c && st[i] == WAITING && (tree[n] & OWN) && (tree[n] & BIT(me[i])) ->
			assert(pred[i] != pred[c]) /* no herd */
		:: else -> skip
		fi;
		i++
	:: else -> break
	od
}

active [N] proctype client() {
	byte c = _pid;
end:	do
	/* The caller. */
	:: d_step { (st[c] == IDLE && CALL && MAY_BEGIN) || st[c] == AGAIN ->
		j = NONE; i = 0; keep = old[c];
		if :: late[c] > 0 -> keep = keep | BIT(late[c] - 1) :: else -> skip fi;
		m = 0;
		do
		:: m <= n -> keep = keep | tree[m]; m++
		:: else -> break
		od;
		m = 0;
		do
		:: m < N -> if :: st[m] == WATCHING || st[m] == WAITING -> keep = keep | BIT(pred[m]) :: else -> skip fi; m++
		:: else -> break
		od;
		do
		:: i < SLOTS -> if :: j == NONE && !(keep & BIT(c * SLOTS + i)) -> j = c * SLOTS + i :: else -> skip fi; i++
		:: else -> break
		od;
		if
		:: j != NONE ->
			again = again & ~BIT(j);
			led = led & ~BIT(j); outlived = outlived & ~BIT(j);
			if
			:: st[c] == AGAIN -> aside[c] = 0; again = again | BIT(j)
			:: st[c] == IDLE && RANKS -> since[c] = CAME; called[c] = (LIVE && old[c] != 0); CALLED
			:: else -> CALLED
			fi;
			came[j] = since[c];
			me[c] = j; st[c] = CREATING; cur[c] = cur[c] | BIT(j); seen[c] = n;
			pend[c] = (cut[c] -> 0 : CREATE);
			if :: cut[c] -> st[c] = FINDING :: else -> skip fi
		:: else -> /* all znodes that this client may have here are still to be seen somewhere */
			if
			:: LIVE -> skip
			:: else ->
				if :: RANKS && st[c] == IDLE -> CALLED :: else -> skip fi;
				over()
			fi
		fi;
		tidy() }
	:: d_step { GIVEUP && FAULT && FAULTY && st[c] >= CREATING && st[c] <= WAITING && st[c] != SWEEPING && st[c] != CLEANING ->
		FAILED;
		if
		:: st[c] == CREATING && MUTANT != CREATE_FORGOTTEN -> st[c] = SWEEPING
		:: st[c] == FINDING && MUTANT != CREATE_FORGOTTEN -> st[c] = CLEANING
		:: (st[c] == CREATING || st[c] == FINDING) && MUTANT == CREATE_FORGOTTEN -> st[c] = IDLE; me[c] = 0; pend[c] = 0; reply[c] = 0
		:: st[c] >= LISTING ->
			if
			:: MUTANT == GIVEUP_STAYS -> over()
			:: else -> y = (MUTANT == MARK_WITHOUT_HOLD -> MARKED : DELETE); leave(y)
			fi
		fi;
		tidy() }
	:: d_step { st[c] == HOLDING ->
		release();
		tidy() }
	:: d_step { RANKS && st[c] == HOLDING && (tree[n] & OWN) && (outlived & tree[n]) != tree[n] -> /* it has held for long */
		sign();
		tidy() }

	/* What the client is told. */
	:: d_step { !cut[c] && REPLIED && (st[c] == SWEEPING || st[c] == LEAVING) ->
		if
		:: st[c] == SWEEPING -> leave(DELETE)
		:: st[c] == LEAVING && aside[c] -> st[c] = AGAIN; reply[c] = 0; waited[c] = 0
		:: st[c] == LEAVING && !aside[c] -> over()
		fi;
		tidy() }
	:: d_step { !cut[c] && (st[c] == LISTING || (st[c] == CREATING && REPLIED)) ->
		reply[c] = 0;
		x = VIEW & before[me[c]];
		if
		:: !(VIEW & OWN) -> over()
		:: (VIEW & OWN) && x == 0 -> first_now()
		:: (VIEW & OWN) && x != 0 ->
			if
			:: MUTANT == WATCH_HEAD -> first(x)
			:: else -> nearest(x)
			fi;
			pred[c] = y; last[c] = (x == BIT(y)); waited[c] = 1; st[c] = WATCHING
		fi;
		tidy() }
	:: d_step { !cut[c] && st[c] == WATCHING ->
		if
		:: !(VIEW & OWN) && MUTANT != OWN_NOT_WATCHED -> over()
		:: ((VIEW & OWN) || MUTANT == OWN_NOT_WATCHED) && !(VIEW & BIT(pred[c])) -> told(false)
		:: else -> st[c] = WAITING; waiting()
		fi;
		tidy() }
	:: d_step { !cut[c] && seen[c] < n && st[c] != IDLE ->
		seen[c]++;
		if
		:: st[c] == WAITING || st[c] == HOLDING ->
			if
			:: !(VIEW & OWN) && !(MUTANT == OWN_NOT_WATCHED && st[c] == WAITING) -> over()
			:: ((VIEW & OWN) || MUTANT == OWN_NOT_WATCHED) && st[c] == WAITING && !(VIEW & BIT(pred[c])) ->
				told(MARKS && (marked & BIT(pred[c])))
			:: (VIEW & OWN) && st[c] == WAITING && (VIEW & BIT(pred[c])) && MUTANT == MARK_FIRST && (marked & BIT(pred[c])) -> hold()
			:: else -> waiting()
			fi
		:: else -> skip
		fi;
		tidy() }
	:: d_step { !cut[c] && (st[c] == FINDING || st[c] == CLEANING) && (seen[c] == n || MUTANT == NO_SYNC) ->
		if
		:: (VIEW & OWN) && st[c] == FINDING -> st[c] = LISTING
		:: (VIEW & OWN) && st[c] == CLEANING -> leave(DELETE)
		:: !(VIEW & OWN) -> over() /* the next create is made in a call of its own here */
		fi;
		tidy() }
	:: d_step { dead[c] && st[c] != IDLE -> /* the session has expired */
		dead[c] = 0; cur[c] = 0; cut[c] = 0;
		over();
		tidy() }

	/* What arrives at the leader. */
	:: d_step { pend[c] == CREATE && ROOM && !dead[c] ->
		create(me[c]);
		pend[c] = 0; reply[c] = n + 1;
		tidy() }
	:: d_step { (pend[c] == DELETE || pend[c] == MARKED) && (ROOM || !(tree[n] & OWN)) && !dead[c] ->
		if :: (tree[n] & OWN) && st[c] == LEAVING && held[c] -> sign() :: else -> skip fi;
		delete(me[c], pend[c]);
		pend[c] = 0; reply[c] = n + 1;
		tidy() }
	:: d_step { pend[c] == MARK && ROOM && !dead[c] ->
		if :: tree[n] & OWN -> marked = marked | OWN :: else -> skip fi;
		commit(tree[n]);
		pend[c] = DELETE;
		tidy() }
	:: d_step { late[c] > 0 && ROOM ->
		create(late[c] - 1);
		late[c] = 0;
		tidy() }
	:: d_step { (old[c] != 0 || late[c] > 0) && (ROOM || !(tree[n] & old[c])) -> /* the session ends at the ensemble */
		if :: tree[n] & old[c] -> commit(tree[n] & ~old[c]) :: else -> skip fi;
		old[c] = 0; late[c] = 0; called[c] = 0;
		tidy() }

	/* Faults. */
	:: d_step { CUT && (FAULT || MUTANT == HANGS_UP) && !cut[c] && st[c] != IDLE ->
		if :: MUTANT == HANGS_UP -> skip :: else -> FAILED fi;
		cut[c] = 1;
		tidy() }
	:: d_step { cut[c] && seen[c] < n && st[c] != IDLE -> /* the server of the next one is further on */
		seen[c]++;
		tidy() }
	:: d_step { cut[c] && st[c] != IDLE -> /* the next connection */
		cut[c] = 0;
		reply[c] = 0;
		pend[c] = 0; /* refused, if it has not come through */
		if
		:: st[c] == CREATING -> st[c] = FINDING
		:: st[c] == SWEEPING -> st[c] = CLEANING
		:: st[c] == LEAVING ->
			if
			:: MUTANT == DELETE_ONCE -> over()
			:: else -> release()
			fi
		:: (st[c] == WAITING || st[c] == HOLDING) && !(VIEW & OWN) && MUTANT != OLD_CONNECTION -> over()
		:: st[c] == WAITING && !(VIEW & BIT(pred[c])) && ((VIEW & OWN) || MUTANT == OLD_CONNECTION) ->
			if
			:: MUTANT == OLD_CONNECTION -> told(false)
			:: MUTANT == NOT_WATCHED -> waiting()
			:: else -> st[c] = LISTING; pred[c] = 0; last[c] = 0
			fi
		:: else -> waiting()
		fi;
		tidy() }
	:: d_step { LOSE && FAULT && FAULTY && st[c] != IDLE && !dead[c] && old[c] == 0 && late[c] == 0 -> /* the client gives its session up */
		FAILED;
		old[c] = cur[c]; cur[c] = 0;
		late[c] = (pend[c] == CREATE -> 1 + me[c] : 0); /* a delete might as well have come before */
		cut[c] = 0;
		over();
		tidy() }
	:: d_step { KILL && FAULT && st[c] != IDLE && !dead[c] && (ROOM || !(tree[n] & cur[c])) -> /* ended by force */
		FAILED;
		forced = forced | cur[c];
		if :: tree[n] & cur[c] -> commit(tree[n] & ~cur[c]) :: else -> skip fi;
		dead[c] = 1; pend[c] = 0;
		tidy() }
	:: d_step { FORCE && FAULT && st[c] != IDLE && (tree[n] & OWN) && ROOM -> /* the znode is removed by force */
		FAILED;
		forced = forced | OWN;
		commit(tree[n] & ~OWN);
		tidy() }
	od
}

#if LIVE
#define LED (st[0] == HOLDING || st[1] == HOLDING || st[N - 1] == HOLDING)
ltl somebody_leads { [] <> LED }
#endif

#ifdef CALLS
/* When nothing can happen any more, everybody is idle and the tree is empty. */
active proctype end_of_run() {
	timeout;
	d_step {
		i = 0;
		do
		:: i < N -> assert(st[i] == IDLE && old[i] == 0 && pend[i] == 0); i++
		:: else -> break
		od;
		assert(tree[n] == 0)
	}
}
#endif
