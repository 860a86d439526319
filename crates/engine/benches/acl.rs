//! The cost of checking a request's rights: `cargo bench -p engine --bench acl`.

use divan::{Bencher, black_box};
use engine::acl::{AclRequest, Identity, NewUsers, Users};
use engine::owned_args::OwnedArgs;
use engine::settings::NewChannels;
use engine::table::CommandTable;
use keyspace::Hasher;

fn main() {
    divan::main();
}

/// Returns fifty rules about commands. They permit GET and SET, among others.
fn command_rules(table: &CommandTable) -> Vec<String> {
    let mut names: Vec<&str> = table.iter().map(|command| command.full_name).collect();
    names.sort_unstable();
    names.retain(|name| !["get", "set"].contains(name));
    names.iter().take(48).chain(&["get", "set"]).map(|name| format!("+{name}")).collect()
}

/// The users of the benchmark, named by their rules about keys. `free` has all rights; the others
/// have the same rules about commands.
const USERS: [&str; 5] = ["free", "1 prefix", "3 prefixes", "8 prefixes", "3 globs"];

/// Measures the check of a user's first request in a pipeline, then that of the following requests.
/// `Engine::run` makes the same check before it runs a request.
#[divan::bench(args = USERS, sample_size = 100_000)]
fn check(bencher: Bencher<'_, '_>, kind: &str) {
    let table = CommandTable::new(std::iter::empty());
    let new = NewUsers { table: &table, channels: NewChannels::None };
    let keys: &[&str] = match kind {
        "free" => &["allkeys", "allchannels", "+@all"],
        "1 prefix" => &["~key:*"],
        "3 prefixes" => &["~user:*", "~session:*", "~key:*"],
        "8 prefixes" => &["~a1:*", "~a2:*", "~a3:*", "~a4:*", "~a5:*", "~a6:*", "~a7:*", "~key:*"],
        _ => &["~user:*", "~sess?on:*", "~k[e]y:*"],
    };
    let mut rules: Vec<String> = keys.iter().map(|&rule| rule.to_owned()).collect();
    if kind != "free" {
        rules.extend(command_rules(&table));
    }
    let users = Users::default();
    let mut user = new.user(b"ann");
    new.apply_all(&mut user, rules.iter().map(|rule| rule.as_bytes())).expect("the rules fit");
    users.set::<()>(b"ann", |_| Ok(user)).expect("set");
    let mut identity = Identity::of_connection(&users);
    identity.authenticate(users.get(b"ann").expect("there"), &users);
    let words = OwnedArgs::new(["GET", "key:000000012345"].into_iter().map(str::as_bytes));
    let hasher = Hasher::with_seed([0; 4]);
    let args = words.args(&hasher);
    let registered = table.find(b"GET").expect("there");
    bencher.bench_local(|| {
        let (users, identity) = (black_box(&users), black_box(&identity));
        identity.is_free(users)
            || (!identity.is_stale(users)
                && identity.check(AclRequest { registered, args: &args, db: 0 }).is_ok())
    });
}
