#!/bin/sh
# Three servers and three Sentinels on this machine, to see a failover:
#
#   examples/high-availability/try.sh start          starts them in a folder
#   examples/high-availability/try.sh kill-primary   kills the primary and shows what happens
#   examples/high-availability/try.sh status         shows who is primary
#   examples/high-availability/try.sh stop           ends them and removes the folder
#
# It needs saker-server, and the Sentinel and the client of Redis or Valkey (packages redis-sentinel and redis-tools,
# or valkey-sentinel and valkey-tools). These variables change what it uses:
set -eu
folder=${FOLDER:-${TMPDIR:-/tmp}/saker-high-availability}
saker=${SAKER:-saker-server}
sentinel=${SENTINEL:-}
cli=${CLI:-}
server_ports=${SERVER_PORTS:-7001 7002 7003}
sentinel_ports=${SENTINEL_PORTS:-27001 27002 27003}
down_after_ms=${DOWN_AFTER_MS:-1000}
name=main

fail() {
    echo "$*" >&2
    exit 1
}

# Prints the first of the given programs that there is.
first_of() {
    for program; do
        if command -v "$program" >/dev/null; then
            echo "$program"
            return
        fi
    done
    fail "None of these programs is on the PATH: $*"
}

# ask PORT COMMAND…: prints the reply, and nothing if nobody answers.
ask() {
    port=$1
    shift
    timeout 2 "$cli" -h 127.0.0.1 -p "$port" "$@" 2>/dev/null | tr -d '\r' || true
}

# field PORT NAME: prints a field of INFO replication.
field() {
    ask "$1" INFO replication | sed -n "s/^$2://p"
}

# Prints the port of the primary that the first Sentinel names.
primary() {
    # shellcheck disable=SC2086 # a list of ports
    set -- $sentinel_ports
    ask "$1" SENTINEL GET-MASTER-ADDR-BY-NAME "$name" | sed -n 2p
}

# wait_for WHAT COMMAND…: runs the command until it succeeds, for two minutes or so at most.
wait_for() {
    what=$1
    shift
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] || fail "Waited in vain: $what. The logs are in $folder."
        sleep 0.1
    done
}

answers() { [ "$(ask "$1" PING)" = PONG ]; }
is_replica_in_sync() { [ "$(field "$1" role)" = slave ] && [ "$(field "$1" master_link_status)" = up ]; }
# Any server may be the primary: the Sentinels may replace it once more.
are_replicas_in_sync() {
    now=$(primary)
    for port in $server_ports; do
        [ "$port" = "$now" ] || is_replica_in_sync "$port" || return 1
    done
}
is_replaced() {
    new=$(primary)
    [ "${new:-$1}" != "$1" ] && is_written "$new"
}
is_written() { [ "$(ask "$1" SET try 1)" = OK ]; }
knows_all() {
    state=$(ask "$1" SENTINEL MASTER "$name" | paste - - | tr '\t' '=')
    case $state in *num-slaves=2*num-other-sentinels=2*) true ;; *) false ;; esac
}

# start_server PORT: starts a server in the background. Its file says what it is, also after a restart.
start_server() {
    nohup "$saker" "$folder/$1/saker.conf" >>"$folder/$1/log" 2>&1 &
    echo $! >"$folder/$1/pid"
    wait_for "the server at port $1" answers "$1"
}

start() {
    [ ! -e "$folder" ] || fail "$folder is there already: run 'try.sh stop' first."
    # shellcheck disable=SC2086 # a list of ports
    set -- $server_ports
    first=$1
    for port; do
        mkdir -p "$folder/$port"
        cat >"$folder/$port/saker.conf" <<CONF
port $port
bind 127.0.0.1
dir $folder/$port
appendonly yes
repl-diskless-sync-delay 0
CONF
        [ "$port" = "$first" ] || echo "replicaof 127.0.0.1 $first" >>"$folder/$port/saker.conf"
        start_server "$port"
        [ "$port" = "$first" ] || wait_for "the replica at port $port" is_replica_in_sync "$port"
        echo "server    127.0.0.1:$port $(field "$port" role)"
    done
    # Sentinels find the replicas, and each other, by asking the primary.
    for port in $sentinel_ports; do
        mkdir -p "$folder/$port"
        cat >"$folder/$port/sentinel.conf" <<CONF
port $port
bind 127.0.0.1
dir $folder/$port
sentinel monitor $name 127.0.0.1 $first 2
sentinel down-after-milliseconds $name $down_after_ms
sentinel failover-timeout $name 10000
CONF
        # shellcheck disable=SC2086 # a command with its arguments
        nohup $sentinel "$folder/$port/sentinel.conf" --sentinel >>"$folder/$port/log" 2>&1 &
        echo $! >"$folder/$port/pid"
    done
    for port in $sentinel_ports; do
        wait_for "the Sentinel at port $port" knows_all "$port"
        echo "Sentinel  127.0.0.1:$port knows 2 replicas and 2 other Sentinels"
    done
}

status() {
    for port in $server_ports; do
        role=$(field "$port" role)
        link=$(field "$port" master_link_status)
        echo "server    127.0.0.1:$port ${role:-down}${link:+, link $link}"
    done
    echo "The Sentinels say: the primary is 127.0.0.1:$(primary)"
}

kill_primary() {
    old=$(primary)
    [ -n "$old" ] || fail "No Sentinel answers: run 'try.sh start' first."
    is_written "$old" || fail "The primary at port $old does not accept writes."
    echo "Killing the primary at port $old (kill -9)."
    kill -9 "$(cat "$folder/$old/pid")"
    killed=$(date +%s%N)
    wait_for "another primary that accepts writes" is_replaced "$old"
    echo "The server at port $new is the primary and accepts writes, after $((($(date +%s%N) - killed) / 1000000)) ms."
    echo "Starting the old primary again. The Sentinels make it a replica within some 10 seconds."
    start_server "$old"
    wait_for "two replicas in sync" are_replicas_in_sync
    status
}

stop() {
    for port in $server_ports $sentinel_ports; do
        [ ! -e "$folder/$port/pid" ] || kill "$(cat "$folder/$port/pid")" 2>/dev/null || true
    done
    # The servers write files until they end.
    wait_for "the end of the servers" rm -rf "$folder"
}

case ${1:-} in
start | kill-primary | status)
    [ -n "$cli" ] || cli=$(first_of redis-cli valkey-cli)
    [ -n "$sentinel" ] || sentinel=$(first_of redis-sentinel valkey-sentinel redis-server valkey-server)
    ;;
esac
case ${1:-} in
start) start ;;
kill-primary) kill_primary ;;
status) status ;;
stop) stop ;;
*) fail "Usage: try.sh start | kill-primary | status | stop" ;;
esac
