//! The suite's sources: Debian's source package of redis, fetched through apt, which checks its
//! signature.
//!
//! apt uses a configuration and package lists of its own below the target folder. The machine's own
//! stay unchanged, and no privilege is needed.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::progress::Session;
use crate::shell;

/// The release of Debian whose redis is used. It determines the suite's version, 7.0.15.
const RELEASE: &str = "bookworm";
/// The address of Debian's archive that is used if the machine's own apt does not name one.
const DEBIAN: &str = "http://deb.debian.org/debian";
/// The file with the keys of Debian's archive, as Debian installs it.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The time limit of each step to get the suite: fetching the package lists, fetching the package,
/// and unpacking it.
const LIMIT: Duration = Duration::from_secs(480);

/// A change to a file of the suite, made when the suite is unpacked.
#[derive(Clone, Copy)]
struct Adaptation {
    file: &'static str,
    /// The text to replace; it occurs exactly once in the file.
    from: &'static str,
    to: &'static str,
}

/// The changes that are made to Redis' suite, each with its reason.
const ADAPTATIONS: &[Adaptation] = &[
    // Every unit begins with this command, even units that have nothing to do with functions.
    Adaptation {
        file: "tests/support/server.tcl",
        from: "\n    r function flush\n",
        to: "\n    catch {r function flush}\n",
    },
    // The tests leave 100 KB for new keys. The first key of a database above 0 takes memory in each
    // of Saker's 1,024 shards. That memory is allocated only once, so it is allocated before the
    // tests.
    Adaptation {
        file: "tests/unit/maxmemory.tcl",
        from: "start_server {tags {\"maxmemory external:skip\"}} {\n    test \"Without maxmemory small",
        to: "start_server {tags {\"maxmemory external:skip\"}} {\n    r debug populate 50000\n    r flushall sync\n    \
             test \"Without maxmemory small",
    },
    // The thread of the link to the primary does not sleep with DEBUG SLEEP, and connects again at
    // once.
    Adaptation {
        file: "tests/integration/replication-psync.tcl",
        from: "                                    $slave multi\n                                    \
               $slave client kill $master_host:$master_port\n                                    \
               $slave debug sleep $delay\n                                    $slave exec\n",
        to: "                                    exec kill -SIGSTOP [srv 0 pid]\n                                    \
             $master client kill type replica\n                                    \
             after [expr {int($delay * 1000)}]\n                                    exec kill -SIGCONT [srv 0 pid]\n",
    },
    // DEBUG SLEEP delays one thread of Saker, not the one that replicas talk to.
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "        $master debug sleep 10\n",
        to: "        exec kill -SIGSTOP [srv 0 pid]\n        after 4000\n        exec kill -SIGCONT [srv 0 pid]\n",
    },
    // INFO names a snapshot that is sent while it is written.
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "[string match \"*wait_bgsave*\" [s -2 slave0]]",
        to: "[string match \"*send_bulk*\" [s -2 slave0]]",
    },
    // A server that ends by itself ends the pauses of its snapshot, which may then be complete.
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "                catch {$master2 shutdown nosave}\n",
        to: "                exec kill -9 [srv -2 pid]\n",
    },
    // A snapshot is complete before all replicas have read it, and no pipe is logged.
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "                    if {$all_drop == \"all\"} {\n                        wait",
        to: "                    if {0} {\n                        wait",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "                    if {$all_drop == \"no\"} {\n                        wait",
        to: "                    if {0} {\n                        wait",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "                    if {$all_drop == \"slow\" || $all_drop == \"fast\"} {\n                        wait",
        to: "                    if {0} {\n                        wait",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "timedout replica (full sync)*\"} $loglines 1 1\n                        wait_for_log_messages -2 \
               {\"*Diskless rdb transfer, done reading from pipe, 1 replicas still up*\"} $loglines 1 1\n",
        to: "timedout replica (full sync)*\"} $loglines 500 10\n",
    },
    // The stream is sent by another thread, and a change of the role ends it.
    Adaptation {
        file: "tests/unit/multi.tcl",
        from: "        r set foo bar\n        r multi\n        r set foo2 bar\n        r replicaof localhost 9999\n",
        to: "        r set foo bar\n        assert_replication_stream $repl {\n            {select *}\n            \
             {set foo bar}\n        }\n        r multi\n        r set foo2 bar\n        r replicaof localhost 9999\n",
    },
    Adaptation {
        file: "tests/unit/multi.tcl",
        from: "        assert_match {READONLY*} $e\n        assert_replication_stream $repl {\n            {select *}\n            \
               {set foo bar}\n        }\n",
        to: "        assert_match {READONLY*} $e\n        assert_equal {} [read_from_replication_stream $repl]\n",
    },
    // FLUSHALL saves in the background, and a new part of the stream begins there.
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "        test {FLUSHDB / FLUSHALL should replicate} {\n",
        to: "        test {FLUSHDB / FLUSHALL should replicate} {\n            r -1 config set save {}\n",
    },
    // Since 7.4 a client's line has the number of keys that it watches.
    Adaptation {
        file: "tests/unit/introspection.tcl",
        from: "multi=-1 qbuf=26 qbuf-free=* argv-mem=* multi-mem=0 rbs=* rbp=* obl=0 oll=0 omem=0 tot-mem=* events=r \
               cmd=client|list",
        to: "multi=-1 watch=0 qbuf=26 qbuf-free=* argv-mem=* multi-mem=0 rbs=* rbp=* obl=0 oll=0 omem=0 tot-mem=* \
             events=r cmd=client|list",
    },
    Adaptation {
        file: "tests/unit/introspection.tcl",
        from: "multi=-1 qbuf=26 qbuf-free=* argv-mem=* multi-mem=0 rbs=* rbp=* obl=0 oll=0 omem=0 tot-mem=* events=r \
               cmd=client|info",
        to: "multi=-1 watch=0 qbuf=26 qbuf-free=* argv-mem=* multi-mem=0 rbs=* rbp=* obl=0 oll=0 omem=0 tot-mem=* \
             events=r cmd=client|info",
    },
    // The test leaves out the options of 7.0 that cannot change. The names added here are newer
    // options that cannot change, and Saker's own.
    Adaptation {
        file: "tests/unit/introspection.tcl",
        from: "            socket-mark-id\n        }",
        to: "            socket-mark-id\n            metrics-port metrics-bind io-backend unixsocketgroup rdma-bind rdma-rx-size\n            \
             rdma-completion-vector server-cpulist bio-cpulist aof-rewrite-cpulist bgsave-cpulist\n            \
             cluster-databases hash-seed mptcp repl-mptcp audit-log-file oidc-keys-file oidc-keys-url oidc-ca-file\n            \
             oidc-keys-refresh oidc-issuer oidc-audience oidc-user-claim oidc-user-prefix oidc-leeway\n            \
             oidc-end-sessions backupdirname\n        }",
    },
    // Clients are on several threads here: a command may run after another client's command that
    // was sent later.
    Adaptation {
        file: "tests/unit/client-eviction.tcl",
        from: "        set tot_mem [client_field $cname tot-mem]\n",
        to: "        wait_for_condition 200 10 {[client_field $cname tot-mem] >= $n} else {fail \"nothing arrived\"}\n        \
             set tot_mem [client_field $cname tot-mem]\n",
    },
    Adaptation {
        file: "tests/unit/client-eviction.tcl",
        from: "            $rr flush\n        } e\n        assert {![client_exists $cname]}\n        $rr close\n        \n",
        to: "            $rr flush\n        } e\n        \
             wait_for_condition 200 10 {![client_exists $cname]} else {fail \"not evicted\"}\n        $rr close\n",
    },
    Adaptation {
        file: "tests/unit/client-eviction.tcl",
        from: "            set client_mem [client_field client-$i tot-mem]\n    \n",
        to: "            set wanted 0\n            foreach s [lrange $sizes 0 $i] {incr wanted [expr {$clients_per_size * $s}]}\n            \
             wait_for_condition 200 10 {[clients_sum tot-mem] >= $wanted} else {fail \"nothing arrived\"}\n            \
             set client_mem [client_field client-$i tot-mem]\n",
    },
    Adaptation {
        file: "tests/unit/client-eviction.tcl",
        from: "            }            \n            $rr close\n",
        to: "            }\n            $rr close\n            \
             wait_for_condition 200 10 {![client_exists $cname]} else {fail \"still there\"}\n",
    },
    Adaptation {
        file: "tests/unit/client-eviction.tcl",
        from: "        exec kill -SIGCONT $server_pid\n",
        to: "        exec kill -SIGCONT $server_pid\n        wait_for_condition 200 10 {\n            \
             ![client_exists obuf-client1] && ![client_exists obuf-client2]\n        } else {fail \"not freed\"}\n",
    },
    // Redis listens on all addresses by default, Saker on the loopback.
    Adaptation {
        file: "tests/unit/introspection.tcl",
        from: "overrides {protected-mode {no}",
        to: "overrides {bind {*} protected-mode {no}",
    },
    // Saker keeps an incomplete request whole in the query buffer, its headers included.
    Adaptation {
        file: "tests/unit/client-eviction.tcl",
        from: "[client_field $cname qbuf] == $qbsize",
        to: "[client_field $cname qbuf] >= $qbsize",
    },
    Adaptation {
        file: "tests/unit/client-eviction.tcl",
        from: "[client_field qbuf-client qbuf] == $qbsize",
        to: "[client_field qbuf-client qbuf] >= $qbsize",
    },
    // Redis prints its PID shortly before it listens. Here the script that starts Saker prints it.
    Adaptation {
        file: "tests/support/server.tcl",
        from: "    if {$reconnect} {\n        reconnect $level\n",
        to: "    if {$reconnect} {\n        wait_for_condition 500 20 {\n            \
             ![catch {close [socket [srv $level host] [srv $level port]]}]\n        } else {fail \"does not listen\"}\n        \
             reconnect $level\n",
    },
    // The same for units that start a server by hand. Some of them expect that it ends.
    Adaptation {
        file: "tests/support/aofmanifest.tcl",
        from: "    set srv [start_server [list overrides $config]]\n",
        to: "    set srv [start_server [list overrides $config]]\n    wait_for_condition 500 20 {\n        \
             ![is_alive $srv] || ![catch {close [socket [dict get $srv host] [dict get $srv port]]}]\n    \
             } else {fail \"does not listen\"}\n",
    },
    // The unit restarts its server, but in 7.0 the files of a server that ended are removed. The
    // unit therefore fails with Redis, too.
    Adaptation {
        file: "tests/integration/aof-race.tcl",
        from: "start_server [list overrides $config] $code",
        to: "start_server [list overrides $config keep_persistence true] $code",
    },
    // Redis logs nothing after the reason for not starting. Saker also logs what it removes.
    Adaptation {
        file: "tests/integration/aof.tcl",
        from: "Bad format: Server should have logged an error\" {\n            set pattern \"*Bad file format reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -1 <",
        to: "Bad format: Server should have logged an error\" {\n            set pattern \"*Bad file format reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -9 <",
    },
    Adaptation {
        file: "tests/integration/aof.tcl",
        from: "Unfinished MULTI: Server should have logged an error\" {\n            set pattern \"*Unexpected end of file reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -1 <",
        to: "Unfinished MULTI: Server should have logged an error\" {\n            set pattern \"*Unexpected end of file reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -9 <",
    },
    Adaptation {
        file: "tests/integration/aof.tcl",
        from: "Short read: Server should have logged an error\" {\n            set pattern \"*Unexpected end of file reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -1 <",
        to: "Short read: Server should have logged an error\" {\n            set pattern \"*Unexpected end of file reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -9 <",
    },
    Adaptation {
        file: "tests/integration/aof.tcl",
        from: "Unknown command: Server should have logged an error\" {\n            set pattern \"*Unknown command 'bla' reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -1 <",
        to: "Unknown command: Server should have logged an error\" {\n            set pattern \"*Unknown command 'bla' reading the append only file*\"\n            \
             set retry 10\n            while {$retry} {\n                set result [exec tail -9 <",
    },
    // FLUSHALL saves in the background here, and a rewrite begins after the save.
    Adaptation {
        file: "tests/support/util.tcl",
        from: "        if {[status $r aof_rewrite_in_progress] eq 1} {",
        to: "        if {[status $r aof_rewrite_in_progress] eq 1 || [status $r aof_rewrite_scheduled] eq 1} {",
    },
    // Since 7.2 a list of a thousand numbers is short.
    Adaptation {
        file: "tests/unit/aofrw.tcl",
        from: "of list with $e encoding, $d data\" {\n                r flushall\n                set len 1000\n",
        to: "of list with $e encoding, $d data\" {\n                r flushall\n                set len 4000\n",
    },
    // Since 7.2 SELECT goes behind MULTI, in the append-only file and in the stream to replicas.
    Adaptation {
        file: "tests/test_helper.tcl",
        from: "proc assert_replication_stream {s patterns} {\n",
        to: "proc assert_replication_stream {s patterns} {\n    \
             regsub -all {(\\{select \\*\\})(\\s+)(\\{multi\\})} $patterns {\\3\\2\\1} patterns\n",
    },
    Adaptation {
        file: "tests/support/util.tcl",
        from: "proc assert_aof_content {aof_path patterns} {\n",
        to: "proc assert_aof_content {aof_path patterns} {\n    \
             regsub -all {(\\{select \\*\\})(\\s+)(\\{multi\\})} $patterns {\\3\\2\\1} patterns\n",
    },
    // Since 7.2 SET with PXAT is propagated as the client wrote it.
    Adaptation {
        file: "tests/unit/expire.tcl",
        from: "            {select *}\n            {set foo1 bar PXAT *}\n            {set foo1 bar PXAT *}\n            \
               {set foo1 bar PXAT *}\n            {set foo1 bar PXAT *}\n",
        to: "            {select *}\n            {set foo1 bar PXAT *}\n            {set foo1 bar PXAT *}\n            \
             {set foo1 bar PXAT *}\n            {set foo1 bar pxat *}\n",
    },
    // The pattern asks for braces around a payload. Tcl shows them or not, as its version and its
    // checksum happen to be.
    Adaptation {
        file: "tests/unit/expire.tcl",
        from: "{restore foo6 * {*} ABSTTL}\n            {restore foo7 * {*} absttl}",
        to: "{restore foo6 * ABSTTL}\n            {restore foo7 * absttl}",
    },
    // Since 7.2 scores have the shortest digits, in DEBUG DIGEST too, in 7.0 up to 17. Multiples of
    // 1/64 have the same digits in both.
    Adaptation {
        file: "tests/support/util.tcl",
        from: "            randpath {set d +inf} {set d -inf}\n        }\n",
        to: "            randpath {set d +inf} {set d -inf}\n        }\n        \
             catch {set d [expr {round($d * 64) / 64.0}]}\n",
    },
    // Since 7.2 a short list is a listpack; in 7.0 every list was a quicklist.
    Adaptation {
        file: "tests/support/test.tcl",
        from: "    assert_match $enc $val\n",
        to: "    if {$enc eq \"quicklist\" && $val eq \"listpack\"} return\n    assert_match $enc $val\n",
    },
];

/// The servers that are replicas: with the argument `replica`, the suite's `src/redis-server`
/// starts a Redis in the mode with Redis' replicas, else Saker. The text may occur several times
/// in a file.
const REPLICAS: &[Adaptation] = &[
    // The inner server is the replica.
    Adaptation { file: "tests/integration/block-repl.tcl", from: INNER, to: INNER_REPLICA },
    Adaptation { file: "tests/integration/replication-4.tcl", from: INNER, to: INNER_REPLICA },
    Adaptation { file: "tests/integration/replication-psync.tcl", from: INNER, to: INNER_REPLICA },
    // The middle server is a replica at first.
    Adaptation {
        file: "tests/integration/failover.tcl",
        from: "start_server {tags {\"failover external:skip\"}} {\nstart_server {} {",
        to: "start_server {tags {\"failover external:skip\"}} {\nstart_server {args replica} {",
    },
    Adaptation { file: "tests/unit/maxmemory.tcl", from: INNER, to: INNER_REPLICA },
    Adaptation { file: "tests/unit/wait.tcl", from: INNER, to: INNER_REPLICA },
    Adaptation {
        file: "tests/unit/auth.tcl",
        from: "start_server {tags {\"masterauth\"}} {",
        to: "start_server {tags {\"masterauth\"} args replica} {",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "    start_server {} {\n        test {Second server",
        to: "    start_server {args replica} {\n        test {Second server",
    },
    // The outer server is the replica.
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "start_server {tags {\"repl external:skip\"}} {\n    set A ",
        to: "start_server {tags {\"repl external:skip\"} args replica} {\n    set A ",
    },
    Adaptation { file: "tests/integration/replication-2.tcl", from: OUTER, to: OUTER_REPLICA },
    Adaptation { file: "tests/integration/replication-3.tcl", from: OUTER, to: OUTER_REPLICA },
    Adaptation { file: "tests/integration/replication-buffer.tcl", from: OUTER, to: OUTER_REPLICA },
    Adaptation {
        file: "tests/unit/pubsubshard.tcl",
        from: "start_server {tags {\"pubsubshard external:skip\"}} {\nstart_server",
        to: "start_server {tags {\"pubsubshard external:skip\"} args replica} {\nstart_server",
    },
    // All servers but the innermost are replicas.
    Adaptation {
        file: "tests/integration/replication-buffer.tcl",
        from: "replica} {\nstart_server {} {\nstart_server {} {\n    set replica1 ",
        to: "replica} {\nstart_server {args replica} {\nstart_server {} {\n    set replica1 ",
    },
    Adaptation {
        file: "tests/integration/psync2-reg.tcl",
        from: "start_server {tags {\"psync2 external:skip\"}} {\nstart_server {} {\n",
        to: "start_server {tags {\"psync2 external:skip\"} args replica} {\nstart_server {args replica} {\n",
    },
];
const INNER: &str = "start_server {} {";
const INNER_REPLICA: &str = "start_server {args replica} {";
const OUTER: &str = "start_server {tags {\"repl external:skip\"}} {";
const OUTER_REPLICA: &str = "start_server {tags {\"repl external:skip\"} args replica} {";

/// Changes to the suite that make units with replicas shorter, or that leave parts of them out.
const SHORTER: &[Adaptation] = &[
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "repl-timeout 5\n",
        to: "repl-timeout 2\n",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "foreach mdl {no yes} {\n    foreach sdl {disabled swapdb} {\n",
        to: "foreach mdl {yes} {\n    foreach sdl {disabled swapdb} {\n",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "after 5000 ;# wait for some data",
        to: "after 1500 ;# wait for some data",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "            after 5000\n\n            # Stop the ability",
        to: "            after 1000\n\n            # Stop the ability",
    },
    Adaptation { file: "tests/integration/replication.tcl", from: "i=1,3000000000", to: "i=1,300000000" },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "    $master debug populate 20000 test 10000\n    $master config set rdbcompression no\n    # If",
        to: "    $master debug populate 2000 test 10000\n    $master config set rdbcompression no\n    # If",
    },
    Adaptation {
        file: "tests/integration/replication.tcl",
        from: "key-load-delay 100 ;#",
        to: "key-load-delay 1000 ;#",
    },
    Adaptation { file: "tests/integration/psync2.tcl", from: "set duration 40 ", to: "set duration 10 " },
    Adaptation {
        file: "tests/integration/psync2.tcl",
        from: "set genload_time 5000 ",
        to: "set genload_time 2500 ",
    },
    Adaptation {
        file: "tests/integration/psync2.tcl",
        from: "set disconnect_period 1000 ",
        to: "set disconnect_period 400 ",
    },
    Adaptation { file: "tests/integration/block-repl.tcl", from: "after 25000", to: "after 3000" },
    Adaptation { file: "tests/integration/psync2-reg.tcl", from: "set duration 20 ", to: "set duration 4 " },
    Adaptation { file: "tests/integration/replication-4.tcl", from: "after 5000", to: "after 2000" },
    // The first group measures the memory of keys together with that of the stream.
    Adaptation {
        file: "tests/integration/replication-buffer.tcl",
        from: "start_server {tags {\"repl external:skip\"}} {\nstart_server {} {\nstart_server {} {\nstart_server {} {\n",
        to: "start_server {tags {\"repl external:skip saker:skip\"}} {\nstart_server {} {\nstart_server {} {\n\
             start_server {} {\n",
    },
    // A replica's way of loading makes no difference to its primary.
    Adaptation {
        file: "tests/integration/replication-psync.tcl",
        from: "foreach mdl {no yes} {\n    foreach sdl {disabled swapdb} {\n",
        to: "foreach mdl {yes} {\n    foreach sdl {disabled} {\n",
    },
];

/// Returns the folder with the suite's sources. Fetches them if they are missing or outdated. The
/// inner error says why they are not available.
pub fn fetch(session: &Session) -> Result<Result<PathBuf, String>> {
    let folder = session.target.join("redis-suite");
    let source = folder.join("source");
    // The stamp holds the adaptations from which `source` was made: they may have changed since.
    let all = [ADAPTATIONS, SHORTER, REPLICAS].concat();
    let made_from = all.iter().map(|a| [a.file, a.from, a.to].concat()).collect::<String>();
    let stamp = source.join("adaptations");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == made_from) {
        return Ok(Ok(source));
    }
    let archive = match find_archive(&folder) {
        Some(archive) => archive,
        None => match download(session, &folder)? {
            Ok(archive) => archive,
            Err(missing) => return Ok(Err(missing)),
        },
    };
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    fs::create_dir_all(&source)?;
    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "-xzf"]).arg(&archive).arg("-C").arg(&source);
    shell::run_logged(session, "redis-suite", &mut tar, LIMIT)?;
    for adaptation in ADAPTATIONS.iter().chain(SHORTER) {
        adapt(&source, adaptation, 1..=1)?;
    }
    for adaptation in REPLICAS {
        adapt(&source, adaptation, 1..=usize::MAX)?;
    }
    fs::write(&stamp, made_from)?;
    Ok(Ok(source))
}

/// Replaces the text of an adaptation in the suite at `source`, wherever it occurs. The number of
/// its places must be in `expected`.
fn adapt(source: &Path, adaptation: &Adaptation, expected: RangeInclusive<usize>) -> Result<()> {
    let path = source.join(adaptation.file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let occurrences = text.matches(adaptation.from).count();
    ensure!(
        expected.contains(&occurrences),
        "{} contains {occurrences} times: {:?}",
        adaptation.file,
        adaptation.from
    );
    fs::write(&path, text.replace(adaptation.from, adaptation.to))?;
    Ok(())
}

/// Returns the path of the archive of Redis' own sources in `folder`; `None` if no earlier run has
/// fetched it.
fn find_archive(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("redis_") && name.ends_with(".orig.tar.gz")
    })
}

/// Fetches the source package of redis into `folder`. Returns the path of the archive in it. The
/// inner error says why it is not available.
fn download(session: &Session, folder: &Path) -> Result<Result<PathBuf, String>> {
    if shell::find("apt-get").is_none() {
        return Ok(Err(
            "the suite comes from Debian's source package of redis, and there is no apt-get".into()
        ));
    }
    if !Path::new(KEYRING).exists()
        && let Err(missing) = shell::install(session, "debian-archive-keyring")
    {
        return Ok(Err(missing));
    }
    let apt = folder.join("apt");
    fs::create_dir_all(apt.join("lists/partial"))?;
    fs::create_dir_all(apt.join("cache/archives/partial"))?;
    let mirror = machine_mirror().unwrap_or_else(|| DEBIAN.to_owned());
    fs::write(apt.join("sources.list"), format!("deb-src [signed-by={KEYRING}] {mirror} {RELEASE} main\n"))?;
    let shown = apt.display();
    let config = format!(
        "Dir::Etc::SourceList \"{shown}/sources.list\";\nDir::Etc::SourceParts \"/dev/null\";\n\
         Dir::State::Lists \"{shown}/lists\";\nDir::Cache \"{shown}/cache\";\n"
    );
    fs::write(apt.join("apt.conf"), config)?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("APT_CONFIG", apt.join("apt.conf")).current_dir(folder);
        shell::run_logged(session, "redis-suite", &mut command, LIMIT)
    };
    if run(&["update", "-qq"]).is_err() || run(&["source", "--download-only", "-qq", "redis"]).is_err() {
        return Ok(Err(format!("apt-get could not fetch the source package redis from {mirror}")));
    }
    Ok(find_archive(folder).ok_or_else(|| "Debian's source package of redis holds no archive".into()))
}

/// Returns the address of the Debian mirror that this machine's apt uses; `None` if it uses none.
fn machine_mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    files.extend(fs::read_dir("/etc/apt/sources.list.d").ok()?.flatten().map(|entry| entry.path()));
    let is_read = |path: &&PathBuf| {
        path.extension().is_some_and(|extension| extension == "list" || extension == "sources")
    };
    files.iter().filter(is_read).find_map(|file| mirror_in(&fs::read_to_string(file).ok()?))
}

/// Returns the first address of Debian's main archive in the text of an apt sources file.
fn mirror_in(sources: &str) -> Option<String> {
    let lines = sources.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let words = lines.filter(|line| line.starts_with("deb") || line.starts_with("URIs:"));
    let mut words = words.flat_map(str::split_whitespace);
    let found = words.find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"));
    found.map(|word| word.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_read_from_both_kinds_of_files() {
        let check = |text: &str| mirror_in(text);
        assert_eq!(
            check("# deb http://no/debian x\nTypes: deb\nURIs: http://a/debian\n").unwrap(),
            "http://a/debian"
        );
        assert_eq!(check("deb [arch=amd64] https://b/debian/ bookworm main\n").unwrap(), "https://b/debian");
        assert_eq!(check("deb http://security.c/debian-security x main\n"), None);
        assert_eq!(check("deb http://archive.d/ubuntu noble main\n"), None);
    }
}
