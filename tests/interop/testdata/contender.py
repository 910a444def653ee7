"""Contenders for Kazoo's lock, each a thread with a session of its own; steps and answers as in Contender.java.

Usage: contender.py SERVERS SESSION-TIMEOUT-IN-MS
"""
import os
import queue
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock


class SharedLock(Lock):
    """A Kazoo lock that shares its path with Go and Java programs."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class Contender(threading.Thread):
    def __init__(self, name):
        super().__init__(daemon=True)
        self.id = name
        self.steps = queue.Queue()
        self.client = self.lock = None

    def run(self):
        while True:
            words = self.steps.get()
            try:
                answer = self.step(words[1], words[2] if len(words) > 2 else "")
            except Exception as e:
                answer = "error %r" % e
            say(self.id + " " + answer)

    def step(self, word, argument):
        if word == "open":
            self.client = KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000)
            self.client.start(timeout=30)
            self.lock = SharedLock(self.client, argument, "kazoo-" + self.id)
            return "open %d" % self.client.client_id[0]
        if word == "lock":
            try:
                return "held" if self.lock.acquire(timeout=int(argument) / 1000) else "late"
            except LockTimeout:
                return "late"
        if word == "unlock":
            return "free" if self.lock.release() else "error not held"
        if word == "line":
            return "line %d" % len(self.lock.contenders())
        if word == "close":
            self.client.stop()
            self.client.close()
            return "closed"
        return "error unknown step " + word


one_at_a_time = threading.Lock()


def say(line):
    with one_at_a_time:
        print(line, flush=True)


everybody = {}
for line in sys.stdin:
    words = line.split()
    if words[0] not in everybody:
        everybody[words[0]] = Contender(words[0])
        everybody[words[0]].start()
    everybody[words[0]].steps.put(words)
os._exit(0)
