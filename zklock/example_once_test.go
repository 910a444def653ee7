package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zklock/locker/zklock"
)

// Every instance of a service makes the migrations when it starts: each is made once, in the whole fleet.
func ExampleClient_Once() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()

	migrations := c.Once("/locks/orders/migrations")
	for instance := range 2 {
		for _, name := range []string{"001-orders", "002-index"} {
			err := migrations.Do(ctx, name, func(context.Context) error {
				fmt.Println("instance", instance, "makes", name)
				return nil
			})
			if err != nil && !errors.Is(err, zklock.ErrDone) {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// instance 0 makes 001-orders
	// instance 0 makes 002-index
}
