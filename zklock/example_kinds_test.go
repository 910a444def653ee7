package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// dialExample starts a server in this process and connects to it: an example has no ensemble.
func dialExample(ctx context.Context) (*zklock.Client, func()) {
	srv, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	c, err := zklock.Dial(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		if err := errors.Join(c.Close(), srv.Close()); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleRWMutex() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := dialExample(ctx)
	defer done()

	config := c.RWMutex("/locks/config")
	_, writer, err := config.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, _, err = config.TryRLock(ctx)
	fmt.Println("read while somebody writes:", errors.Is(err, zklock.ErrBusy))

	if err := writer.Unlock(); err != nil {
		log.Fatal(err)
	}

	_, reader, err := config.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, second, err := config.TryRLock(ctx)
	fmt.Println("read beside a reader:", err)
	fmt.Println(reader.Unlock(), second.Unlock())
	// Output:
	// read while somebody writes: true
	// read beside a reader: <nil>
	// <nil> <nil>
}

func ExampleSemaphore() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := dialExample(ctx)
	defer done()

	exports := c.Semaphore("/locks/exports", 3) // three at a time in the whole fleet
	_, two, err := exports.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	_, _, err = exports.TryAcquire(ctx, 2)
	fmt.Println("two more of three:", errors.Is(err, zklock.ErrBusy))
	_, one, err := exports.TryAcquire(ctx, 1)
	fmt.Println("one more of three:", err)
	fmt.Println(two.Unlock(), one.Unlock())
	// Output:
	// two more of three: true
	// one more of three: <nil>
	// <nil> <nil>
}

func ExampleMultiLock() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := dialExample(ctx)
	defer done()

	transfer := c.MultiLock([]string{"/accounts/alice", "/accounts/bob"})
	err := transfer.Do(ctx, func(context.Context) error {
		_, _, err := c.Mutex("/accounts/bob").TryLock(ctx)
		fmt.Println("bob alone, meanwhile:", errors.Is(err, zklock.ErrBusy))
		return nil
	})
	fmt.Println(err)
	// Output:
	// bob alone, meanwhile: true
	// <nil>
}

func ExampleElection() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := dialExample(ctx)
	defer done()

	partition := c.Election("/partitions/7")
	err := partition.Run(ctx, []byte("10.0.0.5:8080"),
		func(ctx context.Context, l *zklock.Hold) error {
			leader, err := partition.Leader(ctx) // what everybody else sees
			if err != nil {
				return err
			}
			fmt.Printf("%s leads: %v\n", leader.Value, leader.Token == l.Token())
			return nil // resigns
		})
	fmt.Println(err)
	_, err = partition.Leader(ctx)
	fmt.Println(errors.Is(err, zklock.ErrNoLeader))
	// Output:
	// 10.0.0.5:8080 leads: true
	// <nil>
	// true
}

func ExampleElection_Observe() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := dialExample(ctx)
	defer done()

	partition := c.Election("/partitions/7")
	var term *zklock.Hold
	step := 0
	for leader, err := range partition.Observe(ctx) {
		if errors.Is(err, zklock.ErrNoLeader) {
			fmt.Println("nobody leads")
		} else if err != nil {
			log.Fatal(err)
		} else {
			fmt.Printf("%s leads\n", leader.Value)
		}
		switch step++; step {
		case 1:
			_, term, err = partition.Campaign(ctx, []byte("a"))
		case 2:
			err = partition.Proclaim(ctx, term, []byte("b"))
		case 3:
			err = term.Unlock()
		case 4:
			return
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// nobody leads
	// a leads
	// b leads
	// nobody leads
}
