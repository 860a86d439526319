//! The dashboard and the alert rules in packaging/ use only metrics and labels of a server's
//! metrics endpoint.
//!
//! promtool checks their PromQL in CI (`cargo xtask test`, step `prometheus`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use testkit::replication::run;
use testkit::saker;
use yaml_rust2::{Yaml, YamlLoader};

use crate::metrics;
use crate::support::{BINARY, connect};

const DASHBOARD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/saker.json"));
const ALERTS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/alerts.yml"));

/// Labels that Prometheus adds to every sample.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

/// The labels of each metric by its name, from a server after some work: a replica that has a
/// replica.
type Scraped = BTreeMap<String, BTreeSet<String>>;

fn scraped() -> Scraped {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (server, port) = metrics::start_in(folder.path());
    let mut client = connect(&server);
    let primary = saker::start_binary(BINARY, &["--repl-diskless-sync-delay", "0"]).expect("starts");
    let (of_primary, of_server) = (primary.port().to_string(), server.port().to_string());
    run(&mut client, &["CONFIG", "SET", "replica-read-only", "no", "min-replicas-to-write", "1"]);
    run(&mut client, &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    run(&mut client, &["REPLICAOF", "127.0.0.1", &of_primary]);
    let replica = saker::start_binary(BINARY, &["--replicaof", "127.0.0.1", &of_server]).expect("starts");
    let following = metrics::scrape_until(port, |page| {
        page.contains("primary_link_up 1") && page.contains("replica_lag_bytes{")
    });
    for words in [
        &["CONFIG", "SET", "metrics-per-command", "histograms", "maxmemory", "1gb"][..],
        &["SET", "k", "v", "EX", "1000"],
        &["LPUSH", "k", "v"],
        &["BGSAVE"],
    ] {
        client.command(words);
    }
    drop((primary, replica));
    let alone = metrics::scrape_until(port, |page| {
        page.contains("db_keys{")
            && page.contains("command_seconds_bucket")
            && page.contains("rdb_last_bgsave_seconds")
            && page.contains("primary_link_down_seconds")
    });
    let page = following + &alone;
    let mut metrics = Scraped::from([("up".to_owned(), BTreeSet::new())]);
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a series and a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let known = metrics.entry(name.to_owned()).or_default();
        known.extend(metrics::labels(labels.trim_end_matches('}')).into_iter().map(|(label, _)| label));
    }
    for labels in metrics.values_mut() {
        labels.extend(TARGET_LABELS.map(str::to_owned));
    }
    metrics
}

/// A token of a PromQL expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// A text of the expression between two quotes.
    Text(String),
    Sign(char),
}

/// Returns the tokens of a PromQL expression, without numbers, durations and word operators.
fn tokens(expr: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), expr);
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_:$.".contains(letter);
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '"' => {
                let end = 1 + rest[1..].find('"').unwrap_or_else(|| panic!("an open quote in {expr}"));
                tokens.push(Token::Text(rest[1..end].to_owned()));
                end + 1
            }
            first if is_word(first) => {
                let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_owned()));
                end
            }
            first => {
                if !first.is_whitespace() {
                    tokens.push(Token::Sign(first));
                }
                first.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    tokens
}

/// Returns the problems with an expression: metrics and labels that the server does not have.
fn problems_of(expr: &str, scraped: &Scraped) -> Vec<String> {
    const CLAUSES: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    let tokens = tokens(expr);
    let (mut problems, mut used, mut named) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut at = 0;
    while at < tokens.len() {
        let Token::Word(word) = &tokens[at] else {
            at += 1;
            continue;
        };
        let next = tokens.get(at + 1);
        at += 1;
        let is_list = CLAUSES.contains(&word.as_str()) && next == Some(&Token::Sign('('));
        if is_list {
            let end = at + tokens[at..].iter().position(|token| *token == Token::Sign(')')).expect("an end");
            let labels = tokens[at..end].iter();
            named.extend(labels.filter_map(|token| match token {
                Token::Word(label) => Some(label.clone()),
                _ => None,
            }));
            at = end;
        } else if next != Some(&Token::Sign('(')) && (word.starts_with("saker") || word == "up") {
            let Some(known) = scraped.get(word) else {
                problems.push(format!("no metric {word}"));
                continue;
            };
            used.extend(known.iter().cloned());
            if next == Some(&Token::Sign('{')) {
                let end =
                    at + tokens[at..].iter().position(|token| *token == Token::Sign('}')).expect("an end");
                for pair in tokens[at..end].windows(2) {
                    if let [Token::Word(label), Token::Sign('=' | '!')] = pair
                        && !known.contains(label)
                    {
                        problems.push(format!("{word} has no label {label}"));
                    }
                }
                at = end;
            }
        }
    }
    if used.is_empty() {
        problems.push("no metric at all".to_owned());
    }
    problems.extend(named.difference(&used).map(|label| format!("no metric of it has a label {label}")));
    problems.into_iter().map(|problem| format!("{problem}: {expr}")).collect()
}

#[test]
fn wrong_names_are_found() {
    let labels = ["job", "instance", "command"].map(str::to_owned).into();
    let scraped = Scraped::from([("saker_calls_total".to_owned(), labels)]);
    let check = |expr: &str, expected: usize| {
        let found = problems_of(expr, &scraped);
        assert_eq!(found.len(), expected, "{found:?}");
    };
    check("rate(saker_calls_total[5m]) > 1e6", 0);
    check(r#"sum by (command) (rate(saker_calls_total{job=~"$job",command!="{x"}[$__rate_interval]))"#, 0);
    check("rate(saker_calls[5m])", 2);
    check(r#"saker_calls_total{db="0"}"#, 1);
    check("sum by (db, job) (saker_calls_total)", 1);
    check("vector(1)", 1);
}

/// Collects the values of `key` in all objects within `json`.
fn all<'j>(json: &'j Json, key: &str, found: &mut Vec<&'j Json>) {
    match json {
        Json::Object(members) => {
            for (name, value) in members {
                if name == key {
                    found.push(value);
                }
                all(value, key, found);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| all(item, key, found)),
        _ => {}
    }
}

fn found<'j>(json: &'j Json, key: &str) -> Vec<&'j Json> {
    let mut values = Vec::new();
    all(json, key, &mut values);
    values
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap_or_default()
}

#[test]
fn the_dashboard_shows_what_there_is() {
    let dashboard: Json = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let scraped = scraped();
    let exprs: Vec<&str> = found(&dashboard, "expr").into_iter().map(text).collect();
    assert!(exprs.len() > 50, "{} expressions", exprs.len());
    let problems: Vec<String> = exprs.iter().flat_map(|expr| problems_of(expr, &scraped)).collect();
    assert_eq!(problems, Vec::<String>::new());

    // Its variables, and the names that their queries use.
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: Vec<&str> = variables.iter().map(|variable| text(&variable["name"])).collect();
    assert_eq!(names, ["datasource", "job", "instance"]);
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        let query = text(&variable["query"]["query"]);
        let list = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) =
            list.and_then(|list| list.rsplit_once(", ")).expect("label_values(SELECTOR, LABEL)");
        assert_eq!(problems_of(selector, &scraped), Vec::<String>::new());
        assert!(scraped["saker_info"].contains(label), "{query}");
    }
    for expr in &exprs {
        for word in tokens(expr) {
            let (Token::Word(word) | Token::Text(word)) = word else { continue };
            let variable = word.strip_prefix('$').filter(|name| !name.starts_with("__"));
            assert!(variable.is_none_or(|name| names.contains(&name)), "no variable {word}: {expr}");
        }
        // Every expression filters by the chosen servers.
        assert!(expr.contains(r#"job=~"$job""#) && expr.contains(r#"instance=~"$instance""#), "{expr}");
    }
    for source in found(&dashboard, "datasource") {
        let uid = text(&source["uid"]);
        assert!(uid == "${datasource}" || uid == "-- Grafana --", "an unknown data source: {source}");
    }
}

#[test]
fn the_dashboard_has_its_rows_and_panels_that_do_not_overlap() {
    let dashboard: Json = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let rows: Vec<&str> =
        panels.iter().filter(|panel| panel["type"] == "row").map(|row| text(&row["title"])).collect();
    assert_eq!(
        rows,
        [
            "Overview",
            "Throughput and latency",
            "Memory",
            "Clients",
            "Keyspace",
            "Expiry and eviction",
            "Snapshots",
            "Replication",
            "I/O threads",
            "Errors and limits"
        ]
    );
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = text(&panel["title"]);
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{title}: its id comes twice");
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        assert!(place("x") + place("w") <= 24, "{title} is wider than the page");
        for cell in (0..place("w") * place("h"))
            .map(|at| (place("x") + at % place("w"), place("y") + at / place("w")))
        {
            assert!(taken.insert(cell), "{title} covers another panel");
        }
        let refs = found(&panel["targets"], "refId").into_iter().map(text).collect::<Vec<_>>();
        assert_eq!(refs.iter().collect::<BTreeSet<_>>().len(), refs.len(), "{title}");
        assert!(panel["type"] == "row" || !refs.is_empty(), "{title} shows nothing");
    }
}

#[test]
fn alerts_ask_for_what_there_is_and_say_what_to_do() {
    let documents = YamlLoader::load_from_str(ALERTS).expect("the rules are YAML");
    let scraped = scraped();
    let groups = documents[0]["groups"].as_vec().expect("groups");
    let rules: Vec<&Yaml> = groups.iter().flat_map(|group| group["rules"].as_vec().expect("rules")).collect();
    assert!(rules.len() > 15, "{} rules", rules.len());
    let mut names = BTreeSet::new();
    for rule in rules {
        let word = |yaml: &Yaml, what: &str| -> String {
            yaml.as_str().unwrap_or_else(|| panic!("{what} is missing in {rule:?}")).to_owned()
        };
        let name = word(&rule["alert"], "alert");
        assert!(name.starts_with("Saker") && names.insert(name.clone()), "{name}");
        assert_eq!(problems_of(&word(&rule["expr"], "expr"), &scraped), Vec::<String>::new(), "{name}");
        let severity = word(&rule["labels"]["severity"], "severity");
        assert!(["warning", "critical"].contains(&severity.as_str()), "{name}: {severity}");
        let summary = word(&rule["annotations"]["summary"], "summary");
        let description = word(&rule["annotations"]["description"], "description");
        assert!(summary.contains("{{ $labels.instance }}"), "{name}: which server?");
        assert!(description.len() > 100, "{name}: what to do?");
    }
}
