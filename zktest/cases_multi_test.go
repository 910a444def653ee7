package zktest_test

const multiCases = `
multi of nothing: a multi | a create $/x
multi create: a multi create $/x d=1 | a get $/x
multi create and use: a multi create $/x ; create $/x/y ; set $/x d=1 ; check $/x v=1 ; delete $/x/y | a ls2 $/x
multi sequence: a multi create $/s- m=s ; create $/s- m=s ; create $/s- m=es | a ls2 $ | a create $/s- m=s
multi sequence after a failed one: a multi create $/s- m=s ; create $ | a create $/s- m=s | a ls2 $
multi delete and create: a create $/x d=1 | a multi delete $/x ; create $/x d=2 | a get $/x
multi create and delete: a multi create $/x ; delete $/x | a ls2 $
multi create twice: a multi create $/x ; create $/x | a ls2 $
multi delete twice: a create $/x | a multi delete $/x ; delete $/x | a exists $/x
multi set twice: a create $/x | a multi set $/x d=1 v=0 ; set $/x d=2 v=1 | a get $/x
multi set and stale check: a create $/x | a multi set $/x d=1 ; check $/x v=0 | a get $/x
multi check: a create $/x | a multi check $/x v=0 | a multi check $/x v=-1 | a multi check $/x v=1 | a multi check $/x v=-2
multi check missing: a multi check $/x v=0 | a multi check $/x v=-1
multi check guards: a create $/x | a multi check $/x v=0 ; create $/y | a set $/x d=1 | a multi check $/x v=0 ; create $/z | a ls $
multi first fails: a multi create $ ; create $/x ; create $/y | a ls2 $
multi last fails: a multi create $/x ; create $/y ; create $ | a ls2 $
multi two would fail: a multi create $/no/x ; delete $/no | a ping
multi delete with child made inside: a create $/x | a multi create $/x/y ; delete $/x | a ls $/x
multi child of deleted: a create $/x | a multi delete $/x ; create $/x/y | a ls $/x
multi child of ephemeral made inside: a multi create $/e m=e ; create $/e/x | a ls $
multi ephemerals: a multi create $/e1 m=e ; create $/e2 m=es | a ephemerals $ | a close | b ls2 $
multi zxid: a multi create $/x ; create $/y | a exists $/x | a exists $/y | a exists $
multi failed takes a zxid: a multi create $ | a ping | a create $/x
multi acl: a auth digest u:p | a create $/x acl=31:auth: | b multi set $/x d=1 | b multi create $/x/y | b multi check $/x | b multi delete $/x | b ls $
multi by the one allowed: a auth digest u:p | a create $/x acl=31:auth: | a multi set $/x d=1 ; create $/x/y acl=31:auth: ; check $/x | b multi set $/x d=2 | a ls2 $/x
multi with acl of what was made inside: a multi create $/x acl=read ; create $/x/y | a multi create $/x acl=read ; set $/x d=1 | a ls $
multi containers: a multi createc $/c m=c ; create $/c/x | a ls2 $/c
multi null data: a multi create $/x d=null ; set $/x d=null | a get $/x
multi stat inside: a create $/x | a multi set $/x d=123 ; create $/x/y ; set $/x d=4 ; delete $/x/y ; set $/x d=55 | a exists $/x
multi of forty: a multi create $/1 ; create $/2 ; create $/3 ; create $/4 ; create $/5 ; create $/6 ; create $/7 ; create $/8 ; delete $/1 ; delete $/2 ; delete $/3 ; delete $/4 ; delete $/5 ; delete $/6 ; delete $/7 ; delete $/8 ; create $/1 ; create $/2 ; create $/3 ; create $/4 | a ls2 $
multi root: a multi check / v=0 | a multi check / v=-1 | a multi delete / | a multi create /
multi pzxid of parent: a create $/x | a multi delete $/x ; create $/y ; create $/z | a ls2 $ | a multi delete $/y | a ls2 $
`

const multiReadCases = `
multiread: a create $/x d=1 | a create $/x/y | a multiread get $/x ; ls $/x ; get $/x/y
multiread of nothing: a multiread | a ping
multiread with a missing one: a create $/x d=1 | a multiread get $/no ; get $/x ; ls $/no ; ls $/x
multiread refused: a auth digest u:p | a create $/x acl=31:auth: | b multiread get $/x ; ls $/x ; get $ | a multiread get $/x
multiread sets no watch: a create $/x | b multiread get $/x w ; ls $/x w | a set $/x d=1 | a create $/x/y | b ping
multiread of a write: a multiread create $/x | a ls $ | a multiread check $ | a multiread set $ d=1 | a multiread delete $/x
multiread mixed: a multiread get $ ; create $/x | a multi get $ ; create $/x | a multi create $/x ; get $ | a ls $
multiread null data: a create $/x d=null | a multiread get $/x
multiread of exists: a multiread exists $ | a multiread ls2 $ | a multiread getacl $
`
