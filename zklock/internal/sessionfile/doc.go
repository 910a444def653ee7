// Package sessionfile keeps the keys of a process's ZooKeeper sessions in a file. If the process
// crashes, the process that starts in its place closes these sessions at once, and so frees the
// locks for which everybody else would wait until the ensemble ends the sessions.
//
// That is safe only if nothing runs any more that the locks have protected. The file shows it:
//
//   - A process locks the file as long as it lives (flock). The system unlocks it when the last
//     descriptor of that opening is closed, which is after the process's last thread has ended. A
//     child has the descriptor only if the program passes it on, and then counts as the process.
//   - The file is written in place, and never renamed or removed. A process that has the lock
//     checks that the path still leads to the file it has locked.
//   - So each record that a process finds in a file, under the lock, was written by processes that
//     have ended; if it was written to this file. A record names its file: by the boot of the
//     system, and by device and inode, which no other file has while a process has this one open.
//     What was copied, restored from elsewhere, or written before the last boot names another file.
//   - Not every file system locks for the whole machine, or for this machine alone. Open refuses
//     all but those that are known to do so.
//
// If any of this is in doubt, no session is closed, and the locks are free after the session
// timeout, as they are without the file.
//
// It knows no ZooKeeper: it has the keys, and package zklock closes the sessions.
package sessionfile
