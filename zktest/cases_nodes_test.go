package zktest_test

const createCases = `
create: a create $/x d=hello | a get $/x | a exists $ | a ls2 $
create twice: a create $/x | a create $/x | a ls2 $
create with empty data: a create $/x d= | a get $/x
create with null data: a create $/x d=null | a get $/x | a exists $/x
create below nothing: a create $/x/y
create below an ephemeral: a create $/e m=e | a create $/e/x | a create $/e/s m=s | b create $/e/x
create2: a create2 $/x d=abc
create2 twice: a create2 $/x | a create2 $/x
create2 ephemeral: a create2 $/e m=e | b exists $/e
create2 sequential: a create2 $/s- m=s | b create2 $/s- m=es | a ls2 $
ephemeral: a create $/e m=e d=1 | b get $/e | a close | b exists $/e | b ls2 $
sequential: a create $/s- m=s | a create $/s- m=s | b create $/t- m=s | a ls2 $
sequential counts all children: a create $/x | a create $/y | a create $/s- m=s | a delete $/x | a create $/s- m=s
sequential with an empty name: a create $/ m=s | a create $/ m=es | a ls2 $
sequential at the root: a create /seq-root-$ m=s
ephemeral sequential: a create $/s- m=es | b create $/s- m=es | a close | b create $/s- m=es | b ls2 $
sequential over an existing name: a create $/s-0000000001 | a create $/s- m=s | a create $/s- m=s
sequence after deletes: a create $/s- m=s | a delete $/s-0000000000 | a create $/s- m=s | a ls2 $
sequence after recreating the directory: a create $/d | a create $/d/s- m=s | a delete $/d/s-0000000000 | a delete $/d | a create $/d | a create $/d/s- m=s
sequence after ephemerals went: a create $/s- m=es | a create $/s- m=es | a close | b create $/s- m=s | b exists $
container: a createc $/c m=c | a exists $/c | a create $/c/x | a ls2 $/c
container by flag of create: a create $/c m=c | a exists $/c
container by flag of create2: a create2 $/c m=c | a exists $/c
container with persistent flag: a createc $/c m=p | a exists $/c
container with ephemeral flag: a createc $/c m=e | a exists $/c | a close | b exists $/c
container with sequential flag: a createc $/c m=s | a createc $/c m=es | a ls $
container with ephemeral below: a createc $/c m=c | a create $/c/e m=e | a close | b ls2 $/c
container with TTL flag: a createc $/c m=t
ttl: a createttl $/t m=t ttl=100000 | a exists $/t | a create $/t/x | a get $/t
ttl sequential: a createttl $/t m=ts ttl=100000 | a createttl $/t m=ts | a ls $
ttl of zero: a createttl $/t m=t ttl=0
ttl below zero: a createttl $/t m=t ttl=-1
ttl of the largest value: a createttl $/t m=t ttl=0xffffffffff | a exists $/t
ttl too large: a createttl $/t m=t ttl=0x10000000000
ttl with persistent flag: a createttl $/t m=p ttl=1000
ttl with ephemeral flag: a createttl $/t m=e ttl=1000
ttl mode by create: a create $/t m=t
ttl mode by create2: a create2 $/t m=ts
ttl twice: a createttl $/t m=t | a createttl $/t m=t
unknown mode: a create $/x m=7 | a create $/x m=-1 | a create $/x m=99 | a createttl $/x m=8
unknown mode beats bad path: a create a m=7
bad path beats bad ACL: a create a acl=none
bad ACL beats missing parent: a create $/no/x acl=none
missing parent beats bad name: a create $/no/..
taken name beats ephemeral parent: a create $/e m=e | a create $/e
create no ACL: a create $/x acl=none | a create $/x acl=null
failed create takes a zxid: a create $ | a create $/no/x | a ping | a create $/x | a exists $/x
children of root: a exists / | a getacl /
zookeeper itself: a get /zookeeper | a ls2 /zookeeper | a getacl /zookeeper | a get /zookeeper/config | a getacl /zookeeper/config | a get /zookeeper/quota | a ls2 /zookeeper/quota | a set /zookeeper/config d=x
long name: a create $/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | a ls $
many levels: a create $/a | a create $/a/a | a create $/a/a/a | a create $/a/a/a/a | a count $ | a count $/a/a | a ls2 $/a
stat of the parent: a create $/x | a exists $ | a delete $/x | a exists $ | a create $/y m=e | a exists $ | a close | b exists $
pzxid is of children only: a create $/x | a create $/x/y | a exists $ | a exists $/x | a set $/x d=1 | a exists $/x
`

const deleteCases = `
delete: a create $/x | a delete $/x | a exists $/x | a ls2 $
delete missing: a delete $/x
delete below nothing: a delete $/x/y
delete with version: a create $/x | a set $/x d=1 | a delete $/x v=0 | a delete $/x v=2 | a delete $/x v=1
delete with version below -1: a create $/x | a delete $/x v=-2
delete with children: a create $/x | a create $/x/y | a delete $/x | a delete $/x v=3 | a delete $/x/y | a delete $/x
delete with an ephemeral child: a create $/x | a create $/x/e m=e | b delete $/x | a close | b delete $/x
delete an ephemeral of another: a create $/e m=e | b delete $/e | a exists $/e | a ephemerals $ | a close
delete and recreate: a create $/x d=1 | a set $/x d=2 | a delete $/x | a create $/x d=3 | a get $/x
delete the root: a delete /
delete zookeeper: a delete /zookeeper | a delete /zookeeper/config | a delete /zookeeper/quota
delete container: a createc $/c m=c | a delete $/c | a exists $/c
delete ttl: a createttl $/t m=t | a delete $/t | a exists $/t
delete with trailing slash: a create $/x | a delete $/x/
deletecontainer of a container: a createc $/c m=c | b deletec $/c | a exists $/c | a ls2 $
deletecontainer of a persistent: a create $/x d=1 | a exists $/x w | b deletec $/x | a exists $/x | a ls2 $
deletecontainer without permission: a auth digest u:p | a create $/x acl=31:auth: | a create $/x/y acl=31:auth: | b delete $/x/y | b deletec $/x/y | a ls2 $/x
deletecontainer with children: a create $/x | a create $/x/y m=e | b deletec $/x | a delete $/x/y | b deletec $/x | a exists $/x
deletecontainer of an ephemeral: a create $/e m=e | b deletec $/e | a exists $/e
deletecontainer of a ttl: a createttl $/t m=t ttl=100000 | b deletec $/t | a exists $/t
deletecontainer of nothing: a deletec $/no | a deletec $/no/x | a deletec nonsense | a deletec <empty>
`

const dataCases = `
set: a create $/x d=1 | a set $/x d=22 | a get $/x | b get $/x
set missing: a set $/x d=1
set with version: a create $/x | a set $/x d=1 v=0 | a set $/x d=2 v=0 | a set $/x d=3 v=1 | a get $/x
set with version of -1: a create $/x | a set $/x d=1 v=-1 | a exists $/x
set with version below -1: a create $/x | a set $/x d=1 v=-2
set null: a create $/x d=1 | a set $/x d=null | a get $/x
set empty: a create $/x d=1 | a set $/x d= | a get $/x
set an ephemeral of another: a create $/e m=e | b set $/e d=1 | a get $/e
set does not touch the parent: a create $/x | a exists $ | a set $/x d=1 | a exists $
get missing: a get $/x | a get $/x w
exists missing: a exists $/x | a exists $/x w
get the empty path: a exists <empty> | a getacl <empty>
sync: a sync $ | a sync $/missing | a sync / | a sync nonsense
ping: a ping | a ping
count: a create $/x | a create $/x/y | a create $/xx | a count $ | a count $/x | a count $/xx | a count $/no
ephemerals: a create $/e m=e | a create $/x | a create $/x/e1 m=e | a create $/x/e2 m=es | b create $/x/other m=e | a ephemerals $ | a ephemerals $/x | a ephemerals $/x/e | a ephemerals / | a ephemerals <empty> | a ephemerals /nothing | b ephemerals $
ephemerals of none: a ephemerals / | a ephemerals <sp>
whoami: a whoami | a auth digest u:p | a whoami | a auth digest v:q | a whoami | a auth digest u:p | a whoami
reconfig: a reconfig | a ping
zxid of reads: a create $/x | b get $/x | b set $/x d=1 | a get $/x | a exists $/no | a ls $
`

const listCases = `
ls: a create $/x | a create $/y | a ls $ | a ls2 $ | a ls $/x | a ls2 $/x
ls missing: a ls $/x | a ls2 $/x | a ls $/x w | a ls2 $/x w | b create $/x | a ping
ls after deletes: a create $/x | a create $/y | a delete $/x | a ls2 $
ls with ephemerals: a create $/e m=e | b ls2 $ | a close | b ls2 $
cversion counts both ways: a create $/x | a create $/y | a create $/z | a delete $/y | a ls2 $ | a create $/y | a ls2 $
`

const aclCases = `
getacl: a create $/x | a getacl $/x | a getacl $/no
setacl: a create $/x | a setacl $/x acl=read | a getacl $/x | a exists $/x | a set $/x d=1
setacl missing: a setacl $/x acl=open
setacl with version: a create $/x | a setacl $/x v=1 | a setacl $/x v=0 | a setacl $/x v=0 | a setacl $/x v=1 | a exists $/x
setacl empty: a create $/x | a setacl $/x acl=none | a setacl $/x acl=null
setacl bad beats missing: a setacl $/x acl=none
setacl of the root's likes: a setacl $ acl=31:world:someone | a setacl $ acl=31:nosuch:x | a setacl $ acl=31:super:x | a setacl $ acl=31:sasl:x | a setacl $ acl=31:x509:x
acl of strange permissions: a create $/x acl=0:world:anyone | a create $/y acl=63:world:anyone | a create $/z acl=-1:world:anyone | a getacl $/y | a getacl $/z | a get $/x
acl doubles: a create $/x acl=31:world:anyone,31:world:anyone,1:world:anyone | a getacl $/x
acl auth without identity: a create $/x acl=31:auth:
acl auth: a auth digest u:p | a create $/x acl=31:auth: | a getacl $/x | b get $/x | b getacl $/x | b auth digest u:p | b get $/x | b getacl $/x
acl auth with an id: a auth digest u:p | a create $/x acl=31:auth:whatever | a getacl $/x
acl auth of two: a auth digest u:p | a auth digest v:q | a create $/x acl=31:auth: | a getacl $/x | b auth digest v:q | b get $/x
acl auth of two and a plain one: a auth digest u:p | a create $/x acl=1:world:anyone,31:auth: | b get $/x | b getacl $/x | b set $/x d=1 | a set $/x d=1
acl digest: a create $/x acl=31:digest:u:Q7tDSv1P0xWYPWYOCS4jcfwCd/Y= | a get $/x | a auth digest u:p | a get $/x
acl digest wrong form: a create $/x acl=31:digest:u | a create $/x acl=31:digest: | a create $/x acl=31:digest:u: | a create $/x acl=31:digest:u:p:q | a create $/y acl=31:digest::p | a create $/z acl=31:digest:u:p: | a create $/w acl=31:digest::
acl wrong password: a auth digest u:p | a create $/x acl=31:auth: | b auth digest u:wrong | b get $/x
acl digest without colon: a auth digest justuser | a whoami | a create $/x acl=31:auth: | a getacl $/x
acl digest empty: a auth digest <empty> | a whoami
acl digest null: a auth digest null | a eof
acl of an unknown scheme: a auth nosuch x | a eof
acl auth ip: a auth ip x | a whoami
acl auth world: a auth world anyone | a eof
acl is not the parent's: a auth digest u:p | a create $/x acl=31:auth: | a create $/x/y | b get $/x/y | b ls $/x | b set $/x/y d=1 | b delete $/x/y
acl masks digests from readers: a auth digest u:p | a create $/x acl=1:world:anyone,31:auth:,31:digest:w:x | b getacl $/x | a getacl $/x
acl admin alone can read the acl: a create $/x acl=16:world:anyone | b getacl $/x | b get $/x | b setacl $/x acl=open | b get $/x
acl delete is the parent's: a auth digest u:p | a create $/x acl=23:world:anyone,31:auth: | a create $/x/y | b delete $/x/y | b delete $/x | a create $/x/y
acl create is the parent's: a auth digest u:p | a create $/x acl=27:world:anyone,31:auth: | b create $/x/y | a create $/x/y acl=none
acl no read hides events: a auth digest u:p | a create $/x | b get $/x w | b ls $/x w | a setacl $/x acl=31:auth: | a set $/x d=1 | a create $/x/y | b ping
acl no read hides deletion: a auth digest u:p | a create $/x acl=31:auth: | b exists $/x w | a delete $/x | b ping | b exists $/x w | a create $/x acl=31:auth: | b ping
acl no read and persistent watches: a auth digest u:p | b addwatch $ t=1 | a create $/x acl=31:auth: | a set $/x d=1 | a create $/x/y | a delete $/x/y | a delete $/x | b ping
exists needs no read: a auth digest u:p | a create $/x acl=31:auth: | b exists $/x | b exists $/x w | b getacl $/x | b count $/x
sequential acl: a auth digest u:p | a create $/d acl=4:world:anyone,31:auth: | b create $/d/s- m=es | b ls $/d | b ephemerals $ | b delete $/d/s-0000000000
closed session needs no delete: a auth digest u:p | a create $/d acl=4:world:anyone,31:auth: | b create $/d/e m=e | b close | a ls $/d
super is nobody: a auth digest super:test | a whoami | a create $/x acl=31:digest:q:r | a get $/x
sasl: a sasl d=token | a ping
sasl empty: a sasl d= | a ping
auth takes no zxid: a auth digest u:p | a create $/x
`
