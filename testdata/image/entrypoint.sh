#!/bin/bash
# Starts a ZooKeeper server configured by the environment variables of the official image.
set -euo pipefail
{
	echo "dataDir=/data"
	echo "tickTime=${ZOO_TICK_TIME:-2000}"
	echo "initLimit=${ZOO_INIT_LIMIT:-5}"
	echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
	echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
	echo "standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}"
	echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
	echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
	for line in ${ZOO_CFG_EXTRA:-}; do echo "$line"; done
	for server in ${ZOO_SERVERS:-server.1=localhost:2888:3888;2181}; do echo "$server"; done
} >/conf/zoo.cfg
mkdir -p /data
echo "${ZOO_MY_ID:-1}" >/data/myid
# shellcheck disable=SC2086 # JVMFLAGS is several words
exec java -Xmx160m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 ${JVMFLAGS:-} -cp '/zookeeper/*' \
	org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
