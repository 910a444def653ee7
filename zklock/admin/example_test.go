package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zktest"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	srv, err := zktest.Start() // stands for "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	client, err := zklock.Dial(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	work, hold, err := client.Mutex("/locks/report", zklock.WithOwner("nightly")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for k, err := range admin.Queue(ctx, client, "/locks/report") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(k.Kind, k.Owner, k.Holds, k.Token == hold.Token())
	}
	fmt.Println(admin.Evict(ctx, client, "/locks/report", hold.Token()))
	<-work.Done()
	fmt.Println(errors.Is(hold.Err(), zklock.ErrNodeDeleted))
	// Output:
	// mutex nightly true true
	// <nil>
	// true
}
