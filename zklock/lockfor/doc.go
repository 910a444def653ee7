// Package lockfor fits locks into the interfaces that other libraries have for one: goose's
// migrations, gocron's jobs, and certmagic's certificates. Its types have the methods that those
// interfaces want, and use nothing but package zklock, so none of these libraries is required.
//
// Where you can, wrap your work in Mutex.Do, Job.Once or Job.Every instead: the work then has a
// context that ends when the lock is lost. With the interfaces here it has none. Only certmagic
// asks, now and then, whether it still has the lock: see CertmagicLocker.RenewLockLease.
package lockfor
