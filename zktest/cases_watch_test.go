package zktest_test

const watchCases = `
watch data changed: a create $/x | b get $/x w | a set $/x d=1 | a set $/x d=2 | b ping
watch data deleted: a create $/x | b get $/x w | a delete $/x | b ping
watch exists created: b exists $/x w | a create $/x | a delete $/x | b ping
watch exists changed: a create $/x | b exists $/x w | a set $/x d=1 | b ping
watch exists deleted: a create $/x | b exists $/x w | a delete $/x | b ping
watch children created: b ls $ w | a create $/x | a create $/y | b ping
watch children deleted: a create $/x | b ls2 $ w | a delete $/x | b ping
watch children node deleted: a create $/x | b ls $/x w | a delete $/x | b ping
watch children hears no data: a create $/x | b ls $/x w | a set $/x d=1 | b ping
watch data hears no children: a create $/x | b get $/x w | a create $/x/y | b ping
watch data and children deleted: a create $/x | b get $/x w | b ls $/x w | a delete $/x | b ping
watch own change: a create $/x | a get $/x w | a set $/x d=1
watch own create before the reply: a exists $/x w | a ls $ w | a create $/x
watch own delete before the reply: a create $/x | a exists $/x w | a ls $/x w | a ls $ w | a delete $/x
watch twice hears once: a create $/x | b get $/x w | b get $/x w | b exists $/x w | a set $/x d=1 | a set $/x d=2 | b ping
watch by two sessions: a create $/x | b get $/x w | c get $/x w | a set $/x d=1 | b ping | c ping
watch of a failed set: a create $/x | b get $/x w | a set $/x d=1 v=7 | b ping
watch of a failed create: b exists $/x w | a create $/x acl=none | b ping | a create $/x | b ping
watch setacl is no change: a create $/x | b get $/x w | b exists $/x w | a setacl $/x acl=read | b ping
watch missing get sets none: b get $/x w | a create $/x | b ping
watch missing ls sets none: b ls $/x w | a create $/x | a create $/x/y | b ping
watch refused get sets none: a create $/x acl=30:world:anyone | b get $/x w | a set $/x d=1 | b ping
watch ephemeral gone: a create $/e m=e | b exists $/e w | b ls $ w | a close | b ping
watch own ephemeral while closing: a create $/e m=e | a exists $/e w | a close
watch sequential: b ls $ w | a create $/s- m=es | b ping | b exists $/s-0000000000 w | a close | b ping
watch grandchildren: a create $/x | b ls $ w | a create $/x/y | b ping
watch the parent of the watched: a create $/x | b exists $/x/y w | b exists $/x w | a create $/x/y | a delete $/x/y | a delete $/x | b ping
watch the root's alias: a exists <empty> w | a ls / w | a create $/x
watch survives another's close: a create $/x | b get $/x w | c get $/x w | c close | a set $/x d=1 | b ping
watch goes with its session: a create $/x | b get $/x w | b close | a set $/x d=1 | a ping
watch goes with its connection: a create $/x | b get $/x w | b drop | b reattach | a set $/x d=1 | b ping
watch in one multi: b ls $ w | b exists $/x w | a multi create $/x ; set $/x d=1 ; delete $/x | b ping
watch in a failed multi: b ls $ w | b exists $/x w | a multi create $/x ; set $/x d=1 v=9 | b ping
watch in a multi own: a ls $ w | a exists $/x w | a exists $/y w | a multi create $/x ; create $/y
watch data of container: a createc $/c m=c | b get $/c w | a set $/c d=1 | b ping
watch delete then create: a create $/x | b exists $/x w | a multi delete $/x ; create $/x | b exists $/x w | b ping
`

const persistentWatchCases = `
persistent: b addwatch $/x t=0 | a create $/x | a set $/x d=1 | a create $/x/y | a set $/x/y d=1 | a delete $/x/y | a delete $/x | b ping
persistent on the parent: b addwatch $ t=0 | a create $/x | a set $/x d=1 | a delete $/x | a set $ d=1 | b ping
persistent own: a addwatch $ t=0 | a create $/x | a set $ d=1 | a delete $/x
recursive: b addwatch $ t=1 | a create $/x | a set $/x d=1 | a create $/x/y | a create $/x/y/z | a set $/x/y/z d=1 | a delete $/x/y/z | a delete $/x/y | a delete $/x | b ping
recursive below: b addwatch $/x t=1 | a create $/x | a create $/y | a create $/x/y | a set $ d=1 | b ping
recursive is no prefix: b addwatch $/x t=1 | a create $/xx | a create $/x | b ping
recursive on the root: b addwatch / t=1 | a create $/x | a delete $/x | b ping | b rmwatch / t=3
recursive and a plain watch: b addwatch $/x t=1 | b exists $/x w | a create $/x | a set $/x d=1 | a set $/x d=2 | b ping
recursive above a plain watch: b addwatch $ t=1 | b exists $/x w | a create $/x | a set $/x d=1 | b ping
recursive and children: b addwatch $ t=1 | b ls $ w | a create $/x | a create $/y | b ping
recursive above children: a create $/x | b addwatch $ t=1 | b ls $/x w | a create $/x/y | a create $/x/z | b ping
recursive delete heard once: a create $/x | b addwatch $ t=1 | b ls $/x w | b get $/x w | a delete $/x | b ping
persistent and a plain watch: b addwatch $/x t=0 | b exists $/x w | a create $/x | a set $/x d=1 | a set $/x d=2 | b ping
persistent and a plain children watch: a create $/x | b addwatch $/x t=0 | b ls $/x w | a create $/x/1 | a create $/x/2 | a set $/x d=1 | b ping
plain watch and persistent: b exists $/x w | b addwatch $/x t=0 | a create $/x | a set $/x d=1 | a set $/x d=2 | b ping
persistent turned recursive: b addwatch $/x t=0 | b addwatch $/x t=1 | a create $/x | a create $/x/y | a delete $/x/y | b ping
recursive turned persistent: b addwatch $/x t=1 | b addwatch $/x t=0 | a create $/x | a create $/x/y | a set $/x/y d=1 | b ping
two recursives: b addwatch $ t=1 | b addwatch $/x t=1 | a create $/x | a create $/x/y | b ping | b rmwatch $ t=3 | a set $/x d=1 | a create $/z | b ping
recursive of two sessions: b addwatch $ t=1 | c addwatch $/x t=0 | a create $/x | a set $/x d=1 | b ping | c ping
unknown mode: a addwatch $/x t=2 | a addwatch $/x t=-1 | a ping
persistent on a bad path: a addwatch nonsense t=0 | a addwatch <empty> t=1 | a create $/x
recursive and a closing session: b addwatch $ t=1 | a create $/e m=e | a close | b ping
recursive and a multi: b addwatch $ t=1 | a multi create $/x ; create $/x/y ; set $/x/y d=1 ; delete $/x/y | b ping
persistent goes with its connection: b addwatch $ t=0 | b drop | b reattach | a create $/x | b ping
`

const removeWatchCases = `
remove data: a create $/x | b get $/x w | b rmwatch $/x t=2 | a set $/x d=1 | b ping | b rmwatch $/x t=2
remove children: a create $/x | b ls $/x w | b rmwatch $/x t=1 | a create $/x/y | b ping | b rmwatch $/x t=1
remove any: a create $/x | b ls $/x w | b get $/x w | b rmwatch $/x t=3 | a create $/x/y | a set $/x d=1 | b ping
remove none: b rmwatch $/x t=1 | b rmwatch $/x t=2 | b rmwatch $/x t=3
remove the other kind: a create $/x | b ls $/x w | b rmwatch $/x t=2 | b get $/x w | b rmwatch $/x t=1 | b rmwatch $/x t=1 | a set $/x d=1 | b ping
remove of another session: a create $/x | b get $/x w | c rmwatch $/x t=3 | a set $/x d=1 | b ping
remove unknown kind: b rmwatch $/x t=0 | b rmwatch $/x t=4 | b rmwatch $/x t=5 | b rmwatch $/x t=-1 | b ping
remove persistent: b addwatch $/x t=0 | b rmwatch $/x t=3 | a create $/x | b ping
remove persistent data half: b addwatch $/x t=0 | b rmwatch $/x t=2 | a create $/x | a create $/x/y | b ping
remove persistent children half: b addwatch $/x t=0 | b rmwatch $/x t=1 | a create $/x | a create $/x/y | b ping
remove recursive: b addwatch $ t=1 | b rmwatch $ t=3 | a create $/x | b ping
remove recursive data half: b addwatch $ t=1 | b rmwatch $ t=2 | a create $/x | a set $/x d=1 | a delete $/x | b ping
remove recursive children half: b addwatch $ t=1 | b rmwatch $ t=1 | a create $/x | a set $/x d=1 | a delete $/x | b ping
remove below recursive: b addwatch $ t=1 | b rmwatch $/x t=3 | a create $/x | b ping
remove missing node: b exists $/x w | b rmwatch $/x t=2 | a create $/x | b ping
check data: a create $/x | b get $/x w | b chkwatch $/x t=2 | b chkwatch $/x t=1 | b chkwatch $/x t=3
check children: a create $/x | b ls $/x w | b chkwatch $/x t=2 | b chkwatch $/x t=1 | b chkwatch $/x t=3
check none: b chkwatch $/x t=1 | b chkwatch $/x t=2 | b chkwatch $/x t=3
check of another session: a create $/x | b get $/x w | c chkwatch $/x t=2
check unknown kind: b chkwatch $/x t=0 | b chkwatch $/x t=9 | b ping
check after firing: a create $/x | b get $/x w | a set $/x d=1 | b chkwatch $/x t=2
check persistent: b addwatch $/x t=0 | b chkwatch $/x t=1 | b chkwatch $/x t=2 | b chkwatch $/x t=3
check recursive below: b addwatch $ t=1 | b chkwatch $ t=3 | b chkwatch $/x t=3 | b chkwatch $/x/y t=2
`

const setWatchesCases = `
setwatches on what is as it was: a create $/x | b setwatches z=999 d=$/x c=$/x e=$/y | a set $/x d=1 | a create $/x/1 | a create $/y | b ping
setwatches after a change: a create $/x | a set $/x d=1 | a create $/x/y | b setwatches z=1 d=$/x c=$/x | a set $/x d=2 | b ping
setwatches after a deletion: b setwatches z=1 d=$/x c=$/x | a create $/x | b ping
setwatches after a creation: a create $/x | b setwatches z=1 e=$/x | a set $/x d=1 | b ping
setwatches of nothing: b setwatches z=1 | b setwatches2 z=1 | b ping
setwatches at the exact zxid: a create $/x | b setwatches z=1 d=$/x | a set $/x d=1 | b setwatches z=4 d=$/x | b ping
setwatches2 persistent: b setwatches2 z=1 p=$/x | a create $/x | a set $/x d=1 | a create $/x/y | b ping
setwatches2 recursive: b setwatches2 z=1 r=$ | a create $/x | a set $/x d=1 | b ping | b rmwatch $ t=1 | b rmwatch $ t=2
setwatches2 all kinds: a create $/x | b setwatches2 z=999 d=$/x e=$/n c=$/x p=$/p r=$/x | a set $/x d=1 | a create $/n | a create $/p | a delete $/x | b ping
setwatches far ahead: a create $/x | a set $/x d=1 | b setwatches z=9000000000000000000 d=$/gone,$/x,$/also | a set $/x d=2 | a create $/gone | b ping
setwatches far ahead of two that go: a create $/x m=e | a create $/y m=e | b setwatches z=9000000000000000000 d=$/y,$/x | a multi delete $/x ; delete $/y | b ping
setwatches far ahead of one that goes with a mark: a create $/p m=e | a create $/o m=e | b setwatches z=9000000000000000000 d=$/o,$/p e=$/p-released | a multi create $/p-released m=e acl=1:world:anyone ; delete $/p-released ; delete $/p | b ls $ | b rmwatch $/o t=2 | b rmwatch $/p-released t=2
setwatches far ahead of a mark that some may not read: a auth digest u:p | a create $/p m=e acl=31:auth: | b setwatches z=9000000000000000000 d=$/p e=$/p-released | a multi create $/p-released m=e acl=1:world:anyone ; delete $/p-released ; delete $/p | b ping
setwatches far ahead of a mark that is there: a create $/m | b setwatches z=9000000000000000000 e=$/m | a delete $/m | b rmwatch $/m t=2
setwatches far ahead of an own znode: a create $/x m=e | a create $/y m=e | a setwatches z=9000000000000000000 d=$/y,$/x | a delete $/x | a delete $/y
setwatches far ahead twice: a create $/x | b setwatches z=9000000000000000000 d=$/x | b setwatches z=9000000000000000000 d=$/x | b rmwatch $/x t=2 | a delete $/x | b setwatches z=9000000000000000000 d=$/x | b rmwatch $/x t=2
setwatches many: a create $/x | a create $/y | b setwatches z=1 d=$/x,$/y,$/z e=$/x,$/y,$/z c=$/x,$/y,$/z | b ping
setwatches with zxid 0: a create $/x | b setwatches z=-1000000 d=$/x c=$/x | b ping
setwatches of what may not be read: a auth digest u:p | a create $/x acl=31:auth: | b setwatches z=999 d=$/x c=$/x | a set $/x d=1 | b ping
setwatches of changes that may not be read: a auth digest u:p | a create $/x acl=31:auth: | a set $/x d=1 | b setwatches z=1 d=$/x c=$/x e=$/x | b ping
`
