//! Commands on long lists whose quicklist nodes are compressed.

use net::BackendChoice;
use testkit::{Client, Value};

use crate::support::{connect, start};

const ELEMENTS: usize = 3000;

fn value(at: usize) -> String {
    format!("value:value:value:{at}")
}

/// Fills `key` with a list of [`ELEMENTS`] elements.
fn fill(client: &mut Client, key: &str) {
    for at in 1..=ELEMENTS {
        assert_eq!(client.command(&["RPUSH", key, &value(at)]), Value::Integer(at as i64));
    }
}

/// Returns the quicklist fields of DEBUG OBJECT for `key`.
fn figures(client: &mut Client, key: &str) -> String {
    let Value::Simple(line) = client.command(&["DEBUG", "OBJECT", key]) else { panic!("a line") };
    let line = String::from_utf8_lossy(&line).into_owned();
    line[line.find("ql_nodes").expect("it is a quicklist")..].to_owned()
}

fn integer(client: &mut Client, command: &[&str]) -> i64 {
    match client.command(command) {
        Value::Integer(integer) => integer,
        other => panic!("{command:?} answered {other}"),
    }
}

#[test]
fn a_list_made_with_a_compress_depth_takes_less_and_holds_the_same() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    fill(&mut client, "plain");
    client.command(&["CONFIG", "SET", "list-compress-depth", "1"]);
    fill(&mut client, "deep");
    // Existing lists keep the depth with which they were created.
    client.command(&["CONFIG", "SET", "list-compress-depth", "0"]);

    // The output of Redis 8.0.2.
    let shown = |compressed: u8| {
        format!(
            "ql_nodes:9 ql_avg_node:333.33 ql_listpack_max:-2 ql_compressed:{compressed} ql_uncompressed_size:70956"
        )
    };
    assert_eq!(figures(&mut client, "plain"), shown(0));
    assert_eq!(figures(&mut client, "deep"), shown(1));
    let [plain, deep] = ["plain", "deep"].map(|key| integer(&mut client, &["MEMORY", "USAGE", key]));
    assert!(deep < plain / 2, "{deep} bytes instead of {plain}");
    let same = |client: &mut Client| {
        let [plain, deep] = ["plain", "deep"].map(|key| client.command(&["DEBUG", "DIGEST-VALUE", key]));
        assert_eq!(plain, deep);
    };
    same(&mut client);

    // Reading changes nothing.
    for command in [
        &["LRANGE", "KEY", "900", "2100"][..],
        &["LINDEX", "KEY", "1500"],
        &["LPOS", "KEY", &value(1500)],
        &["LPOS", "KEY", &value(1500), "RANK", "-1"],
        &["SORT", "KEY", "ALPHA", "LIMIT", "1000", "50"],
        &["SORT", "KEY", "BY", "nosort", "DESC", "LIMIT", "1000", "50"],
    ] {
        let [plain, deep] = ["plain", "deep"].map(|key| {
            let words: Vec<_> = command.iter().map(|&word| if word == "KEY" { key } else { word }).collect();
            client.command(&words)
        });
        assert!(plain == deep && !plain.is_error(), "{command:?}");
    }
    assert_eq!(integer(&mut client, &["MEMORY", "USAGE", "deep"]), deep);

    // Writing has the same effect on both lists and leaves the deep one compressed.
    for command in [
        &["LSET", "KEY", "1500", "another"][..],
        &["LINSERT", "KEY", "BEFORE", "another", "one more"],
        &["LREM", "KEY", "0", &value(2000)],
        &["LTRIM", "KEY", "10", "2900"],
    ] {
        for key in ["plain", "deep"] {
            let words: Vec<_> = command.iter().map(|&word| if word == "KEY" { key } else { word }).collect();
            assert!(!client.command(&words).is_error(), "{words:?}");
        }
        same(&mut client);
    }
    assert!(integer(&mut client, &["MEMORY", "USAGE", "deep"]) < plain / 2);
    client.command(&["COPY", "deep", "copy"]);
    assert!(figures(&mut client, "copy").contains("ql_compressed:1"));
}

#[test]
fn a_compressed_list_is_dumped_as_any_other_and_restored_as_the_options_say() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    fill(&mut client, "plain");
    client.command(&["CONFIG", "SET", "list-compress-depth", "2"]);
    fill(&mut client, "deep");
    let [plain, deep] = ["plain", "deep"].map(|key| client.command(&["DUMP", key]));
    assert!(plain == deep, "the payloads differ");
    let Value::Bulk(payload) = plain else { panic!("a payload") };
    for (depth, compressed) in [("0", "ql_compressed:0"), ("3", "ql_compressed:1")] {
        client.command(&["CONFIG", "SET", "list-compress-depth", depth]);
        let restore: [&[u8]; 5] = [b"RESTORE", b"back", b"0", &payload, b"REPLACE"];
        assert_eq!(client.command(&restore), Value::Simple(b"OK".to_vec()));
        assert!(figures(&mut client, "back").contains(compressed));
        let [one, other] = ["plain", "back"].map(|key| client.command(&["DEBUG", "DIGEST-VALUE", key]));
        assert_eq!(one, other);
    }
    let usage = ["back", "plain"].map(|key| integer(&mut client, &["MEMORY", "USAGE", key]));
    assert!(usage[0] * 4 < usage[1] * 3, "{usage:?}");
}
