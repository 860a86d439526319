//! Names of commands and categories that Redis, Valkey or their modules have and this server does
//! not have.
//!
//! Configurations contain such names. Hardened ones disable replication commands by
//! `rename-command` and by ACL rules, others name commands of modules. If the server refused these
//! lines, it would not start with such a configuration. The line is kept, shown and written again
//! unchanged, but has no effect; a warning says so. Names that no such server has remain errors.
//!
//! Sources: COMMAND LIST and ACL CAT of Redis 8.0.2 and Valkey 9.1, and the documentation of both,
//! with later releases and the modules that they bundle. A command that this server implements must
//! be removed from the list: a test of the joined table fails otherwise.

/// The names of commands that this server does not have, in lower case, in ascending order. A
/// subcommand is written `container|subcommand`.
#[rustfmt::skip]
pub const COMMANDS: &[&str] = &[
    "_ft.config", "_ft.config|get", "_ft.config|help", "_ft.config|set", "_ft.debug", "acl|delrole",
    "acl|getrole", "acl|roles", "acl|setrole",
    "bf.add", "bf.card", "bf.debug", "bf.exists", "bf.info",
    "bf.insert", "bf.load", "bf.loadchunk", "bf.madd", "bf.mexists", "bf.reserve", "bf.scandump", "cf.add",
    "cf.addnx", "cf.compact", "cf.count", "cf.debug", "cf.del", "cf.exists", "cf.info", "cf.insert",
    "cf.insertnx", "cf.loadchunk", "cf.mexists", "cf.reserve", "cf.scandump", "clusterscan",
    "cluster|cancelslotmigrations", "cluster|flushslot", "cluster|getslotmigrations", "cluster|migrateslots",
    "cluster|migration", "cluster|slot-stats", "cluster|syncslots", "cms.incrby", "cms.info",
    "cms.initbydim", "cms.initbyprob", "cms.merge", "cms.query", "ft._aliasaddifnx", "ft._aliasdelifx",
    "ft._alterifnx", "ft._createifnx", "ft._dropifx", "ft._dropindexifx", "ft._list", "ft.add",
    "ft.aggregate", "ft.aliasadd", "ft.aliasdel", "ft.aliaslist", "ft.aliasupdate", "ft.alter", "ft.config",
    "ft.config|get", "ft.config|help", "ft.config|set", "ft.create", "ft.cursor", "ft.cursor|del",
    "ft.cursor|gc", "ft.cursor|read", "ft.del", "ft.dictadd", "ft.dictdel", "ft.dictdump", "ft.drop",
    "ft.dropindex", "ft.explain", "ft.explaincli", "ft.get", "ft.hybrid", "ft.info", "ft.mget", "ft.profile",
    "ft.safeadd", "ft.search", "ft.spellcheck", "ft.sugadd", "ft.sugdel", "ft.sugget", "ft.suglen",
    "ft.synadd", "ft.syndump", "ft.synupdate", "ft.tagvals", "json.arrappend", "json.arrindex",
    "json.arrinsert", "json.arrlen", "json.arrpop", "json.arrtrim", "json.clear", "json.debug",
    "json.debug|help", "json.debug|memory", "json.del", "json.forget", "json.get", "json.merge", "json.mget",
    "json.mset", "json.numincrby", "json.nummultby", "json.numpowby", "json.objkeys", "json.objlen",
    "json.resp", "json.set", "json.strappend", "json.strlen", "json.toggle", "json.type", "phcard", "phdel",
    "phget", "phmget", "phset", "search.clusterinfo", "search.clusterrefresh", "search.clusterset",
    "tdigest.add", "tdigest.byrank", "tdigest.byrevrank", "tdigest.cdf", "tdigest.create", "tdigest.info",
    "tdigest.max", "tdigest.merge", "tdigest.min", "tdigest.quantile", "tdigest.rank", "tdigest.reset",
    "tdigest.revrank", "tdigest.trimmed_mean", "timeseries.clusterset", "timeseries.refreshcluster",
    "topk.add", "topk.count", "topk.incrby", "topk.info", "topk.list", "topk.query", "topk.reserve",
    "trimslots", "ts.add", "ts.alter", "ts.create", "ts.createrule", "ts.decrby", "ts.del", "ts.deleterule",
    "ts.get", "ts.incrby", "ts.info", "ts.madd", "ts.mget", "ts.mrange", "ts.mrevrange", "ts.nrange",
    "ts.nrevrange", "ts.queryindex", "ts.querylabels", "ts.range", "ts.read", "ts.revrange",
];

/// The categories that modules add.
const CATEGORIES: &[&str] = &["bloom", "cms", "cuckoo", "json", "search", "tdigest", "timeseries", "topk"];

/// Returns true if other servers have a command or subcommand of this name, in lower case.
/// O(log commands).
pub fn is_command(name: &str) -> bool {
    COMMANDS.binary_search(&name).is_ok()
}

/// Returns true if a rule about commands, without its sign and in lower case, names a command of
/// other servers. With [`FirstArgs::Taken`], `command|word` may also name the first argument of a
/// command that has no subcommands. O(log commands).
pub(crate) fn is_rule(rule: &str, first_args: FirstArgs) -> bool {
    let of_first_arg = || {
        let Some((command, word)) = rule.split_once('|') else { return false };
        let next = COMMANDS.partition_point(|known| *known <= command);
        let has_subcommands = COMMANDS.get(next).is_some_and(|known| is_subcommand_of(known, command));
        let is_word =
            !word.is_empty() && !word.contains(|letter: char| letter == '|' || letter.is_whitespace());
        is_command(command) && !has_subcommands && is_word
    };
    is_command(rule) || (first_args == FirstArgs::Taken && of_first_arg())
}

/// The treatment of a rule `command|word` whose command has no subcommands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstArgs {
    /// The word is accepted as a first argument of the command.
    Taken,
    /// The rule with the word is an error.
    Refused,
}

fn is_subcommand_of(name: &str, command: &str) -> bool {
    name.strip_prefix(command).is_some_and(|rest| rest.starts_with('|'))
}

/// Returns true if other servers have a category of this name, in lower case and without `@`.
pub(crate) fn is_category(name: &str) -> bool {
    CATEGORIES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order() {
        assert!(COMMANDS.is_sorted());
        assert!(COMMANDS.iter().all(|name| !name.contains(|letter: char| letter.is_ascii_uppercase())));
    }

    #[test]
    fn rules_name_commands_subcommands_and_first_arguments() {
        for rule in
            ["clusterscan", "trimslots", "cluster|slot-stats", "ft.config|get", "json.get", "ft.search"]
        {
            assert!(is_rule(rule, FirstArgs::Refused), "{rule}");
        }
        assert!(is_rule("clusterscan|x", FirstArgs::Taken) && !is_rule("clusterscan|x", FirstArgs::Refused));
        for rule in [
            "",
            "nosuch",
            "get",
            "ft.config|nosuch",
            "clusterscan|",
            "clusterscan|a|b",
            "nosuch|a",
            "cluster|nosuch",
        ] {
            assert!(!is_rule(rule, FirstArgs::Taken), "{rule}");
        }
    }
}
