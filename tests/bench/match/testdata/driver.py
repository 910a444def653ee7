"""Kazoo's Lock as a contestant of the benchmark. The protocol is in ../../load/load.go."""
import os
import socket
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

BOUND = 300  # seconds
DATA = '{"host":"%s","pid":%d}' % (socket.gethostname(), os.getpid())

now = time.monotonic_ns


class Run:
    def __init__(self, servers, offset, timeout, root, *numbers):
        self.servers, self.offset, self.timeout, self.root = servers.split(","), int(offset), int(timeout) / 1000, root
        self.count, self.workers, self.locks, self.warm, self.run = map(int, numbers)
        self.clients, self.ops, self.failed, self.over = [], [], [], False

    def open(self):
        for i in range(self.count):
            server = self.servers[(i + self.offset) % len(self.servers)]
            self.clients.append(KazooClient(hosts=server, timeout=self.timeout))
            self.clients[i].start_async()
        for client in self.clients:
            deadline = time.monotonic() + 30
            while not client.connected:
                if time.monotonic() > deadline:
                    raise TimeoutError("not connected")
                time.sleep(0.001)

    def close(self):
        for client in self.clients:
            client.stop()
            client.close()

    def work(self, worker, ops):
        number = worker % self.locks
        lock = Lock(self.clients[worker // self.workers], "%s/%d" % (self.root, number), DATA)
        try:
            while not self.over and not self.failed:
                asked = now()
                if not lock.acquire(timeout=BOUND):
                    raise TimeoutError("not acquired within %d s" % BOUND)
                got = now()
                lock.release()
                ops.append((number, asked, got, now()))
        except Exception as e:  # told by measure
            self.failed.append(e)

    def cycles(self):
        return sum(map(len, self.ops))

    def after(self, millis, enough):
        time.sleep(millis / 1000)
        while self.cycles() < enough and not self.failed:
            time.sleep(0.001)
        return now()

    def measure(self):
        threads = []
        for i in range(self.count * self.workers):
            self.ops.append([])
            threads.append(threading.Thread(target=self.work, args=(i, self.ops[i]), daemon=True))
            threads[i].start()
        few = max(self.locks, len(threads) // 20)
        start = self.after(self.warm, few)
        end = self.after(self.run, self.cycles() + few)
        self.over = True
        for t in threads:
            t.join()
        if self.failed:
            raise self.failed[0]
        return "".join("op %d %d %d %d\n" % op for ops in self.ops for op in ops) + "done %d %d\n" % (start, end)


threading.stack_size(256 * 1024)
for line in sys.stdin:
    try:
        run = Run(*line.split()[1:])
        try:
            run.open()
            answer = run.measure()
        finally:
            run.close()
    except Exception as e:
        answer = "error %s\n" % repr(e).replace("\n", " ")
    sys.stdout.write(answer)
    sys.stdout.flush()
os._exit(0)
