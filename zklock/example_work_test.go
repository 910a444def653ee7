package zklock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Under nested locks each row gets the token of its own lock.
func ExampleHoldFrom() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()
	write := func(ctx context.Context, path string) {
		hold, ok := zklock.HoldFrom(ctx, path)
		fmt.Println(path, ok, hold.Token() > 0)
	}
	err := c.Mutex("/locks/account").Do(ctx, func(ctx context.Context) error {
		return c.Mutex("/locks/ledger").Do(ctx, func(ctx context.Context) error {
			write(ctx, "/locks/account")
			write(ctx, "/locks/ledger")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// /locks/account true true
	// /locks/ledger true true
	// <nil>
}

// The database refuses a holder that another one has overtaken. Its column is token BIGINT NOT NULL
// DEFAULT 0.
func ExampleHold_Token() {
	write := func(ctx context.Context, db *sql.DB, report []byte) error {
		hold, ok := zklock.HoldFrom(ctx, "/locks/rebuild-index")
		if !ok {
			return errors.New("called without the lock")
		}
		res, err := db.ExecContext(ctx,
			`UPDATE reports SET body = $1, token = $2 WHERE id = 7 AND token <= $2`,
			report, int64(hold.Token()))
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errors.New("not written: another client has held the lock since"),
				err)
		}
		return nil
	}
	_ = write
}

// At a deploy the leader finishes what it has begun and hands over at once: the next one does not
// wait for its session's end.
func ExampleElection_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, done := dialExample(ctx)
	defer done()
	scheduler := c.Election("/elections/scheduler")
	err := scheduler.Run(ctx, []byte("10.0.0.7:8080"),
		func(ctx context.Context, term *zklock.Hold) error {
			fmt.Println("leads:", term.Err() == nil)
			stop() // stands for SIGTERM
			<-ctx.Done()
			return nil
		})
	fmt.Println("ended:", err)
	_, err = scheduler.Leader(context.Background())
	fmt.Println("handed over:", errors.Is(err, zklock.ErrNoLeader))
	// Output:
	// leads: true
	// ended: <nil>
	// handed over: true
}

// Every host's timer fires at midnight; one of them does the job, and the others hear that it is
// done.
func ExampleJob_Every() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()
	for _, host := range []string{"host-1", "host-2"} {
		run, err := c.Job("/jobs/report").Every(ctx, 20*time.Hour, func(context.Context) error {
			fmt.Println("writing the report")
			return nil
		})
		fmt.Println(host, "did it:", run.Mine, err)
	}
	// Output:
	// writing the report
	// host-1 did it: true <nil>
	// host-2 did it: false <nil>
}

// A test of what a program does when it loses its lock.
func Example_aTestThatLosesTheLock() {
	srv, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	c, err := zklock.Dial(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = c.Mutex("/locks/a").Do(ctx, func(ctx context.Context) error {
		if err := srv.Expire(c.SessionStatus().ID); err != nil {
			return err
		}
		<-ctx.Done() // the work stops
		return context.Cause(ctx)
	})
	fmt.Println("lost:", errors.Is(err, zklock.ErrLost))
	// Output:
	// lost: true
}
