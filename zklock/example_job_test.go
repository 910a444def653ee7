package zklock_test

import (
	"context"
	"fmt"
	"log"
)

// Every instance of a service makes the migrations when it starts: each is made once, in the whole
// fleet.
func ExampleJob_Once() {
	ctx := context.Background()
	c, done := dialExample(ctx)
	defer done()

	migrations := c.Job("/locks/orders/migrations")
	for instance := range 2 {
		for _, name := range []string{"001-orders", "002-index"} {
			_, err := migrations.Once(ctx, name, func(context.Context) error {
				fmt.Println("instance", instance, "makes", name)
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// instance 0 makes 001-orders
	// instance 0 makes 002-index
}
