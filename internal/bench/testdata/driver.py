"""Kazoo's Lock as a contestant of the benchmark. The protocol is in ../load/doc.go."""
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


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Driver:
    def __init__(self):
        self.clients, self.threads, self.ops, self.failed = [], [], [], []
        self.held, self.over = None, True

    def open(self, words, clients, workers, locks):
        self.end()
        servers = words[1].split(",")
        for i in range(clients):
            server = servers[(i + int(words[2])) % len(servers)]
            client = KazooClient(hosts=server, timeout=int(words[3]) / 1000)
            self.clients.append(client)
            client.start_async()
        for client in self.clients:
            deadline = time.monotonic() + 30
            while not client.connected:
                if time.monotonic() > deadline:
                    raise TimeoutError("not connected")
                time.sleep(0.001)
        return [Lock(self.clients[i // workers], "%s/%d" % (words[4], i % locks), DATA) for i in range(clients * workers)]

    def end(self):
        for client in self.clients:
            client.stop()
            client.close()
        self.__init__()

    def cycle(self, lock, number, ops):
        asked = now()
        if not lock.acquire(timeout=BOUND):
            raise TimeoutError("not acquired within %d s" % BOUND)
        got = now()
        leaving = now()
        lock.release()
        ops.append((number, asked, got, leaving, now()))

    def start(self, all_locks, first, locks):
        def work(lock, number, ops):
            try:
                while True:
                    self.cycle(lock, number, ops)
                    if self.over or self.failed:
                        return
            except Exception as e:  # told by join
                self.failed.append(e)

        for i in range(first, len(all_locks)):
            ops = []
            self.ops.append(ops)
            t = threading.Thread(target=work, args=(all_locks[i], i % locks, ops), daemon=True)
            self.threads.append(t)
            t.start()

    def join(self):
        for t in self.threads:
            t.join()
        if self.failed:
            raise self.failed[0]

    def report(self):
        sys.stdout.write("".join("op %d %d %d %d %d\n" % op for ops in self.ops for op in ops))

    def cycles(self):
        return sum(map(len, self.ops))

    def at(self, word, millis, enough):
        time.sleep(millis / 1000)
        while self.cycles() < enough and not self.failed:
            time.sleep(0.001)
        say("%s %d" % (word, now()))

    def run(self, words, clients, workers, locks, warm, run):
        lockers = self.open(words, clients, workers, locks)
        say("opened")
        self.over = False
        self.start(lockers, 0, locks)
        few = max(locks, len(lockers) // 20)
        self.at("start", warm, few)
        self.at("end", run, self.cycles() + few)
        self.over = True
        self.join()
        self.report()
        self.end()
        say("done")

    def park(self, words, clients, workers):
        lockers = self.open(words, clients, workers, 1)
        say("opened")
        asked = now()
        lockers[0].acquire()
        self.held = (lockers[0], asked, now())
        self.start(lockers, 1, 1)
        say("held %d" % self.held[2])

    def drain(self):
        lock, asked, got = self.held
        leaving = now()
        lock.release()
        left = now()
        self.join()
        self.ops.append([(0, asked, got, leaving, left)])
        self.report()
        self.end()
        say("done")

    def step(self, words):
        if words[0] == "run":
            self.run(words, *map(int, words[5:10]))
        elif words[0] == "park":
            self.park(words, *map(int, words[5:7]))
        elif words[0] == "hold":
            self.park(words, 1, 1)
        elif words[0] == "measure":
            say("memory -1")
        elif words[0] == "drain":
            self.drain()
        else:
            raise ValueError("unknown command " + words[0])


threading.stack_size(256 * 1024)
driver = Driver()
for line in sys.stdin:
    words = line.split()
    try:
        driver.step(words)
    except Exception as e:
        say(("error %s: %r" % (words[0], e)).replace("\n", " "))
driver.end()
os._exit(0)
