/*
 * The lease, as session/lease.go keeps it: until when may a client believe that the ensemble has not ended its session?
 *
 * Time is discrete. The client's server answers pings by itself and passes writes on to its leader. It also reports that
 * it has heard of the session, at most REPORT units of time after it has, on the same ordered stream. The leader ends the
 * session TIMEOUT units after it last heard of it. Messages take any time, the stream's too; the server
 * goes on answering pings. The majority may choose another leader, which gives the session its whole timeout: the old one,
 * if the client's server stays with it, hears reports and answers syncs and handshakes that nobody else knows of, and
 * commits no write. The client's clock may lose or gain one unit in DRIFT. The client may go to another server at any time.
 *
 * The client keeps one mark: a request that was answered, and that counts when a write is answered that was sent SLACK
 * units or more after that, by its own clock. Which of several it keeps is left open, so what holds of one holds of many.
 * A write does not touch the session here, which only makes the leader end it sooner.
 *
 * Checked in every reachable state: while the client believes, the session has not ended. So whoever holds by this lease
 * has ended its hold before the ensemble can let anybody else in.
 *
 * MUTANT: one of the ways to break it, named below.
 */

#ifndef TIMEOUT
#define TIMEOUT 8
#endif
#ifndef REPORT
#define REPORT 1
#endif
#ifndef SLACK
#define SLACK 3
#endif
#ifndef DRIFT
#define DRIFT 8
#endif
#ifndef MUTANT
#define MUTANT 0
#endif

#define PINGS_CONFIRM      1 /* an answered ping moves the lease on */
#define SYNCS_CONFIRM      2 /* so does a sync, which a leader answers alone */
#define NO_SLACK           3 /* a write confirms whatever was answered before it was sent */
#define FROM_REPLY         4 /* the lease runs from the reply, not from the request */
#define NO_DRIFT           5 /* nothing is allowed for clocks that run at different speeds */
#define HANDSHAKE_CONFIRMS 6 /* a handshake moves the lease on before a write has been answered behind it */
#define MARK_KEPT          7 /* what one server has answered is confirmed through another one */

#define NEVER 255
#define DRIFTED (MUTANT == NO_DRIFT -> 0 : (TIMEOUT + DRIFT - 1) / DRIFT)

/* The ensemble. */
byte left = TIMEOUT;   /* until the leader that the majority has ends the session; 0: it has */
bool deposed;          /* the client's server is with another leader, which the majority has left */
byte heard = NEVER;    /* since the server has heard of the session and not reported it */
byte stream;           /* from the server to its leader, next one first: two bits each */
#define R 1            /* a report */
#define W 2            /* the write */
#define FULL (stream >= 64)
#define PUT(x) stream = (stream == 0 -> x : (stream < 4 -> stream + 4 * x : (stream < 16 -> stream + 16 * x : stream + 64 * x)))
#define LAST_IS_REPORT (stream == R || (stream >= 4 && stream < 16 && stream / 4 == R) || (stream >= 16 && stream / 16 == R))

/* The client; ages by its own clock. */
byte drift;            /* units until its clock may lose or gain one again */
byte lease;            /* left of what it believes; 0: it does not */
byte asked = NEVER;    /* age of a ping, or a handshake, that has not been answered */
bool hello;            /* it is a handshake */
bool answered;         /* the server has answered it */
byte mark = NEVER;     /* age of the request that was answered and may be confirmed */
byte wait;             /* until a write that is sent may confirm it */
byte writing;          /* 1: the write is on its way to the server; 2: to the leader; 3: its answer is on its way */
byte marked = NEVER;   /* age of the request that the write will confirm */

/* age moves the client's clock by one unit. What is older than the timeout proves nothing. */
inline age() {
	if :: lease > 0 -> lease-- :: else -> skip fi;
	if :: asked < TIMEOUT -> asked++ :: else -> skip fi;
	if :: asked == TIMEOUT -> asked = NEVER; hello = 0; answered = 0 :: else -> skip fi;
	if :: mark < TIMEOUT -> mark++ :: else -> skip fi;
	if :: mark == TIMEOUT -> mark = NEVER; wait = 0 :: else -> skip fi;
	if :: wait > 0 -> wait-- :: else -> skip fi;
	if :: marked < TIMEOUT -> marked++ :: else -> skip fi;
	if :: marked == TIMEOUT -> marked = NEVER :: else -> skip fi
}

inline believe(sent) {
	if
	:: sent != NEVER && sent + DRIFTED + lease < TIMEOUT -> lease = TIMEOUT - DRIFTED - sent
	:: else -> skip
	fi;
	assert(left > 0 || lease == 0) /* exclusion */
}

/* passed is a unit of the leader's time. */
inline passed() {
	if :: left > 0 -> left-- :: else -> skip fi;
	if :: heard != NEVER -> heard++ :: else -> skip fi;
	if :: drift > 0 -> drift-- :: else -> skip fi
}

active proctype world() {
end:	do
	/* Time; a report is never later than REPORT. */
	:: d_step { heard == NEVER || heard < REPORT -> passed(); age(); assert(left > 0 || lease == 0) }
	:: d_step { (heard == NEVER || heard < REPORT) && drift == 0 -> passed(); drift = DRIFT - 1; assert(left > 0 || lease == 0) }
	:: d_step { (heard == NEVER || heard < REPORT) && drift == 0 -> passed(); drift = DRIFT - 1; age(); age(); assert(left > 0 || lease == 0) }

	/* Pings. */
	:: d_step { asked == NEVER -> asked = 0 }
	:: d_step { asked != NEVER && !hello && !answered ->
		answered = 1;
		if :: heard == NEVER -> heard = 0 :: else -> skip fi }
	:: d_step { asked != NEVER && !hello && answered -> /* the answer arrives, and becomes the mark */
		if :: MUTANT == PINGS_CONFIRM -> believe(asked) :: else -> skip fi;
		mark = (MUTANT == FROM_REPLY -> 0 : asked); wait = (MUTANT == NO_SLACK -> 0 : SLACK);
		asked = NEVER; answered = 0 }
	:: d_step { asked != NEVER && !hello && answered && mark != NEVER -> /* or an earlier one stays it */
		asked = NEVER; answered = 0 }

	/* Reports, and what passes the stream. */
	:: d_step { heard != NEVER && (LAST_IS_REPORT || !FULL) ->
		heard = NEVER;
		if :: LAST_IS_REPORT -> skip :: else -> PUT(R) fi }
	:: d_step { stream % 4 == R ->
		stream = stream / 4;
		if :: !deposed && left > 0 -> left = TIMEOUT :: else -> skip fi }
	:: d_step { stream % 4 == W ->
		stream = stream / 4;
		if
		:: (!deposed && left > 0) || (deposed && MUTANT == SYNCS_CONFIRM) -> writing = 3
		:: else -> writing = 0; marked = NEVER /* refused, or never answered */
		fi }

	/* Writes. */
	:: d_step { writing == 0 -> writing = 1; marked = (wait == 0 -> mark : NEVER) }
	:: d_step { writing == 1 && !FULL -> writing = 2; PUT(W) }
	:: d_step { writing == 3 -> writing = 0; believe(marked); marked = NEVER }

	/* Trouble. */
	:: d_step { !deposed && left > 0 -> deposed = 1; left = TIMEOUT }

	/* The client leaves its server: what is on its way is lost, and what that had answered will not be confirmed. */
	:: d_step { !hello ->
		asked = 0; hello = 1; answered = 0; writing = 0; marked = NEVER;
		if :: MUTANT == MARK_KEPT -> skip :: else -> mark = NEVER; wait = 0 fi;
		heard = NEVER; stream = 0 }
	:: d_step { hello && !answered && left > 0 -> answered = 1; left = TIMEOUT; deposed = 0 }
	:: d_step { hello && !answered && deposed -> answered = 1 } /* by a leader that is none any more */
	:: d_step { hello && answered -> /* this mark needs no slack: the leader itself was told */
		if :: MUTANT == HANDSHAKE_CONFIRMS -> believe(asked) :: else -> skip fi;
		if :: MUTANT == MARK_KEPT && mark != NEVER -> skip :: else -> mark = asked; wait = 0 fi;
		asked = NEVER; hello = 0; answered = 0 }
	od
}
