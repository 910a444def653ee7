package zktest_test

const sessionCases = `
timeout as asked: a connect t=10000 | a ping
timeout too small: a connect t=1 | b connect t=0 | c connect t=-5
timeout too large: a connect t=100000 | b connect t=0x7fffffff
timeout at the bounds: a connect t=4000 | b connect t=40000 | c connect t=3999 | d connect t=40001
reattach: a create $/e m=e | a drop | a reattach | a exists $/e | a ephemerals $
reattach with another timeout: a connect t=5000 | a drop | a reattach t=9000 | a ping
reattach with timeout too large: a connect t=5000 | a drop | a reattach t=99000
reattach while connected: a create $/e m=e | a reattach | a exists $/e
reattach with a bad password: a create $/e m=e | a drop | a reattach pw=bad | b exists $/e
reattach after close: a create $/e m=e | a close | a reattach | b exists $/e
reattach takes no zxid: a create $/x | a drop | a reattach | a create $/y
session takes a zxid: a create $/x | b create $/y | c create $/z
close takes a zxid: a create $/x | b ping | b close | a create $/y
close: a close | a eof
close deletes in one transaction: a create $/e1 m=e | a create $/e2 m=e | a create $/x | a create $/x/e3 m=e | a close | b exists $ | b exists $/x | b ls $ | b ls $/x
close with nothing: a close | b create $/x
client ahead of the server: a connect seen=1000000
client at the server: a connect seen=1 | a ping
client that knows nothing: a connect seen=0 | a ping
client ahead on reattach: a create $/x | a drop | a reattach seen=1000000 | b exists $/x
reattach as another: a create $/e m=e | b ping | b reattach as=a | b ephemerals $ | b close | c exists $/e
identities go with the connection: a auth digest u:p | a create $/x acl=31:auth: | a get $/x | a drop | a reattach | a get $/x | a whoami | a auth digest u:p | a get $/x
ephemeral of a reattached session: a drop | a reattach | a create $/e m=e | a close | b exists $/e
`

const malformedCases = `
unknown operation: a raw 50 | a eof
unknown operation 105 and on: a raw 108 | a eof
unknown negative operation: a raw -5 | a eof
operation 10: a raw 10 | a eof
notification as a request: a raw 0 | a eof
check by itself: a create $/x | a quiet check $/x | a ping | a create $/y
check by itself refused: a check $/x | a check $ v=7 | a check nonsense | a create $/y
error as a request: a raw -1 | a eof
unknown operation does not end the session: a create $/e m=e | a raw 50 | a eof | b exists $/e
deletecontainer by a client: a createc $/c m=c | a raw 20 000000022f78 | a raw 20 | a raw 20 2f78 | a ping | a create $/y
empty create: a raw 1 | a ping | a create $/x
empty delete: a raw 2 | a ping | a create $/x
empty exists: a raw 3 | a ping
empty get: a raw 4 | a ping
empty set: a raw 5 | a ping | a create $/x
empty getacl: a raw 6 | a ping
empty setacl: a raw 7 | a ping | a create $/x
empty ls: a raw 8 | a ping
empty sync: a raw 9 | a ping
empty ls2: a raw 12 | a ping
empty multi: a raw 14 | a ping | a create $/x
empty create2: a raw 15 | a ping | a create $/x
empty reconfig: a raw 16 | a ping | a create $/x
empty chkwatch: a raw 17 | a ping
empty rmwatch: a raw 18 | a ping
empty createc: a raw 19 | a ping | a create $/x
empty createttl: a raw 21 | a ping | a create $/x
empty multiread: a raw 22 | a ping
empty setwatches: a raw 101 | a ping
empty ephemerals: a raw 103 | a ping
empty count: a raw 104 | a ping
empty setwatches2: a raw 105 | a ping
empty addwatch: a raw 106 | a ping
empty auth: a raw 100 | a eof
empty sasl: a raw 102 | a eof
trailing bytes: a raw 11 0102030405 | a raw 3 0000000a2f7a6f6f6b656570657200ffffff | a ping
null path create: a raw 1 ffffffff00000000000000010000001f00000005776f726c6400000006616e796f6e6500000000 | a ping | a create $/x
null path delete: a raw 2 ffffffffffffffff | a ping | a create $/x
null path exists: a raw 3 ffffffff00 | a ping
null path get: a raw 4 ffffffff00 | a ping
null path set: a raw 5 ffffffff00000000ffffffff | a ping
null path sync: a raw 9 ffffffff | a ping
null path setacl: a raw 7 ffffffff000000010000001f00000005776f726c6400000006616e796f6e65ffffffff | a ping | a create $/x
null path check: a raw 13 ffffffffffffffff | a ping | a create $/x
null path createttl: a raw 21 ffffffff00000000000000010000001f00000005776f726c6400000006616e796f6e65000000050000000000001000 | a ping
null path in multi: a raw 14 0000000d00ffffffffffffffffffffffffffffffff01ffffffff | a ping | a create $/x
null path in multi delete: a raw 14 0000000200ffffffffffffffffffffffffffffffff01ffffffff | a ping | a create $/x
null path in multiread: a raw 22 0000000400ffffffffffffffff00ffffffff01ffffffff | a ping | a create $/x
null path in multiread ls: a raw 22 0000000800ffffffffffffffff00ffffffff01ffffffff | a ping | a create $/x
null path rmwatch: a raw 18 ffffffff00000003 | a raw 17 ffffffff00000003 | a ping
null path addwatch: a raw 106 ffffffff00000000 | a ping | a create $/x
null path in setwatches: a raw 101 000000000000000000000001ffffffff0000000000000000 | a ping
null path getacl: a raw 6 ffffffff | a ping
null path ls: a raw 8 ffffffff00 | a ping
null path ls2: a raw 12 ffffffff00 | a ping
null path count: a raw 104 ffffffff | a ping
null prefix: a create $/e m=e | a raw 103 ffffffff | a ping
negative length path: a raw 3 fffffffe00 | a ping
huge length path: a raw 3 7fffffff00 | a ping
torn path: a raw 3 000000102f78 | a ping
torn multi: a raw 14 0000000100ffffffff | a ping | a create $/x
multi without end: a raw 14 0000000200ffffffff000000022f78ffffffff | a ping | a create $/x
multi of unknown part: a raw 14 0000006300ffffffffffffffff01ffffffff | a ping | a create $/x
negative vector: a raw 101 0000000000000000fffffffefffffffefffffffe | a ping
null vector: a raw 101 0000000000000000ffffffffffffffffffffffff | a ping
huge vector: a raw 101 00000000000000007fffffff | a ping
acl with null scheme: a raw 7 000000012f000000010000001fffffffff0000000161ffffffff | a ping | a create $/x
acl with null id: a raw 7 000000012f000000010000001f00000005776f726c64ffffffffffffffff | a ping | a create $/x
frame without header: a frame | a eof
frame with half a header: a frame 00000001 | a eof
length below zero: a length -1 | b ping
length too large: a length 0x00100000 | b ping
length far too large: a length 0x7fffffff | b ping
`
