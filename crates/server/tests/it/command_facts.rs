//! COMMAND DOCS and COMMAND INFO, compared with those of Redis 8.0 for the same commands.
//!
//! `command_facts.txt` has Redis' recorded output: for each command one line for the whole
//! command, then one line per argument. Summaries, complexities and the texts of histories are
//! left out, because Saker has its own. Features of later versions are left out of the comparison
//! by their version.

use std::collections::BTreeMap;

use net::BackendChoice;
use testkit::{Client, Protocol, Value, peer};

use crate::support;

/// Lines of text that describe each command, made from COMMAND DOCS and COMMAND INFO, by the
/// command's name.
type Facts = BTreeMap<String, Vec<String>>;

/// The lines of Saker that differ from Redis: each with its command and the line of Redis, or an
/// empty text for none. Here Saker accepts more than Redis 8.0 without a later version in the
/// record. GEOSEARCH needs no centre for the polygon of Valkey 9. Valkey 8.0 added ZSCAN's NOSCORES
/// and a BITCOUNT without an end. Valkey 8.1 made BGSAVE's SCHEDULE one of two words. Valkey 9
/// rejects CLIENT REPLY in transactions.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("geosearch", "from type=oneof flags=optional", "from type=oneof"),
    ("geosearchstore", "from type=oneof flags=optional", "from type=oneof"),
    (
        "bitcount",
        "docs summary since=2.6.0 group=bitmap complexity history=7.0.0,8.0.0 arguments",
        "docs summary since=2.6.0 group=bitmap complexity history=7.0.0 arguments",
    ),
    ("bitcount", "range/end-unit-block type=block flags=optional", ""),
    (
        "bitcount",
        "range/end-unit-block/end type=integer display_text=end",
        "range/end type=integer display_text=end",
    ),
    (
        "bitcount",
        "range/end-unit-block/unit type=oneof since=7.0.0 flags=optional",
        "range/unit type=oneof since=7.0.0 flags=optional",
    ),
    (
        "bitcount",
        "range/end-unit-block/unit/byte type=pure-token display_text=byte token=BYTE",
        "range/unit/byte type=pure-token display_text=byte token=BYTE",
    ),
    (
        "bitcount",
        "range/end-unit-block/unit/bit type=pure-token display_text=bit token=BIT",
        "range/unit/bit type=pure-token display_text=bit token=BIT",
    ),
    (
        "zscan",
        "docs summary since=2.8.0 group=sorted-set complexity history=8.0.0 arguments",
        "docs summary since=2.8.0 group=sorted-set complexity arguments",
    ),
    ("bgsave", "operation type=oneof flags=optional", ""),
    (
        "bgsave",
        "operation/schedule type=pure-token display_text=schedule token=SCHEDULE since=3.2.2",
        "schedule type=pure-token display_text=schedule token=SCHEDULE since=3.2.2 flags=optional",
    ),
    (
        "client|reply",
        "info 3 | noscript,loading,stale,no_multi | 0 | 0 | 0 | @slow,@connection |  | ",
        "info 3 | noscript,loading,stale | 0 | 0 | 0 | @slow,@connection |  | ",
    ),
    ("zscan", "noscores type=pure-token display_text=noscores token=NOSCORES flags=optional", ""),
];

fn text(value: &Value) -> String {
    match value {
        Value::Simple(bytes) | Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Array(parts) => format!("[{}]", parts.iter().map(text).collect::<Vec<_>>().join(" ")),
        Value::Set(parts) => parts.iter().map(text).collect::<Vec<_>>().join(","),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}:{}", text(key), text(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
        }
        other => panic!("COMMAND tells {other:?}"),
    }
}

fn pairs(value: &Value) -> &[(Value, Value)] {
    let Value::Map(pairs) = value else { panic!("not a map") };
    pairs
}

fn parts(value: &Value) -> &[Value] {
    let (Value::Array(parts) | Value::Set(parts)) = value else { panic!("not a list") };
    parts
}

/// Returns true if this version is later than Redis 8.0.
fn is_later(version: &str) -> bool {
    let mut numbers = version.split('.').filter_map(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) > (Some(8), Some(0))
}

/// Adds a line for each argument in a reply of COMMAND DOCS, followed by the lines of the arguments
/// nested in it. Leaves out arguments of later versions than Redis 8.0.
fn arguments(list: &Value, within: &str, lines: &mut Vec<String>) {
    for arg in parts(list) {
        let field = |wanted: &str| pairs(arg).iter().find(|(name, _)| text(name) == wanted).map(|(_, it)| it);
        if field("since").is_some_and(|version| is_later(&text(version))) {
            continue;
        }
        let name = format!("{within}{}", text(field("name").expect("an argument has a name")));
        let told = pairs(arg).iter().map(|(name, value)| (text(name), value));
        let told = told.filter(|(field, _)| !["name", "arguments"].contains(&field.as_str()));
        let told = told.map(|(field, value)| format!(" {field}={}", text(value)));
        let line = format!("{name}{}", told.collect::<String>());
        let mut inner = Vec::new();
        if let Some(list) = field("arguments") {
            arguments(list, &format!("{name}/"), &mut inner);
            // A choice with only later words is itself later.
            if inner.is_empty() {
                continue;
            }
        }
        lines.push(line);
        lines.append(&mut inner);
    }
}

/// Adds the lines for a reply of COMMAND DOCS: the fields in their order, and the versions of
/// histories.
fn add_docs(docs: &Value, facts: &mut Facts) {
    for (name, doc) in pairs(docs) {
        let (mut line, mut below) = (String::from("docs"), Vec::new());
        for (field, value) in pairs(doc) {
            let told = match text(field).as_str() {
                "summary" | "complexity" => String::new(),
                "arguments" => {
                    arguments(value, "", &mut below);
                    String::new()
                }
                "subcommands" => {
                    add_docs(value, facts);
                    String::new()
                }
                "history" => {
                    let Value::Set(changes) = value else { panic!("a history is a set") };
                    let versions = changes.iter().map(|change| text(&parts(change)[0]));
                    let versions: Vec<String> = versions.filter(|version| !is_later(version)).collect();
                    assert!(
                        changes.iter().all(|change| parts(change).len() == 2),
                        "a version and its change"
                    );
                    if versions.is_empty() {
                        continue;
                    }
                    format!("={}", versions.join(","))
                }
                _ => format!("={}", text(value)),
            };
            line += &format!(" {}{told}", text(field));
        }
        let lines = facts.entry(text(name)).or_default();
        lines.push(line);
        lines.append(&mut below);
    }
}

/// Adds a line for each command and subcommand in a reply of COMMAND INFO.
fn add_infos(infos: &Value, facts: &mut Facts) {
    for info in parts(infos) {
        let [name, fields @ .., subcommands] = parts(info) else { panic!("nothing told") };
        let told: Vec<String> = fields.iter().map(text).collect();
        facts.entry(text(name)).or_default().push(format!("info {}", told.join(" | ")));
        add_infos(subcommands, facts);
    }
}

fn facts(client: &mut Client) -> Facts {
    client.hello(Protocol::Resp3);
    let mut facts = Facts::new();
    add_docs(&client.command(&["COMMAND", "DOCS"]), &mut facts);
    add_infos(&client.command(&["COMMAND", "INFO"]), &mut facts);
    facts
}

fn recorded() -> Facts {
    let mut facts = Facts::new();
    let mut name = "";
    for line in include_str!("command_facts.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(fact) => facts.entry(name.to_owned()).or_default().push(fact.to_owned()),
            None => name = line,
        }
    }
    facts
}

#[test]
fn commands_are_described_as_redis_describes_them() {
    let server = support::start(BackendChoice::Auto);
    let (mut ours, theirs) = (facts(&mut support::connect(&server)), recorded());
    for (command, told, by_redis) in ALLOWED {
        let lines = ours.get_mut(*command).expect("the command is there");
        let place = lines.iter_mut().find(|it| it == told).expect("what is allowed is told");
        *place = (*by_redis).into();
        lines.retain(|line| !line.is_empty());
    }
    let mut compared = 0;
    for (command, theirs) in &theirs {
        // Saker lacks some commands of Redis.
        let Some(ours) = ours.get(command) else { continue };
        assert_eq!(ours, theirs, "{command}");
        compared += 1;
    }
    assert!(compared >= 297, "{compared} commands are in both");
}

#[test]
fn the_record_is_what_redis_tells() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let peer = peer::start().expect("the peer starts");
    let mut client = peer.connect();
    let server = client.command(&["INFO", "server"]);
    let server = String::from_utf8_lossy(server.as_bytes().expect("text")).into_owned();
    if !server.contains("\nredis_version:8.0.") || server.contains("valkey") {
        eprintln!("the peer is not Redis 8.0: the record is not about it");
        return;
    }
    // The commands of its modules are not part of the record.
    let told: Facts = facts(&mut client).into_iter().filter(|(name, _)| !name.starts_with('V')).collect();
    let mut page = String::from("# What Redis 8.0 tells of its commands; command_facts.rs reads it.\n");
    for (name, lines) in &told {
        page += &format!("{name}\n");
        lines.iter().for_each(|line| page += &format!("  {line}\n"));
    }
    let path = format!("{}/command_facts.txt", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, page).expect("the target folder takes files");
    assert!(told == recorded(), "command_facts.txt is not what the peer tells; {path} is");
}

#[test]
fn acl_cat_lists_the_commands_whose_info_has_the_category() {
    support::on_each_back_end(|server| {
        let mut client = support::connect(server);
        let mut of_category: BTreeMap<String, Vec<String>> = BTreeMap::new();
        collect_categories(&client.command(&["COMMAND"]), &mut of_category);
        let categories = parts(&client.command(&["ACL", "CAT"])).iter().map(text).collect::<Vec<_>>();
        assert_eq!(categories.len(), 22, "as many as Redis 8.0 has without modules, and that of arrays");
        for category in categories {
            let listed = client.command(&["ACL", "CAT", &category]);
            let mut listed: Vec<String> = parts(&listed).iter().map(text).collect();
            let mut expected = of_category.remove(&format!("@{category}")).unwrap_or_default();
            listed.sort();
            expected.sort();
            assert_eq!(listed, expected, "{category}");
            // Containers have the categories of their own records.
            assert_eq!(listed.contains(&"config".to_owned()), category == "slow", "{category}");
        }
    });
}

/// Collects the names of commands and subcommands by their ACL category.
fn collect_categories(commands: &Value, of_category: &mut BTreeMap<String, Vec<String>>) {
    for command in parts(commands) {
        let fields = parts(command);
        for category in parts(&fields[6]) {
            of_category.entry(text(category)).or_default().push(text(&fields[0]));
        }
        collect_categories(&fields[9], of_category);
    }
}

/// Requests, each with the keys that COMMAND GETKEYS of Redis 8.0.2 finds in it.
const KEYS: &[(&str, &str)] = &[
    ("SORT s STORE BY STORE d", "s d"),
    ("SORT s BY STORE GET STORE STORE d", "s d"),
    ("SORT s LIMIT STORE 1 STORE d", "s d"),
    ("GEORADIUS k 1 1 1 km STORE a STORE b", "k b"),
    ("GEORADIUS k 1 1 1 km STORE a STOREDIST b", "k b"),
    ("GEORADIUS k 1 1 1 km STOREDIST a STORE b COUNT 1", "k b"),
    ("GEORADIUSBYMEMBER k m 1 km STOREDIST a STORE b", "k b"),
    ("XREADGROUP COUNT 1 GROUP STREAMS c STREAMS st >", "st"),
    ("XREADGROUP GROUP g STREAMS STREAMS st >", "st"),
    ("XREAD COUNT 1 STREAMS a b 0 0", "a b"),
    ("SORT l STORE STORE d", "l STORE"),
    ("EVAL script 2 a b c", "a b"),
    ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"),
    ("LMPOP 2 a b LEFT", "a b"),
];

fn text_of_error(reply: &Value) -> String {
    let Value::Error(line) = reply else { panic!("{reply} is no error") };
    String::from_utf8_lossy(line).into_owned()
}

#[test]
fn issue_33_keys_are_those_that_the_command_uses() {
    support::on_each_back_end_with(1, |server| {
        let mut client = support::connect(server);
        for (request, keys) in KEYS {
            let words: Vec<&str> = ["COMMAND", "GETKEYS"].into_iter().chain(request.split(' ')).collect();
            let Value::Array(found) = client.command(&words) else { panic!("{request}: an array") };
            assert_eq!(found.iter().map(text).collect::<Vec<_>>().join(" "), *keys, "{request}");
        }
        let request = "COMMAND GETKEYS XREADGROUP GROUP g c COUNT STREAMS NOACK 10 x b -7";
        let words: Vec<&str> = request.split(' ').collect();
        assert_eq!(text_of_error(&client.command(&words)), "ERR Invalid arguments specified for command");
        client.command(&["ACL", "SETUSER", "u", "on", "nopass", "+@all", "%R~k", "~b"]);
        let request =
            ["ACL", "DRYRUN", "u", "GEORADIUS", "k", "1", "1", "1", "km", "STORE", "a", "STORE", "b"];
        assert_eq!(text(&client.command(&request)), "OK");
    });
}
