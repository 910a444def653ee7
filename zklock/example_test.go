package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// One process at a time, in the whole fleet, writes the nightly report.
func Example() {
	srv, err := zktest.Start() // stands for "zk1:2181,zk2:2181,zk3:2181"
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

	err = c.Mutex("/locks/rebuild-index").Do(ctx, func(ctx context.Context) error {
		fmt.Println("writing the report") // ctx ends when the lock is lost
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// writing the report
	// error: <nil>
}

func ExampleMutex_Lock() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()

	_, hold, err := c.Mutex("/locks/a").Lock(ctx) // waits its turn
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", hold.Err() == nil, hold.Token() > 0, hold.SafeUntil().After(time.Now()))
	if err := hold.Unlock(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("then:", context.Cause(hold.Context()))
	// Output:
	// held: true true true
	// then: zklock: unlocked
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()

	_, hold, err := c.Mutex("/locks/a").TryLock(ctx)
	fmt.Println("first:", err)
	_, _, err = c.Mutex("/locks/a").TryLock(ctx)
	fmt.Println("second is busy:", errors.Is(err, zklock.ErrBusy))
	fmt.Println("unlock:", hold.Unlock())
	// Output:
	// first: <nil>
	// second is busy: true
	// unlock: <nil>
}

// The writes of a holder that was overtaken are refused by the ensemble, whatever the holder
// believes.
func ExampleHold_Multi() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()
	s, err := c.Session(ctx) // for the program's own znodes
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Create(ctx, "/balance", []byte("10"), session.Persistent,
		session.WorldACL()); err != nil {
		log.Fatal(err)
	}
	_, hold, err := c.Mutex("/locks/balance").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	_, err = hold.Multi(ctx, session.OpSet{Path: "/balance", Data: []byte("9"), Version: -1})
	fmt.Println("while held:", err)

	if err := s.Delete(ctx, hold.Node(), -1); err != nil { // an administrator takes the lock away
		log.Fatal(err)
	}
	_, err = hold.Multi(ctx, session.OpSet{Path: "/balance", Data: []byte("8"), Version: -1})
	fmt.Println("afterwards:", errors.Is(err, zklock.ErrLost))
	data, _, err := s.Get(ctx, "/balance")
	fmt.Println("balance:", string(data), err)
	// Output:
	// while held: <nil>
	// afterwards: true
	// balance: 9 <nil>
}

func ExampleWithReentrancy() {
	c, done := dialExample(context.Background())
	defer done()
	m := c.Mutex("/locks/a", zklock.WithReentrancy())
	err := m.Do(context.Background(), func(ctx context.Context) error {
		return m.Do(ctx, func(context.Context) error { // the same lock, by the context
			fmt.Println("inside twice")
			return nil
		})
	})
	fmt.Println(err)

	strict := c.Mutex("/locks/a")
	err = strict.Do(context.Background(), func(ctx context.Context) error {
		_, _, err := strict.Lock(ctx)
		return err
	})
	fmt.Println(errors.Is(err, zklock.ErrDeadlock))
	// Output:
	// inside twice
	// <nil>
	// true
}

func ExampleWithMaxWait() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()
	_, hold, err := c.Mutex("/locks/a").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock()
	_, _, err = c.Mutex("/locks/a", zklock.WithMaxWait(50*time.Millisecond)).Lock(ctx)
	fmt.Println(errors.Is(err, zklock.ErrBusy))
	// Output: true
}

func ExampleWithMaxHold() {
	c, done := dialExample(context.Background())
	defer done()
	err := c.Mutex("/locks/a", zklock.WithMaxHold(50*time.Millisecond)).Do(context.Background(),
		func(ctx context.Context) error {
			<-ctx.Done() // work that hangs
			return context.Cause(ctx)
		})
	fmt.Println(errors.Is(err, zklock.ErrMaxHold))
	// Output: true
}
