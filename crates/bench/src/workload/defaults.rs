//! redis-benchmark's default tests, with the same names and requests.

use super::value::{Content, Sizes, Values};
use super::{Template, TemplateOptions, Weighted, Workload};
use crate::BenchError;

/// A default test: its name for `-t`, its title and its command line.
struct DefaultTest {
    name: &'static str,
    title: &'static str,
    line: &'static str,
}

/// The title of the test that fills the list for the LRANGE tests.
const LRANGE_FILL: &str = "LPUSH (needed to benchmark LRANGE)";

const fn test(name: &'static str, title: &'static str, line: &'static str) -> DefaultTest {
    DefaultTest { name, title, line }
}

/// The default tests, in redis-benchmark's order.
const TESTS: &[DefaultTest] = &[
    test("ping_inline", "PING_INLINE", ""),
    test("ping_mbulk", "PING_MBULK", "PING"),
    test("set", "SET", "SET key:__rand_int__ __data__"),
    test("get", "GET", "GET key:__rand_int__"),
    test("incr", "INCR", "INCR counter:__rand_int__"),
    test("lpush", "LPUSH", "LPUSH mylist __data__"),
    test("rpush", "RPUSH", "RPUSH mylist __data__"),
    test("lpop", "LPOP", "LPOP mylist"),
    test("rpop", "RPOP", "RPOP mylist"),
    test("sadd", "SADD", "SADD myset element:__rand_int__"),
    test("hset", "HSET", "HSET myhash element:__rand_int__ __data__"),
    test("spop", "SPOP", "SPOP myset"),
    test("zadd", "ZADD", "ZADD myzset 0 element:__rand_int__"),
    test("zpopmin", "ZPOPMIN", "ZPOPMIN myzset"),
    test("lrange", LRANGE_FILL, "LPUSH mylist __data__"),
    test("lrange_100", "LRANGE_100 (first 100 elements)", "LRANGE mylist 0 99"),
    test("lrange_300", "LRANGE_300 (first 300 elements)", "LRANGE mylist 0 299"),
    test("lrange_500", "LRANGE_500 (first 500 elements)", "LRANGE mylist 0 499"),
    test("lrange_600", "LRANGE_600 (first 600 elements)", "LRANGE mylist 0 599"),
    test(
        "mset",
        "MSET (10 keys)",
        "MSET key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
         key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
         key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
         key:__rand_int__ __data__",
    ),
    test("xadd", "XADD", "XADD mystream * myfield __data__"),
];

/// The names of the single tests that `-t` accepts, in the order in which the tests run. `-t` also
/// accepts `ping` and `lrange`, each for a group of tests.
pub const DEFAULT_TESTS: &[&str] = &[
    "ping_inline",
    "ping_mbulk",
    "set",
    "get",
    "incr",
    "lpush",
    "rpush",
    "lpop",
    "rpop",
    "sadd",
    "hset",
    "spop",
    "zadd",
    "zpopmin",
    "lrange_100",
    "lrange_300",
    "lrange_500",
    "lrange_600",
    "mset",
    "xadd",
];

/// The options of redis-benchmark's default tests: values, number of keys, cluster.
#[derive(Clone, Debug)]
pub struct DefaultTestOptions {
    /// The sizes of the values that the tests write: `-d`.
    pub sizes: Sizes,
    /// The content of the values that the tests write.
    pub content: Content,
    /// The number of different keys and members: `-r`. When absent, all requests use the same key
    /// and member.
    pub keyspace: Option<u64>,
    /// True if keys have a hash tag, so that requests spread over the nodes of a cluster.
    pub cluster: bool,
}

impl Default for DefaultTestOptions {
    /// Returns options with 3-byte constant values and a single key.
    fn default() -> Self {
        Self { sizes: Sizes::Fixed(3), content: Content::Constant, keyspace: None, cluster: false }
    }
}

impl Workload {
    /// Returns the tests called `names` in redis-benchmark's order; all tests if `names` is empty.
    /// As in redis-benchmark's `-t`, `ping` means both PING tests and `lrange` all LRANGE tests.
    /// Before LRANGE tests comes the test that fills their list. Returns an error for an unknown
    /// name.
    pub fn default_tests(names: &[&str], options: &DefaultTestOptions) -> Result<Vec<Workload>, BenchError> {
        let all = ["ping", "lrange"];
        let known = |name: &&&str| DEFAULT_TESTS.contains(name) || all.contains(name);
        let names: Vec<String> = names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        if let Some(unknown) = names.iter().find(|name| !known(&&name.as_str())) {
            let reason = format!("unknown test {unknown:?}; tests are {}", DEFAULT_TESTS.join(","));
            return Err(BenchError::Usage(reason));
        }
        let chosen = |test: &&DefaultTest| {
            let named = |name: &String| {
                let family = test.name.split_once('_').map_or(test.name, |(family, _)| family);
                name == test.name
                    || (all.contains(&name.as_str()) && name == family)
                    || (test.name == "lrange" && name.starts_with("lrange"))
            };
            names.is_empty() || names.iter().any(named)
        };
        Ok(TESTS.iter().filter(chosen).map(|test| build(test, options)).collect())
    }
}

fn build(test: &DefaultTest, options: &DefaultTestOptions) -> Workload {
    let values = Values::new(options.sizes.clone(), options.content);
    let template_options = TemplateOptions {
        rand_int_count: options.keyspace.map(|count| count.max(1)),
        data: Some(values.clone()),
        tags: options.cluster,
        ..TemplateOptions::default()
    };
    let template = if test.name == "ping_inline" {
        Template::raw("PING (inline)", b"PING\r\n")
    } else {
        // Random members also get random scores.
        let random_score = test.name == "zadd" && options.keyspace.is_some();
        let line = if options.cluster { tagged(test.line) } else { test.line.to_owned() };
        let line = if random_score { line.replace(" 0 ", " __rand_int__ ") } else { line };
        Template::parse(&line, &template_options, &mut 0).expect("the lines of the table are templates")
    };
    let mut workload = Workload::of(test.title, vec![Weighted { weight: 1, template }], 0);
    workload.values = Some(values);
    // Members of a set are also chosen from the keyspace.
    if test.line.contains("__rand_int__") {
        workload.keyspace = options.keyspace.unwrap_or(0);
    }
    workload
}

/// Adds a hash tag to the name of each key, as redis-benchmark does: `key:{tag}:__rand_int__`,
/// `mylist:{tag}`.
fn tagged(line: &str) -> String {
    let tag = |word: &str| match word.split_once(':') {
        Some((name @ ("key" | "counter"), rest)) => format!("{name}:{{tag}}:{rest}"),
        None if word.starts_with("my") && word != "myfield" => format!("{word}:{{tag}}"),
        _ => word.to_owned(),
    };
    line.split_whitespace().map(tag).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Draw, Sequences};

    fn titles(names: &[&str]) -> Vec<String> {
        let workloads = Workload::default_tests(names, &DefaultTestOptions::default()).unwrap();
        workloads.into_iter().map(|workload| workload.name).collect()
    }

    #[test]
    fn names_choose_tests_in_the_order_of_redis_benchmark() {
        assert_eq!(titles(&["get", "SET"]), ["SET", "GET"]);
        assert_eq!(titles(&["ping"]), ["PING_INLINE", "PING_MBULK"]);
        assert_eq!(titles(&["lrange_300"]), [LRANGE_FILL, "LRANGE_300 (first 300 elements)"]);
        assert_eq!(titles(&["lrange"]).len(), 5);
        assert_eq!(titles(&[]).len(), DEFAULT_TESTS.len() + 1);
        for name in DEFAULT_TESTS {
            assert!(!titles(&[name]).is_empty());
        }
    }

    #[test]
    fn an_unknown_test_is_told_with_those_there_are() {
        let error = Workload::default_tests(&["set", "gett"], &DefaultTestOptions::default()).unwrap_err();
        assert!(error.to_string().contains("unknown test \"gett\""), "{error}");
    }

    #[test]
    fn the_requests_are_those_of_redis_benchmark() {
        let check = |name: &str, keyspace: Option<u64>, expected: &str| {
            let options = DefaultTestOptions { keyspace, ..DefaultTestOptions::default() };
            let workloads = Workload::default_tests(&[name], &options).unwrap();
            let mut out = Vec::new();
            let template = &workloads[0].requests[0].template;
            template.render(&mut out, &mut Draw::new(1, Sequences::new(0)));
            assert_eq!(String::from_utf8_lossy(&out).replace("\r\n", "|"), expected);
        };
        check("ping_inline", None, "PING|");
        check("ping_mbulk", None, "*1|$4|PING|");
        check("get", None, "*2|$3|GET|$16|key:__rand_int__|");
        check("get", Some(1), "*2|$3|GET|$16|key:000000000000|");
        check("zadd", None, "*4|$4|ZADD|$6|myzset|$1|0|$20|element:__rand_int__|");
        check("zadd", Some(1), "*4|$4|ZADD|$6|myzset|$12|000000000000|$20|element:000000000000|");
        check("lrange", None, &format!("*3|$5|LPUSH|$6|mylist|$3|{}|", constant(3)));
    }

    #[test]
    fn keys_have_a_tag_in_a_cluster_and_nothing_else_has() {
        for test in TESTS {
            let line = tagged(test.line);
            let keys = test.line.split_whitespace().filter(|word| {
                word.starts_with("key:")
                    || word.starts_with("counter:")
                    || (word.starts_with("my") && *word != "myfield")
            });
            assert_eq!(line.matches("{tag}").count(), keys.count(), "{line}");
        }
        assert_eq!(tagged("HSET myhash element:__rand_int__ x"), "HSET myhash:{tag} element:__rand_int__ x");
        assert_eq!(tagged("GET key:__rand_int__"), "GET key:{tag}:__rand_int__");
    }

    fn constant(len: usize) -> String {
        let values = Values::new(Sizes::Fixed(len), Content::Constant);
        String::from_utf8(values.of_key(0).to_vec()).unwrap()
    }
}
