"""Two Kazoo clients take and release one lock in turn. Usage: lock.py host:port; prints one line per step."""
import sys
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

one, two = (KazooClient(hosts=sys.argv[1], timeout=10.0) for _ in range(2))
one.start(timeout=10)
two.start(timeout=10)
a, b = one.Lock("/kazoo/lock", "one"), two.Lock("/kazoo/lock", "two")
assert a.acquire(timeout=10)
print("one holds", a.contenders())
try:
    b.acquire(timeout=0.3)
    print("both hold")
except LockTimeout:
    print("two waits")
a.release()
assert b.acquire(timeout=10)
print("two holds", b.contenders())
b.release()
print("left", one.get_children("/kazoo/lock"))
with one.transaction() as t:
    t.create("/kazoo/t", b"x")
    t.check("/kazoo/t", 0)
print("data", one.get("/kazoo/t")[0].decode())
for c in (one, two):
    c.stop()
    c.close()
